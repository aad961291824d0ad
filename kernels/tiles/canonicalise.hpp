// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The canonical form of a bitmap or csr, wherever its tiles lie: sizes, offsets in tile order, payloads. No
/// workspace: between the kernels the output's table holds what is known of each tile.

#include <cstdint>

#include "tiles/tiles_decode.hpp"

namespace stash::kernels {

/// Units of 16 bytes of a tile in the output's table, before it is placed.
template <bool Columns>
STASH_DEVICE std::uint32_t payload_units(const device_tiles& job, std::uint32_t count) {
  return (payload_bytes<Columns>(job, count) + 15) / 16;
}

/// Copies the fixed part but the table, without what may stand in its padding, and leaves every tile's size
/// in the output's table. Grid: a block for every tile_warps tiles.
template <bool Columns>
STASH_KERNEL(tile_threads)
measure_tiles(device_tiles from, device_tiles to) {
  begin_kernel();
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint64_t tile = block_rank() * tile_warps + thread_rank() / warp_lanes;
  if (tile >= from.tiles()) return;
  std::uint32_t count = 0;
  std::uint32_t status = status_ok;
  if constexpr (Columns) {
    row_counts rows;
    read_row_ends(from, tile, rows);
    if (rows.legal) {
      count = rows.end[tile_rows - 1];
    } else {
      status = status_corrupt;
    }
    const std::uint64_t row = tile * tile_rows + lane;
    if (lane < tile_rows && row < from.rows()) to.row_ends()[row] = from.row_ends()[row];
  } else {
    tile_seen seen;
    see_mask(from, tile, seen);
    count = seen.count;
    const std::uint64_t first = tile * (tile_rows * row_groups) + lane;
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r) {
      const std::uint64_t at = first + r * row_groups;
      if (at < to.table_offset) to.data[at] = static_cast<std::uint8_t>(seen.bits.byte[r]);
    }
  }
  if (lane == 0) {
    to.table()[tile] = payload_units<Columns>(to, count);
    atomic_add(&to.report->nonzeros, std::uint64_t{count});
    if (status != status_ok) atomic_or(&from.report->status, status);
    if (tile == 0 && (from.report->flags & flag_mask_is_not_sign) != 0) {
      atomic_or(&to.report->flags, static_cast<std::uint32_t>(flag_mask_is_not_sign));
    }
  }
  if (tile + 1 == to.tiles()) pad_fixed_part<Columns>(to);
}

/// From a tile's size to its entry.
struct store_tile_offset {
  device_tiles to;

  STASH_DEVICE void operator()(std::uint64_t tile, std::uint64_t before, std::uint32_t own) const {
    const std::uint64_t begin = to.fixed_bytes + before * 16;
    const bool fits = begin + std::uint64_t{own} * 16 <= to.slot_end || own == 0;
    to.table()[tile] = fits ? make_entry(entry_slot, begin) : make_entry(entry_never_stored, 0);
    if (!fits) atomic_or(&to.report->status, static_cast<std::uint32_t>(status_capacity));
  }
  /// `units` of all tiles.
  STASH_DEVICE void finish(std::uint64_t units) const {
    const std::uint64_t end = to.fixed_bytes + units * 16;
    atomic_add(&to.report->slot_bytes, end < to.slot_end ? end : to.slot_end);
  }
};

/// Copies the payloads of placed tiles. Those that cannot be read become tiles whose values are lost.
template <bool Columns>
STASH_KERNEL(tile_threads)
copy_payloads(device_tiles from, device_tiles to) {
  begin_kernel();
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint64_t tile = block_rank() * tile_warps + thread_rank() / warp_lanes;
  if (tile >= from.tiles()) return;
  std::uint32_t count = 0;
  if constexpr (Columns) {
    row_counts rows;
    read_row_ends(from, tile, rows);
    count = rows.legal ? rows.end[tile_rows - 1] : 0;
  } else {
    tile_seen seen;
    see_mask(from, tile, seen);
    count = seen.count;
  }
  const std::uint32_t entry = to.table()[tile];
  if (count == 0 || entry >> 30 != entry_slot) return;
  std::uint32_t status = status_ok;
  const std::uint32_t used = payload_bytes<Columns>(from, count);
  const std::uint8_t* payload = find_payload(from, tile, used, status);
  if (payload == nullptr) {
    sync_warp();  // all lanes have read the entry
    if (lane == 0) {
      atomic_or(&from.report->status, status);
      to.table()[tile] = make_entry(entry_never_stored, 0);
    }
    return;
  }
  const auto* source = reinterpret_cast<const vector16*>(payload);
  auto* const target = reinterpret_cast<vector16*>(to.data) + (entry & 0x3fffffff);
  for (std::uint32_t u = lane; u < (used + 15) / 16; u += warp_lanes) {
    vector16 v = load_once(source + u);
    // Padding of unknown origin need not be zero.
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      const std::uint32_t at = u * 16 + w * 4;
      const std::uint32_t left = used > at ? used - at : 0;
      if (left < 4) v.word[w] &= (1U << (8 * left)) - 1;
    }
    store_once(target + u, v);
  }
}

}  // namespace stash::kernels
