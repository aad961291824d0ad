#pragma once
/// \file
/// Forward max pooling of stacks (pool_stacks.hpp).

#include <cstdint>

#include "pool_pieces_forward.hpp"
#include "pool_stacks.hpp"

namespace stash::kernels {

/// Cells of a piece's windows in four bits each.
template <class Bits>
STASH_DEVICE std::uint32_t stack_codes(const std::uint32_t (&cell)[4]) {
  if constexpr (sizeof(Bits) == 4) {
    return (cell[0] | cell[1] << 4) | (cell[2] | cell[3] << 4) << 8;
  } else {
    const std::uint32_t first = cell[0] | cell[1] << 8, last = cell[2] | cell[3] << 8;
    return pick_bytes(first, last, 0x5410) | pick_bytes(first, last, 0x7632) << 4;
  }
}

/// Writes the codes of the windows of a piece, of which `first` is the first among all.
template <class Bits>
STASH_DEVICE void store_stack_codes(const code_plane& plane, std::uint64_t first, std::uint32_t codes) {
  if (plane.data == nullptr) return;
  if constexpr (piece_elements<Bits> == 4) {
    *reinterpret_cast<std::uint16_t*>(plane.data + first / 2) = static_cast<std::uint16_t>(codes);
  } else {
    *reinterpret_cast<std::uint32_t*>(plane.data + first / 2) = codes;
  }
}

/// Rows of a stack whose bit is set (their number % 32), with all rules. This is apart from the rest so that
/// nothing is held for it.
template <class Bits>
STASH_DEVICE void pool_stack_with_care(const pool_job& job, const stack_grid& grid, bool relu, const void* x,
                                       void* y, const pool_planes& planes, std::uint32_t unit,
                                       std::uint32_t careful) {
  constexpr unsigned length = piece_elements<Bits>;
  const row_piece place = place_of_stack(grid, unit);
  const std::uint64_t first =
      std::uint64_t{place.plane} * grid.y_plane + static_cast<std::uint32_t>(place.piece) * length;
  STASH_NO_UNROLL
  for (std::int32_t row = place.row; careful != 0; ++row) {
    const std::uint32_t bit = 1U << row % 32;
    if ((careful & bit) == 0) continue;
    careful &= ~bit;
    const std::uint64_t at =
        first + static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(job.columns.out);
    std::uint32_t cells = 0, chosen = 0;
    STASH_NO_UNROLL
    for (unsigned i = 0; i < length; ++i) {
      const auto column = place.piece * static_cast<std::int32_t>(length) + static_cast<std::int32_t>(i);
      const map_place<std::int32_t> o{place.plane, 0, 0, 0, row, column};
      maxima<1> one;
      const std::uint32_t first_cell = find_maxima<Bits, 1>(job, x, 1, o, one);
      if (relu) rectify_maxima<Bits, 1>(job, first_cell, one);
      const Bits value = element_of<Bits>(one.rank[0]);
      static_cast<Bits*>(y)[at + i] = value;
      cells |= one.cell[0] << (4 * i);
      chosen |= (passes(value, job.type, job.nan_wins) ? one.cell[0] : no_gradient) << (4 * i);
    }
    store_stack_codes<Bits>(planes.index, at, cells);
    store_stack_codes<Bits>(planes.code, at, chosen);
  }
}

/// pool_forward() for windows of 3 x 3 one apart, a column of padding before x. Grid: threads for all stacks
/// of y.
template <class Bits>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_stacks(pool_job job, stack_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  constexpr unsigned length = piece_elements<Bits>;
  using search_type = stack_search<Bits, length>;
  const std::uint32_t unit = piece_unit();
  if (unit >= grid.units) return;
  if (unit == 0) {
    report_planes(planes);
    pad_plane(planes.index, job.y_units);
    pad_plane(planes.code, job.y_units);
  }
  const row_piece place = place_of_stack(grid, unit);
  const auto rows = static_cast<std::int32_t>(job.rows.out), pad = static_cast<std::int32_t>(job.rows.pad);
  const auto width = static_cast<std::uint32_t>(job.columns.out);
  const std::int32_t below = place.row + static_cast<std::int32_t>(grid.rows);
  const std::int32_t end = below < rows ? below : rows;
  const std::uint64_t first =
      std::uint64_t{place.plane} * grid.y_plane + static_cast<std::uint32_t>(place.piece) * length;
  search_type search(job, grid, x, place, place.row - pad, end - pad + 2);
  std::uint32_t careful = 0;  // rows that are to be searched with care, a bit each: number % 32
  STASH_NO_UNROLL
  for (std::int32_t row = place.row; row < end; row += 2) {
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
      std::uint32_t chosen[4] = {found[r].cell[0], found[r].cell[1], found[r].cell[2], found[r].cell[3]};
      if (relu) {
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w) {
          const std::uint32_t kept = positive_masks<Bits>(found[r].value[w]);
          found[r].value[w] &= kept;
          found[r].cell[w] = select_bits(kept, found[r].cell[w], search.first_cells(own - pad, w));
          chosen[w] = select_bits(kept, chosen[w], found[r].number(no_gradient));
        }
      }
      const std::uint64_t at = first + wide_product(static_cast<std::uint32_t>(own), width);
      const std::uint32_t(&value)[4] = found[r].value;
      store_vector(reinterpret_cast<vector16*>(static_cast<Bits*>(y) + at),
                   {{value[0], value[1], value[2], value[3]}});
      store_stack_codes<Bits>(planes.index, at, stack_codes<Bits>(found[r].cell));
      store_stack_codes<Bits>(planes.code, at, stack_codes<Bits>(chosen));
    }
  }
  if (careful != 0) pool_stack_with_care<Bits>(job, grid, relu, x, y, planes, anew(unit), careful);
}

}  // namespace stash::kernels
