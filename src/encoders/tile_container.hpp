// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The tile container of bitmap and csr (docs/format.md): a fixed part that says where values stood, a table
/// with one entry per tile, and payloads in the slot, the overflow arena or the host overflow.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "detail.hpp"
#include "value_codec.hpp"

namespace stash::detail {

/// Bits 31..30 of a table entry; bits 29..0 are an offset in units of 16 bytes.
enum class place_kind : std::uint32_t { slot = 0, arena = 1, host = 2, never_stored = 3 };

/// Sizes of one encoded tensor.
struct tile_layout {
  value_codec values;
  bool columns = false;  ///< csr: payloads end with a byte per value
  std::int64_t elements = 0;
  std::size_t table_offset = 0;  ///< behind bitmap's mask plane or csr's row ends

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
/// the host overflow behind it, are known only when all others are, because their pieces are claimed at once.
class tile_placer {
 public:
  tile_placer(const tile_layout& layout, const encoded_view& output);

  /// Replaces the counts in table entries [begin, end) by places.
  void place(std::int64_t begin, std::int64_t end) noexcept;
  /// Where the next tile's payload would lie, if whatever it is fits the slot, and write_slack more; or null.
  std::uint8_t* room() const noexcept;
  /// To be called after all tiles: claims the pieces and places what did not fit the slot. Returns true if
  /// there were such tiles.
  bool place_overflow() noexcept;

  /// Where the payload of a placed tile goes; null for a tile that is never stored, or not placed yet.
  std::uint8_t* payload(std::int64_t tile) const noexcept;
  bool in_slot(std::int64_t tile) const noexcept;
  /// Marks a placed tile as never stored: its payload does not exist.
  void lose(std::int64_t tile) noexcept;
  std::uint32_t* table() const noexcept { return table_; }
  /// Updates the report. To be called last.
  void report() const noexcept;

 private:
  /// Claims `wanted` bytes of a region for the tiles that have no place yet. Returns the bytes of those that
  /// still have none.
  std::uint64_t place_piece(place_kind where, std::uint64_t* claimed, std::uint64_t bytes,
                            std::uint64_t wanted) noexcept;

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
/// Bytes that may be written behind a payload that both() writes.
inline constexpr std::size_t write_slack = 64;

/// Threads take their turns at something, in the order of what they do.
class turns {
 public:
  /// The number of what to do next. All before it are being done, or done.
  std::int64_t take() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }
  /// Waits until end() was called for all numbers before this one.
  void begin(std::int64_t number) noexcept;
  void end(std::int64_t number) noexcept { current_.store(number + 1, std::memory_order_release); }

 private:
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::int64_t> current_{0};
};

/// encode_tiles() by several threads: each encodes some tiles on its stack, takes its turn to place them, and
/// copies them there. So memory is read once, in whatever order threads come. both(tile, payload) is what
/// encode_tiles() says.
template <class Both>
void encode_in_turns(const tile_layout& layout, tile_placer& placer, const execution_context& context,
                     const Both& both) {
  constexpr int at_once = 16;
  const std::int64_t tiles = layout.tiles();
  turns order;
  parallel_for(context, (tiles + at_once - 1) / at_once, 4, [&](std::int64_t from, std::int64_t to) {
    alignas(64) std::uint8_t payloads[at_once * most_payload_bytes + write_slack];
    std::array<std::size_t, std::size_t{at_once + 1}> starts{};
    for (std::int64_t i = from; i < to; ++i) {
      const std::int64_t number = order.take();
      const std::int64_t begin = number * at_once;
      const std::int64_t end = std::min(tiles, begin + at_once);
      for (std::int64_t tile = begin; tile < end; ++tile) {
        std::size_t* const at = starts.data() + (tile - begin);
        const std::int64_t nonzeros = both(tile, payloads + at[0]);
        placer.table()[tile] = static_cast<std::uint32_t>(nonzeros);
        at[1] = at[0] + pad16(layout.payload_bytes(nonzeros));
      }
      order.begin(number);
      placer.place(begin, end);
      order.end(number);
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::size_t* const at = starts.data() + (tile - begin);
        if (placer.in_slot(tile)) std::memcpy(placer.payload(tile), payloads + at[0], at[1] - at[0]);
      }
    }
  });
}

/// Encodes all tiles. count(tile, first, length) fills the tile's share of the fixed part and returns the
/// number of its non-zeros; write(tile, first, length, payload) writes the payload of a tile that has any,
/// and pads it. both(tile, first, length, payload) does the two at once, and may write write_slack more. All
/// run concurrently for different tiles.
template <class Count, class Write, class Both>
void encode_tiles(const tile_layout& layout, const encoded_view& output, const execution_context& context,
                  const Count& count, const Write& write, const Both& both) {
  const std::int64_t tiles = layout.tiles();
  tile_placer placer(layout, output);
  const auto call = [&](const auto& body, std::int64_t tile, auto... to) {
    return body(tile, tile * tile_elements, layout.length(tile), to...);
  };
  if (context.parallel_for == nullptr) {
    in_default_rounding([&] {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        std::uint8_t* const room = placer.room();
        placer.table()[tile] = room != nullptr ? call(both, tile, room) : call(count, tile);
        placer.place(tile, tile + 1);
        if (room == nullptr && placer.in_slot(tile)) call(write, tile, placer.payload(tile));
      }
    });
  } else {
    encode_in_turns(layout, placer, context,
                    [&](std::int64_t tile, std::uint8_t* payload) { return call(both, tile, payload); });
  }
  if (placer.place_overflow()) {
    parallel_for(context, tiles, 32, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t tile = from; tile < to; ++tile) {
        if (placer.in_slot(tile)) continue;
        if (std::uint8_t* const payload = placer.payload(tile); payload != nullptr)
          call(write, tile, payload);
      }
    });
  }
  placer.report();
}

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
/// null, one bit per element that has a value (tile_elements / 8 bytes; bits behind the last element mean
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

}  // namespace stash::detail
