// SPDX-License-Identifier: Apache-2.0
#include "encoders/format/codecs.hpp"
#include "encoders/format/encode_tiles.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {

void encode_bitmap(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                   const execution_context& context) {
  auto* mask = static_cast<std::uint8_t*>(output.data);
  const auto mask_end = static_cast<std::size_t>((layout.elements + 7) / 8);
  std::memset(mask + mask_end, 0, layout.table_offset - mask_end);

  const run_loops& fast = loops();
  const auto count = [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float buffer[tile_elements];
    const nonzero_bits found =
        fast.find_nonzero(read_values(input, first, length, buffer), length, mask + first / 8);
    if (found.any_not_positive) or_bits(output.report->flags, flag_mask_is_not_sign);
    return found.count;
  };
  const bool as_they_are = layout.values.format == value_format::source && layout.values.source == dtype::f32;
  const auto write = [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    const std::uint8_t* bits = mask + first / 8;
    const std::int64_t kept = fast.count_bits(bits, length);
    if (kept == 0) return;
    alignas(run_alignment) float buffer[tile_elements];
    const float* values = read_values(input, first, length, buffer);
    if (as_they_are) {
      fast.compact(values, bits, length, reinterpret_cast<float*>(payload), kept);
    } else {
      alignas(run_alignment) float packed[tile_elements];
      fast.compact(values, bits, length, packed, kept);
      layout.values.store(packed, kept, payload);
    }
    pad_payload(payload, layout.payload_bytes(kept));
  };
  const auto both = [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    alignas(run_alignment) float buffer[tile_elements];
    alignas(run_alignment) float packed[tile_elements + packed_slack];
    float* to = as_they_are ? reinterpret_cast<float*>(payload) : packed;
    const nonzero_bits found =
        fast.find_and_compact(read_values(input, first, length, buffer), length, mask + first / 8, to);
    if (found.any_not_positive) or_bits(output.report->flags, flag_mask_is_not_sign);
    if (!as_they_are) layout.values.store(packed, found.count, payload);
    pad_payload(payload, layout.payload_bytes(found.count));
    return found.count;
  };
  encode_tiles(layout, input, output, context, count, write, both);
}

tile_contents count_bitmap_tile(const tile_layout& layout, const const_encoded_view& input,
                                std::int64_t tile) noexcept {
  const auto* mask = static_cast<const std::uint8_t*>(input.data) + tile * (tile_elements / 8);
  return {loops().count_bits(mask, layout.length(tile)), status_ok};
}

tile_contents decode_bitmap_tile(const tile_layout& layout, const const_encoded_view& input,
                                 std::int64_t tile, float* values, std::uint8_t* present,
                                 destination to) noexcept {
  const auto* mask = static_cast<const std::uint8_t*>(input.data) + tile * (tile_elements / 8);
  const std::int64_t length = layout.length(tile);
  const auto mask_bytes = static_cast<std::size_t>((length + 7) / 8);
  const run_loops& fast = loops();
  tile_contents contents{fast.count_bits(mask, length), status_ok};
  if (present != nullptr) std::memcpy(present, mask, mask_bytes);
  if (values == nullptr) return contents;

  const std::uint8_t* payload = nullptr;
  if (contents.count != 0) payload = find_payload(layout, input, tile, contents.count, contents.status);
  if (payload == nullptr) {
    std::memset(values, 0, static_cast<std::size_t>(length) * sizeof(float));
    if (present != nullptr) std::memset(present, 0, mask_bytes);
    contents.count = 0;
    return contents;
  }
  const std::size_t readable = layout.values.bytes(contents.count + packed_slack);
  if (lies_in_slot(input, payload, readable) &&
      fast.expand_stored(payload, layout.values.format, mask, length, values, to)) {
    return contents;
  }
  alignas(run_alignment) float buffer[tile_elements + packed_slack];
  fast.expand(packed_values(layout, input, payload, contents.count, buffer), mask, length, values, to);
  return contents;
}

}  // namespace stash::encoders
