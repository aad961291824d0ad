// SPDX-License-Identifier: Apache-2.0
#include "encoders/format/tile_container.hpp"

#include <cmath>

#include "encoders/format/codecs.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {
namespace {

/// The part of a buffer that payloads can use.
constexpr std::uint64_t usable(std::uint64_t bytes) noexcept {
  return std::min(bytes / 16 * 16, entry_reach);
}

/// The most that padding and rounding up can add to one tile's share of a row of values.
std::size_t waste_per_tile(const tile_layout& layout) noexcept {
  const value_format format = layout.values.format;
  const auto bits = static_cast<std::size_t>(value_bits(format, layout.values.source));
  if (bits % 8 != 0 || is_mx(format)) return 18;
  if (layout.columns) return 15;
  return 16 - bits / 8;
}

}  // namespace

tile_layout layout_of(const encoding& e, dtype source, std::int64_t elements) noexcept {
  tile_layout layout;
  layout.values = {e.values, e.underflow, source};
  layout.columns = e.kind == encoding_kind::csr;
  layout.elements = elements;
  layout.table_offset = layout.columns ? csr_row_end_bytes(elements) : plane_bytes(elements, 1);
  return layout;
}

std::size_t tile_layout::bytes_bound() const noexcept {
  if (elements == 0) return 0;
  const auto whole = static_cast<std::size_t>(elements / tile_elements);
  return fixed_bytes() + whole * pad16(payload_bytes(tile_elements)) +
         pad16(payload_bytes(elements % tile_elements));
}

std::size_t tile_layout::bytes_at_density(double density) const noexcept {
  const auto count =
      std::min(elements, static_cast<std::int64_t>(std::ceil(static_cast<double>(elements) * density)));
  // The worst spread: as many tiles as possible that waste all that one can.
  const auto wasting = static_cast<std::size_t>(std::min(count, tiles()));
  return std::min(fixed_bytes() + pad16(payload_bytes(count) + wasting * waste_per_tile(*this)),
                  bytes_bound());
}

tile_placer::tile_placer(const tile_layout& layout, const encoded_view& output)
    : layout_(layout),
      output_(output),
      table_(reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(output.data) + layout.table_offset)),
      slot_end_(std::max<std::uint64_t>(usable(output.bytes), layout.fixed_bytes())),
      cursor_(layout.fixed_bytes()) {
  const std::size_t used = static_cast<std::size_t>(layout.tiles()) * 4;
  std::memset(reinterpret_cast<std::uint8_t*>(table_) + used, 0, pad16(used) - used);
}

void tile_placer::place(std::int64_t begin, std::int64_t end) noexcept {
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::uint64_t size = pad16(layout_.payload_bytes(table_[tile]));
    nonzeros_ += table_[tile];
    if (size <= slot_end_ - cursor_) {
      table_[tile] = make_entry(tile_location::slot, cursor_);
      cursor_ += size;
    } else {
      // Overflow is claimed when its length is known: until then the entry carries the tile's padded size, in
      // the same units.
      table_[tile] = make_entry(tile_location::never_stored, size);
      overflow_ += size;
    }
  }
}

bool tile_placer::place_overflow() noexcept {
  if (overflow_ == 0) return false;
  std::uint64_t rest = overflow_;
  if (const overflow_arena* regions = output_.overflow; regions != nullptr) {
    add(output_.report->overflow_bytes, overflow_);
    rest = place_region(tile_location::arena, regions->claimed, regions->bytes, rest);
    rest = place_region(tile_location::host, regions->host_claimed, regions->host_bytes, rest);
  }
  if (rest == 0) return true;
  for (std::int64_t tile = 0; tile < layout_.tiles(); ++tile) {
    if (kind_of(table_[tile]) == tile_location::never_stored) lose(tile);
  }
  or_bits(output_.report->status, status_capacity);
  return true;
}

std::uint64_t tile_placer::place_region(tile_location where, std::uint64_t* claimed, std::uint64_t bytes,
                                        std::uint64_t needed) noexcept {
  if (claimed == nullptr || needed == 0) return needed;
  std::uint64_t end = claim(*claimed, needed);
  if (end > usable(bytes)) return needed;  // sums from there on might go through zero
  std::uint64_t rest = 0;
  for (std::int64_t tile = 0; tile < layout_.tiles(); ++tile) {
    if (kind_of(table_[tile]) != tile_location::never_stored) continue;
    const std::uint64_t begin = end;
    const std::uint64_t size = offset_of(table_[tile]);
    end += size;
    if (end <= usable(bytes)) {
      table_[tile] = make_entry(where, begin);
    } else {
      rest += size;
    }
  }
  return rest;
}

