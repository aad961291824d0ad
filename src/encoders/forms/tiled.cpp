// SPDX-License-Identifier: Apache-2.0
// What bitmap and csr have in common.

#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {

void encode_tiled(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                  const execution_context& context) {
  if (layout.elements == 0) return;
  if (layout.columns) {
    encode_csr(layout, input, output, context);
  } else {
    encode_bitmap(layout, input, output, context);
  }
}

void decode_tiled(const tile_layout& layout, const const_encoded_view& input, const tensor_view& output,
                  const execution_context& context) {
  const rounding how = layout.values.format == value_format::source ? rounding::exact : rounding::stored;
  const value_output values(output, how, context, layout.columns ? fetched_by::loops : fetched_by::output);
  const auto decode = [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    values.fill(first, length, [&](float* to, destination where) {
      or_bits(input.report->status, decode_tile(layout, input, tile, to, nullptr, where).status);
    });
  };
  for_each_tile(context, layout.elements, decode, [&] { values.finish(); });
}

tiled_size measure_tiled(const tile_layout& layout, const const_tensor_view& input,
                         const execution_context& context) {
  if (layout.elements == 0) return {};
  std::atomic<std::size_t> payloads{0};
  std::atomic<std::uint64_t> nonzeros{0};
  // Sums of a range of tiles first: threads that add to one number at every tile wait for each other.
  parallel_for(context, layout.tiles(), 32, [&](std::int64_t begin, std::int64_t end) {
    std::size_t bytes = 0;
    std::uint64_t count = 0;
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t found = count_values(input, tile * tile_elements, layout.length(tile));
      bytes += pad16(layout.payload_bytes(found));
      count += static_cast<std::uint64_t>(found);
    }
    payloads.fetch_add(bytes, std::memory_order_relaxed);
    nonzeros.fetch_add(count, std::memory_order_relaxed);
  });
  return {layout.fixed_bytes() + payloads.load(), nonzeros.load()};
}

std::uint64_t checksum_tiled(const tile_layout& layout, const const_encoded_view& input,
                             const execution_context& context) {
  std::atomic<std::uint64_t> total{0};
  const dtype type = layout.values.source;
  for_each_tile(context, layout.elements, [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float buffer[tile_elements];
    alignas(run_alignment) std::uint32_t bits[tile_elements];
    const tensor_view run{bits, type, memory_space::host, shape{length}, 0};
    float* values = value_target(run, 0, buffer);
    decode_tile(layout, input, tile, values, nullptr);
    write_values(run, 0, length, values, rounding::exact);
    total.fetch_add(checksum_of_run(type, bits, first, length), std::memory_order_relaxed);
  });
  return total.load();
}

void canonicalise_tiled(const tile_layout& layout, const const_encoded_view& input,
                        const encoded_view& output, const execution_context& context) {
  if (layout.elements == 0) return;
  const auto* from = static_cast<const std::uint8_t*>(input.data);
  auto* to = static_cast<std::uint8_t*>(output.data);
  std::memcpy(to, from, layout.table_offset);
  // The padding of a fixed part of unknown origin need not be zero.
  const std::size_t rows =
      static_cast<std::size_t>((layout.elements + csr_row_elements - 1) / csr_row_elements);
  const std::size_t used = layout.columns ? rows * 2 : static_cast<std::size_t>((layout.elements + 7) / 8);
  std::memset(to + used, 0, layout.table_offset - used);
  if (!layout.columns && layout.elements % 8 != 0)
    to[used - 1] &= static_cast<std::uint8_t>((1U << (layout.elements % 8)) - 1);

  tile_placer placer(layout, output);
  for (std::int64_t tile = 0; tile < layout.tiles(); ++tile) {
    const tile_contents contents = count_tile(layout, input, tile);
    or_bits(input.report->status, contents.status);
    placer.table()[tile] = static_cast<std::uint32_t>(contents.count);
  }
  placer.place(0, layout.tiles());
  placer.place_overflow();
  for_each_tile(context, layout.elements, [&](std::int64_t tile, std::int64_t, std::int64_t) {
    const tile_contents contents = count_tile(layout, input, tile);
    if (contents.count == 0) return;
    std::uint8_t* payload = placer.payload(tile);
    if (payload == nullptr) return;
    std::uint32_t status = status_ok;
    const std::uint8_t* source = find_payload(layout, input, tile, contents.count, status);
    if (source == nullptr) {
      or_bits(input.report->status, status);
      placer.lose(tile);
      return;
    }
    const std::size_t size = layout.payload_bytes(contents.count);
    std::memcpy(payload, source, size);
    pad_payload(payload, size);
  });
  placer.report();
  or_bits(output.report->flags, input.report->flags & flag_mask_is_not_sign);
}

namespace {

std::size_t tiles_bound(const encoding& e, dtype source, std::int64_t elements) {
  return layout_of(e, source, elements).bytes_bound();
}

void write_tiles(const encode_item& item, const execution_context& context) {
  encode_tiled(layout_of(item.how, item.input.type, item.input.elements()), item.input, item.output, context);
}

void read_tiles(const decode_item& item, const execution_context& context) {
  decode_tiled(layout_of(item.input.how, item.output.type, item.output.elements()), item.input.bytes,
               item.output, context);
}

constexpr kind_codec tiled_codec(encoding_kind kind, std::string_view name) {
  return {.kind = kind,
          .name = name,
          .content = kind_content::tiles,
          .types = any_float,
          .check = check_underflow_rule,
          .bytes_bound = tiles_bound,
          .lossless = has_source_values,
          .keeps_sign = always,
          .keeps_values = has_source_values,
          .encode = write_tiles,
          .decode = read_tiles};
}

}  // namespace

constinit const kind_codec bitmap_codec = tiled_codec(encoding_kind::bitmap, "bitmap");
constinit const kind_codec csr_codec = tiled_codec(encoding_kind::csr, "csr");

}  // namespace stash::encoders
