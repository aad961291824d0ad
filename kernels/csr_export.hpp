#pragma once
/// \file
/// From csr to the form that sparse libraries take: sizes of rows, their offsets, and every value with its
/// column.

#include <cstdint>

#include "tiles_decode.hpp"

namespace stash::kernels {

/// Where csr_export32() writes. `capacity` is the room for columns and values.
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
struct place_row {
  device_tiles job;
  device_csr32 out;

  STASH_DEVICE void operator()(std::uint64_t row, std::uint64_t before, std::uint32_t own) const {
    out.row_offsets[row + 1] = static_cast<std::uint32_t>(before + own);
  }
  STASH_DEVICE void finish(std::uint64_t total) const {
    const bool fits = total <= out.capacity && total <= 0xffffffffU;
    // Another first offset than 0 tells the next kernel that there is no room.
    out.row_offsets[0] = fits ? 0 : 0xffffffffU;
    if (!fits) atomic_or(&job.report->status, static_cast<std::uint32_t>(status_capacity));
  }
};

/// Writes columns and values. What cannot be read leaves zeros. Grid: a block for every tile_warps tiles.
template <class Element, bool Narrow>
STASH_KERNEL(tile_threads)
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
  tile_seen seen;
  see_tile<Element, Narrow, true>(job, tile, true, image, marks + warp * mark_vectors, seen);
  const std::uint64_t first_row = tile * tile_rows;
  const std::uint64_t end_row = first_row + tile_rows < job.rows() ? first_row + tile_rows : job.rows();
  const std::uint64_t begin = out.row_offsets[first_row];
  const std::uint64_t end = out.row_offsets[end_row];
  auto* const values = static_cast<Element*>(out.values);

  // Ranks close the gaps that columns which came twice leave.
  tile_bits packed = seen.bits;
  rank_bits(packed);
  const std::uint32_t listed = packed.count();
  for (std::uint64_t i = begin + listed + lane; i < end; i += warp_lanes) {
    out.columns[i] = 0;
    values[i] = Element{0};
  }
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    const packed_group<Element> dense =
        group_of_image<Element, Narrow>(job, image, seen.bits.byte[r], seen.bits.rank[r]);
    for_each_set(packed.byte[r], packed.rank[r], [&](unsigned i, std::uint32_t rank) {
      out.columns[begin + rank] = lane * group_elements + i;
      values[begin + rank] = dense.value(i);
    });
  }
}

}  // namespace stash::kernels