bool tile_placer::in_slot(std::int64_t tile) const noexcept {
  return kind_of(table_[tile]) == tile_location::slot;
}

void tile_placer::lose(std::int64_t tile) noexcept {
  table_[tile] = make_entry(tile_location::never_stored, 0);
}

std::uint8_t* tile_placer::payload(std::int64_t tile) const noexcept {
  const std::uint64_t offset = offset_of(table_[tile]);
  switch (kind_of(table_[tile])) {
    case tile_location::slot:
      return static_cast<std::uint8_t*>(output_.data) + offset;
    case tile_location::arena:
      return static_cast<std::uint8_t*>(output_.overflow->data) + offset;
    case tile_location::host:
      return static_cast<std::uint8_t*>(output_.overflow->host_data) + offset;
    case tile_location::never_stored:
      break;
  }
  return nullptr;
}

void tile_placer::report() const noexcept {
  add(output_.report->nonzeros, nonzeros_);
  add(output_.report->slot_bytes, cursor_);
}

std::int64_t count_values(const const_tensor_view& input, std::int64_t first, std::int64_t length) noexcept {
  alignas(run_alignment) float buffer[tile_elements];
  std::uint8_t bits[tile_elements / 8];
  const float* values = read_values(input, first, length, buffer);
  return loops().find_nonzero(values, length, bits).count;
}

const std::uint8_t* find_payload(const tile_layout& layout, const const_encoded_view& input,
                                 std::int64_t tile, std::int64_t count, std::uint32_t& status) noexcept {
  const auto* data = static_cast<const std::uint8_t*>(input.data);
  std::uint32_t entry;
  std::memcpy(&entry, data + layout.table_offset + tile * 4, 4);
  const std::uint64_t offset = offset_of(entry);
  const std::uint8_t* base = nullptr;
  std::uint64_t limit = 0;
  switch (kind_of(entry)) {
    case tile_location::slot:
      base = data;
      limit = offset < layout.fixed_bytes() ? 0 : usable(input.bytes);
      break;
    case tile_location::arena:
      if (input.overflow == nullptr) break;
      base = static_cast<const std::uint8_t*>(input.overflow->data);
      limit = usable(input.overflow->bytes);
      break;
    case tile_location::host:
      if (input.overflow == nullptr) break;
      base = static_cast<const std::uint8_t*>(input.overflow->host_data);
      limit = usable(input.overflow->host_bytes);
      break;
    case tile_location::never_stored:
      status = status_capacity;
      return nullptr;
  }
  if (offset + pad16(layout.payload_bytes(count)) > limit) {
    status = status_corrupt;
    return nullptr;
  }
  return base + offset;
}

bool lies_in_slot(const const_encoded_view& input, const std::uint8_t* payload, std::size_t bytes) noexcept {
  const auto* slot = static_cast<const std::uint8_t*>(input.data);
  return payload >= slot && payload < slot + input.bytes &&
         static_cast<std::size_t>(slot + input.bytes - payload) >= bytes;
}

const float* packed_values(const tile_layout& layout, const const_encoded_view& input,
                           const std::uint8_t* payload, std::int64_t count, float* buffer) noexcept {
  const std::size_t needed = (static_cast<std::size_t>(count) + packed_slack) * sizeof(float);
  const bool in_place = layout.values.format == value_format::source && layout.values.source == dtype::f32 &&
                        lies_in_slot(input, payload, needed);
  if (in_place) return reinterpret_cast<const float*>(payload);
  layout.values.load(payload, count, buffer);
  std::fill_n(buffer + count, packed_slack, 0.0F);
  return buffer;
}

tile_contents decode_tile(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                          float* values, std::uint8_t* present, destination to) noexcept {
  return layout.columns ? decode_csr_tile(layout, input, tile, values, present)
                        : decode_bitmap_tile(layout, input, tile, values, present, to);
}

tile_contents decode_presence(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                              std::uint8_t* present) noexcept {
  return layout.columns ? decode_csr_tile(layout, input, tile, nullptr, present)
                        : decode_bitmap_tile(layout, input, tile, nullptr, present, destination::caches);
}

tile_contents count_tile(const tile_layout& layout, const const_encoded_view& input,
                         std::int64_t tile) noexcept {
  return layout.columns ? count_csr_tile(layout, input, tile) : count_bitmap_tile(layout, input, tile);
}

}  // namespace stash::encoders
