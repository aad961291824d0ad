// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From csr to the form that sparse libraries take: sizes of rows, their offsets, and every value with its
/// column.

#include <cstdint>

#include "tiles/tiles_decode.hpp"

namespace stash::kernels {

/// Where csr_export32() writes. `capacity` is the space for columns and values.
struct device_csr32 {
  std::uint32_t* row_offsets;
  std::uint32_t* columns;
  void* values;
  std::uint64_t capacity;
};

/// Leaves the size of row r in row_offsets[r + 1]. Grid: a thread for every tile.
STASH_KERNEL(tile_threads) measure_rows(device_tiles job, device_csr32 out) {
  begin_kernel();
  const std::uint64_t tile = block_rank() * tile_threads + thread_rank();
  if (tile >= job.tiles()) return;
  row_counts rows;
  read_row_ends(job, tile, rows);
  if (!rows.legal) atomic_or(&job.report->status, static_cast<std::uint32_t>(status_corrupt));
  std::uint32_t before = 0;
  for (unsigned r = 0; r < tile_rows && tile * tile_rows + r < job.rows(); ++r) {
    out.row_offsets[tile * tile_rows + r + 1] = rows.legal ? rows.end[r] - before : 0;
    before = rows.end[r];
  }
}

/// From a row's size to the offset of the next one.
struct store_row_offset {
  device_tiles job;
  device_csr32 out;

  STASH_DEVICE void operator()(std::uint64_t row, std::uint64_t before, std::uint32_t own) const {
    out.row_offsets[row + 1] = static_cast<std::uint32_t>(before + own);
  }
  STASH_DEVICE void finish(std::uint64_t total) const {
    const bool fits = total <= out.capacity && total <= 0xffffffffU;
    // Another first offset than 0 tells the next kernel that there is no space.
    out.row_offsets[0] = fits ? 0 : 0xffffffffU;
    if (!fits) atomic_or(&job.report->status, static_cast<std::uint32_t>(status_capacity));
  }
};

/// Copies what a warp has in shared memory, lanes next to each other: lanes that wrote their own entries
/// would touch a sector of memory for each.
template <class From, class To>
STASH_DEVICE void copy_out(const From* from, std::uint32_t count, To* to) {
  for (std::uint32_t i = thread_rank() % warp_lanes; i < count; i += warp_lanes)
    to[i] = from[i];
}

/// Writes columns and values. What cannot be read leaves zeros. Grid: a block for every tile_warps tiles.
template <class Element, bool Narrow>
STASH_KERNEL(tile_threads, tuning::list_blocks)
list_entries(device_tiles job, device_csr32 out) {
  begin_kernel();
  constexpr unsigned bytes = image_bytes<Element, true>;
  STASH_SHARED(vector16, images, tile_warps * bytes / 16);
  STASH_SHARED(vector16, marks, tile_warps * mark_vectors);
  const unsigned warp = thread_rank() / warp_lanes;
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint64_t tile = block_rank() * tile_warps + warp;
  if (tile >= job.tiles() || out.row_offsets[0] != 0) return;
  vector16* const image = images + warp * (bytes / 16);
  vector16* const own_marks = marks + warp * mark_vectors;
  tile_seen seen;
  see_tile<Element, Narrow, true>(job, tile, true, image, own_marks, seen);
  const std::uint64_t first_row = tile * tile_rows;
  const std::uint64_t end_row = first_row + tile_rows < job.rows() ? first_row + tile_rows : job.rows();
  const std::uint64_t begin = out.row_offsets[first_row];
  const std::uint64_t end = out.row_offsets[end_row];
  std::uint32_t* const columns = out.columns + begin;
  Element* const values = static_cast<Element*>(out.values) + begin;

  // Ranks close the gaps that columns which came twice leave.
  tile_bits packed = seen.bits;
  rank_bits(packed);
  const std::uint32_t listed = packed.count();
  for (std::uint64_t i = listed + lane; i < end - begin; i += warp_lanes) {
    columns[i] = 0;
    values[i] = Element{0};
  }
  // The marks have been looked at: their memory takes columns, a byte for each, and then values.
  auto* const of_columns = reinterpret_cast<std::uint8_t*>(own_marks);
  sync_warp();
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    for_each_set(packed.byte[r], packed.rank[r], [&](unsigned i, std::uint32_t rank) {
      of_columns[rank] = static_cast<std::uint8_t>(lane * group_elements + i);
    });
  }
  sync_warp();
  if ((!Narrow || !come_as_codes(job)) && listed == seen.count) {
    // With no gap values lie as they are listed.
    const auto* const elements = reinterpret_cast<const Element*>(image);
    for (std::uint32_t i = lane; i < listed; i += warp_lanes) {
      columns[i] = of_columns[i];
      values[i] = elements[i];
    }
    return;
  }
  copy_out(of_columns, listed, columns);
  auto* const of_row = reinterpret_cast<Element*>(own_marks);
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    const packed_group<Element> dense =
        group_of_image<Element, Narrow>(job, image, seen.bits.byte[r], seen.bits.rank[r]);
    const std::uint32_t first = r == 0 ? 0 : packed.row_end[r - 1];
    sync_warp();
    for_each_set(packed.byte[r], packed.rank[r] - first, [&](unsigned i, std::uint32_t rank) {
      of_row[rank] = static_cast<Element>(dense.value(i));
    });
    sync_warp();
    copy_out(of_row, packed.row_end[r] - first, values + first);
  }
}

}  // namespace stash::kernels
