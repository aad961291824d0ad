// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling in column tiles (pool_column_tiles.hpp).

#include <cstdint>

#include "pool/nchw/pool_column_tiles.hpp"
#include "pool/nchw/pool_vec16_forward.hpp"

namespace stash::kernels {

/// Rows of a column tile whose bit is set (their number % 32), with all rules. It is a function of its own so
/// that nothing is held for it.
template <class Bits>
STASH_DEVICE void pool_column_with_care(const pool_job& job, const column_tile_grid& grid, bool relu,
                                        const void* x, void* y, const pool_planes& planes, std::uint32_t unit,
                                        std::uint32_t careful) {
  constexpr unsigned length = vec16_elements<Bits>;
  const row_vec16 position = column_tile_position(grid, unit);
  const std::uint64_t first =
      std::uint64_t{position.plane} * grid.y_plane + static_cast<std::uint32_t>(position.vec16) * length;
  STASH_NO_UNROLL
  for (std::int32_t row = position.row; careful != 0; ++row) {
    const std::uint32_t bit = 1U << row % 32;
    if ((careful & bit) == 0) continue;
    careful &= ~bit;
    const std::uint64_t at =
        first + static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(job.columns.out);
    const map_position<std::int32_t> o{
        position.plane, 0, 0, 0, row, position.vec16 * static_cast<std::int32_t>(length)};
    pool_vec16_with_care<Bits, length>(job, relu, x, y, planes, o, at);
  }
}

/// pool_forward() for windows of 3 x 3 with stride 1, a column of padding before x. Grid: threads for all
/// column tiles of y.
template <class Bits>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_column_tiles(pool_job job, column_tile_grid grid, bool relu, const void* x, void* y,
                          pool_planes planes) {
  begin_kernel();
  constexpr unsigned length = vec16_elements<Bits>;
  using search_type = column_tile_search<Bits, length>;
  const std::uint32_t unit = thread_unit();
  if (unit >= grid.units) return;
  if (unit == 0) {
    report_planes(planes);
    pad_plane(planes.index, job.y_units);
    pad_plane(planes.code, job.y_units);
  }
  const row_vec16 position = column_tile_position(grid, unit);
  const auto rows = static_cast<std::int32_t>(job.rows.out), pad = static_cast<std::int32_t>(job.rows.pad);
  const auto width = static_cast<std::uint32_t>(job.columns.out);
  const std::int32_t below = position.row + static_cast<std::int32_t>(grid.rows);
  const std::int32_t end = below < rows ? below : rows;
  const std::uint64_t first =
      std::uint64_t{position.plane} * grid.y_plane + static_cast<std::uint32_t>(position.vec16) * length;
  search_type search(job, grid, x, position, position.row - pad, end - pad + 2);
  std::uint32_t careful = 0;  // rows that are to be searched with care, a bit each: number % 32
  STASH_NO_UNROLL
  for (std::int32_t row = position.row; row < end; row += 2) {
    typename search_type::row_maxima found[2];
    search.find(row - pad, {0, 0}, found);
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      const std::int32_t own = row + static_cast<std::int32_t>(r);
      if (own >= end) break;
      if (search.needs_care(1 - r, 3)) {
        careful |= 1U << own % 32;
        continue;
      }
      typename search_type::row_maxima chosen = found[r];
      if (relu) {
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w) {
          const std::uint32_t kept = positive_masks<Bits>(found[r].value[w]);
          found[r].value[w] &= kept;
          found[r].tap[w] = select_bits(kept, found[r].tap[w], search.first_taps(own - pad, w));
          chosen.tap[w] = select_bits(kept, found[r].tap[w], chosen.number(no_gradient));
        }
      }
      const std::uint64_t at = first + wide_product(static_cast<std::uint32_t>(own), width);
      const std::uint32_t(&value)[4] = found[r].value;
      store_vector(reinterpret_cast<vector16*>(static_cast<Bits*>(y) + at),
                   {{value[0], value[1], value[2], value[3]}});
      store_vec16_codes<length>(planes.index, at, found[r].codes());
      store_vec16_codes<length>(planes.code, at, chosen.codes());
    }
  }
  if (careful != 0) pool_column_with_care<Bits>(job, grid, relu, x, y, planes, anew(unit), careful);
}

}  // namespace stash::kernels
