#pragma once
/// \file
/// Forward max pooling of bands (pool_bands.hpp).

#include <cstdint>

#include "pool_bands.hpp"
#include "pool_runs_forward.hpp"

namespace stash::kernels {

/// Leaves the values and codes of a block's stretch, row after row. `first`: where its first element is in
/// the band.
template <class Bits>
STASH_DEVICE void find_band_maxima(const pool_job& job, const band_grid& grid, bool relu,
                                   const band_stretch& stretch, const band_rows& wanted, const vector16* band,
                                   std::uint32_t first, vector16* values, vector16* codes) {
  using search_type = band_search<Bits>;
  constexpr unsigned per_word = 4 / sizeof(Bits);
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < grid.search.units; unit += band_threads) {
    const band_place<Bits> place(job, grid.search, stretch, wanted, unit);
    if (place.rows == 0) return;
    auto at = static_cast<std::uint32_t>(place.at);
    search_type search(band, first + at, place, stretch);
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < place.rows; row += 3) {
      STASH_UNROLL
      for (unsigned k = 0; k < 3; ++k) {
        if (row + k >= place.rows) break;
        typename search_type::row_maxima found;
        search.find(k, found);
        if (relu) {
          STASH_UNROLL
          for (unsigned w = 0; w < 2; ++w) {
            const std::uint32_t kept = positive_masks<Bits>(found.value[w]);
            found.value[w] &= kept;
            found.cell[w] =
                select_bits(kept, found.cell[w] + found.number(staged_pass), search.first_cells(w));
          }
        }
        STASH_UNROLL
        for (unsigned i = 0; i < band_columns<Bits>; ++i) {
          // Before the first window numbers are very large.
          if (at + i >= stretch.count || i >= place.columns) continue;
          reinterpret_cast<Bits*>(values)[at + i] =
              static_cast<Bits>(found.value[i / per_word] >> (8 * sizeof(Bits) * (i % per_word)));
          reinterpret_cast<std::uint8_t*>(codes)[at + i] =
              static_cast<std::uint8_t>(found.cell[i / per_word] >> (8 * sizeof(Bits) * (i % per_word)));
        }
        at += stretch.width;
      }
    }
  }
}

/// The same with all rules, one value after the other.
template <class Bits>
STASH_DEVICE void find_band_maxima_with_care(const pool_job& job, bool relu, const band_stretch& stretch,
                                             const void* x, vector16* values, vector16* codes) {
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank(); at < stretch.count; at += band_threads) {
    const auto o = place_in_map<1, std::int32_t>(job, stretch.first + at, job.depth.by_out, job.rows.by_out,
                                                 job.columns.by_out);
    maxima<1> one;
    const std::uint32_t first_cell = find_maxima<Bits, 1>(job, x, 1, o, one);
    if (relu) rectify_maxima<Bits, 1>(job, first_cell, one);
    reinterpret_cast<Bits*>(values)[at] = element_of<Bits>(one.rank[0]);
    reinterpret_cast<std::uint8_t*>(codes)[at] = staged_code<Bits>(job, one.rank[0], one.cell[0]);
  }
}

/// pool_forward() for windows of 3 x 3 one apart, a row and a column of padding on every side. Grid: blocks
/// for all stretches of y, and for the padding of the planes.
template <class Bits>
STASH_KERNEL(band_threads, tuning::band_blocks)
pool_forward_bands(pool_job job, band_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  STASH_SHARED(vector16, band, band_pieces + slack_pieces);
  STASH_SHARED(vector16, values, stretch_pieces + slack_pieces);
  STASH_SHARED(vector16, codes, most_stretch_values<Bits> / 16 + slack_pieces);
  STASH_SHARED(std::uint32_t, notes, band_threads / warp_lanes);
  const band_stretch stretch(job, grid);
  const band_rows wanted{stretch.count, stretch.row, stretch.column};
  const auto first = static_cast<std::int64_t>(stretch.first);
  const shared_band source = shared_band::of<Bits>(first - wanted.before(stretch),
                                                   stretch.count == 0 ? 0 : wanted.needed(job, stretch));
  note_care(notes, is_nan_sum<Bits>(source.load<Bits>(x, grid.values, band)));
  sync_block();
  if (any_care(notes)) {
    find_band_maxima_with_care<Bits>(job, relu, stretch, x, values, codes);
  } else {
    find_band_maxima<Bits>(job, grid, relu, stretch, wanted, band, source.place_of<Bits>(first), values,
                           codes);
  }
  sync_block();
  store_band<Bits>(stretch, values, y);
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank() * group_elements; at < grid.block_values;
       at += band_threads * group_elements) {
    store_staged_codes<4>(grid.values, planes, stretch.first + at,
                          reinterpret_cast<const std::uint32_t*>(codes) + at / 4);
  }
}

}  // namespace stash::kernels
