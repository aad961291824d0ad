#pragma once
/// \file
/// Forward max pooling of bands (pool_bands.hpp).

#include <cstdint>

#include "pool_bands_search.hpp"
#include "pool_codes.hpp"

namespace stash::kernels {

/// A staged code: the cell, and whether the gradient passes.
inline constexpr std::uint32_t staged_pass = 16;
template <class Bits>
STASH_DEVICE std::uint8_t staged_code(const pool_job& job, float rank, std::uint32_t cell) {
  const bool pass = passes(element_of<Bits>(rank), job.type, job.nan_wins);
  return static_cast<std::uint8_t>(cell + (pass ? staged_pass : 0U));
}

/// Eight codes of a stretch, of windows with codes of `Width` bits, and zeros behind the last one. `staged`:
/// a byte each. `first`: the number of the first one, of `values` in all.
template <unsigned Width>
STASH_DEVICE void store_staged_codes(std::uint64_t values, const pool_planes& planes, std::uint64_t first,
                                     const std::uint32_t* staged) {
  const std::uint64_t group = first / group_elements;
  const unsigned length = group_length(values, group);
  std::uint32_t cells[2], passing[2], chosen[2];
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned left = length < 4 * i ? 0 : length - 4 * i;
    const std::uint32_t there = left >= 4 ? 0xffffffffU : (1U << 8 * left) - 1;
    const std::uint32_t word = staged[i] & there;
    passing[i] = word / staged_pass & 0x01010101U;
    cells[i] = word & 0x0f0f0f0fU;
    // All bits of the codes that pass.
    const std::uint32_t kept = passing[i] * no_gradient;
    chosen[i] = Width == 4 ? cells[i] | (~kept & 0x0f0f0f0fU & there) : cells[i] & kept;
  }
  if (planes.index.data != nullptr) store_word(planes.index, group, packed_bytes<Width>(cells[0], cells[1]));
  if (planes.code.data != nullptr) store_word(planes.code, group, packed_bytes<Width>(chosen[0], chosen[1]));
  if (planes.gradient.data != nullptr)
    store_word(planes.gradient, group, packed_bytes<1>(passing[0], passing[1]));
  if (group == 0) report_planes(planes);
}

/// Values and codes of a block's stretch with all rules, one after the other.
template <class Bits>
STASH_DEVICE void find_band_maxima_with_care(const pool_job& job, bool relu, const band_stretch& stretch,
                                             const void* x, Bits* values, std::uint8_t* codes) {
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank(); at < stretch.count; at += band_threads) {
    const auto o = place_in_map<1, std::int32_t>(job, stretch.first + at, job.depth.by_out, job.rows.by_out,
                                                 job.columns.by_out);
    maxima<1> one;
    const std::uint32_t first_cell = find_maxima<Bits, 1>(job, x, 1, o, one);
    if (relu) rectify_maxima<Bits, 1>(job, first_cell, one);
    values[at] = element_of<Bits>(one.rank[0]);
    codes[at] = staged_code<Bits>(job, one.rank[0], one.cell[0]);
  }
}

/// pool_forward() for windows of Kernel x Kernel that lie Stride apart. Grid: blocks for all stretches of y,
/// and for the padding of the planes.
template <class Bits, unsigned Kernel, unsigned Stride>
STASH_KERNEL(band_threads, tuning::band_blocks)
pool_forward_bands(pool_job job, band_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  using search_type = band_search<Bits, Kernel, Stride>;
  constexpr band_pieces pieces = forward_band<Stride>;
  STASH_SHARED(vector16, band, pieces.read + slack_pieces);
  STASH_SHARED(vector16, made, pieces.made + slack_pieces);
  STASH_SHARED(vector16, made_codes, pieces.made / sizeof(Bits) + slack_pieces);
  STASH_SHARED(std::uint32_t, notes, band_threads / warp_lanes);
  auto* const values = reinterpret_cast<Bits*>(made);
  auto* const codes = reinterpret_cast<std::uint8_t*>(made_codes);
  const band_stretch stretch(grid, job.columns.by_out, job.rows.by_out);
  if (stretch.count > 0) {
    const band_windows wanted{static_cast<std::int64_t>(stretch.first), stretch.count, stretch.plane,
                              stretch.row, stretch.column};
    const shared_band in_band = search_type::band_of(job, wanted);
    note_care(notes, is_nan_sum<Bits>(in_band.load<Bits>(x, grid.read_values, band)));
    sync_block();
    if (any_care(notes)) {
      find_band_maxima_with_care<Bits>(job, relu, stretch, x, values, codes);
    } else {
      search_band<search_type>(
          job, grid.search, wanted, band, in_band,
          [&](std::uint32_t at, std::uint32_t columns, const search_type& search,
              typename search_type::row_maxima& found) {
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
            for (unsigned i = 0; i < search_type::columns; ++i) {
              if (at + i >= stretch.count || i >= columns) continue;
              values[at + i] = element_of_words<Bits>(found.value, i);
              codes[at + i] = static_cast<std::uint8_t>(element_of_words<Bits>(found.cell, i));
            }
          });
    }
  }
  sync_block();
  store_band<Bits, pieces.made>(stretch, made, y);
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank() * group_elements; at < grid.block_values;
       at += band_threads * group_elements)
    store_staged_codes<square_cell_bits<Kernel>>(grid.values, planes, stretch.first + at,
                                                 reinterpret_cast<const std::uint32_t*>(made_codes) + at / 4);
}

}  // namespace stash::kernels
