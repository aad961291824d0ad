// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The tile container of bitmap and csr (docs/format.md): a fixed part that says where values stood, a table
/// with one entry per tile, and payloads in the slot, the overflow arena or the host overflow.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "encoders/detail.hpp"
#include "encoders/format/tile_entry.hpp"
#include "encoders/format/value_codec.hpp"

namespace stash::encoders {

/// Sizes of one encoded tensor.
struct tile_layout {
  value_codec values;
  bool columns = false;  ///< csr: payloads end with a byte per value
  std::int64_t elements = 0;
  std::size_t table_offset = 0;  ///< where bitmap's mask plane or csr's row ends stop

  std::int64_t tiles() const noexcept { return tile_count(elements); }
  std::int64_t length(std::int64_t tile) const noexcept {
    return std::min(tile_elements, elements - tile * tile_elements);
  }
  /// Where payloads start.
  std::size_t fixed_bytes() const noexcept {
    return table_offset + pad16(static_cast<std::size_t>(tiles()) * 4);
  }
  /// Without padding.
  std::size_t payload_bytes(std::int64_t count) const noexcept {
    return values.bytes(count) + (columns ? static_cast<std::size_t>(count) : 0);
  }
  std::size_t bytes_bound() const noexcept;
  std::size_t bytes_at_density(double density) const noexcept;
};

tile_layout layout_of(const encoding& e, dtype source, std::int64_t elements) noexcept;

// --- writing ---------------------------------------------------------------------------------------------

/// Places tiles one after another, in tile order: into the slot while they fit. Tiles of the arena, and of
/// the host overflow after it, are known only when all others are, because their regions are claimed at once.
class tile_placer {
 public:
  tile_placer(const tile_layout& layout, const encoded_view& output);

  /// Replaces the counts in table entries [begin, end) by locations.
  void place(std::int64_t begin, std::int64_t end) noexcept;
  /// To be called after all tiles: claims the regions and places what did not fit the slot. Returns true if
  /// there were such tiles.
  bool place_overflow() noexcept;

  /// Where the payload of a placed tile goes; null for a tile that is never stored, or not placed yet.
  std::uint8_t* payload(std::int64_t tile) const noexcept;
  bool in_slot(std::int64_t tile) const noexcept;
  /// Marks a placed tile as never stored: its payload does not exist.
  void lose(std::int64_t tile) noexcept;
  std::uint32_t* table() const noexcept { return table_; }
  std::uint64_t cursor() const noexcept { return cursor_; }
  std::uint64_t slot_end() const noexcept { return slot_end_; }
  /// Others have placed the first tiles, of so many non-zeros, up to `cursor`.
  void placed(std::uint64_t cursor, std::uint64_t nonzeros) noexcept {
    cursor_ = cursor;
    nonzeros_ += nonzeros;
  }
  /// Updates the report. To be called last.
  void report() const noexcept;

 private:
  /// Claims `needed` bytes of a region for the tiles that have no location yet. Returns the bytes of those
  /// that still have none.
  std::uint64_t place_region(tile_location where, std::uint64_t* claimed, std::uint64_t bytes,
                             std::uint64_t needed) noexcept;

  const tile_layout& layout_;
  const encoded_view& output_;
  std::uint32_t* table_;
  std::uint64_t slot_end_;
  std::uint64_t cursor_;
  std::uint64_t nonzeros_ = 0;
  std::uint64_t overflow_ = 0;
};

/// Of one tile: csr's f32 values with their columns.
inline constexpr std::size_t most_payload_bytes = tile_elements * 5;
/// Bytes that may be written past a payload that both() writes.
inline constexpr std::size_t write_slack = 64;

/// How many of the values [first, first + length) are not +0; length <= tile_elements.
std::int64_t count_values(const const_tensor_view& input, std::int64_t first, std::int64_t length) noexcept;

/// Pads a payload of `size` bytes.
inline void pad_payload(std::uint8_t* payload, std::size_t size) noexcept {
  std::memset(payload + size, 0, pad16(size) - size);
}

// --- reading ---------------------------------------------------------------------------------------------

/// The payload of a tile with `count` > 0 non-zeros, or null and the reason in `status`.
const std::uint8_t* find_payload(const tile_layout& layout, const const_encoded_view& input,
                                 std::int64_t tile, std::int64_t count, std::uint32_t& status) noexcept;

/// True if so many bytes from a payload on are in the slot: vectors read beyond the last value.
bool lies_in_slot(const const_encoded_view& input, const std::uint8_t* payload, std::size_t bytes) noexcept;

/// The `count` values of a payload as f32 that expand() can read: in place, or in `buffer` of
/// tile_elements + packed_slack values.
const float* packed_values(const tile_layout& layout, const const_encoded_view& input,
                           const std::uint8_t* payload, std::int64_t count, float* buffer) noexcept;

/// What one tile of a bitmap or csr says.
struct tile_contents {
  std::int64_t count = 0;
  std::uint32_t status = status_ok;  ///< with any bit set there are no non-zeros
};

/// Decodes one tile. `values` receives all `length` values, exactly as stored or widened; `present`, if not
/// null, one bit per element that has a value (tile_elements / 8 bytes; bits past the last element mean
/// nothing). On an error all values are +0 and nothing is present. Those of csr go to the caches in any case.
tile_contents decode_tile(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                          float* values, std::uint8_t* present,
                          destination to = destination::caches) noexcept;
/// Only which elements have a value; payloads of a bitmap are not looked at.
tile_contents decode_presence(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                              std::uint8_t* present) noexcept;
/// How many non-zeros a tile has, or status_corrupt.
tile_contents count_tile(const tile_layout& layout, const const_encoded_view& input,
                         std::int64_t tile) noexcept;

}  // namespace stash::encoders
