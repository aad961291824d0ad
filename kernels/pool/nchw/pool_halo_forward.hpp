// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling in halo tiles (pool_halo_tiles.hpp).

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_halo_search.hpp"
#include "pool/pool_codes.hpp"

namespace stash::kernels {

/// A staged code: the tap, and whether the gradient passes.
inline constexpr std::uint32_t staged_pass = 16;
template <class Bits>
STASH_DEVICE std::uint8_t staged_code(const pool_job& job, float rank, std::uint32_t tap) {
  const bool pass = passes(element_of<Bits>(rank), job.type, job.nan_wins);
  return static_cast<std::uint8_t>(tap + (pass ? staged_pass : 0U));
}

/// Eight codes of `Width` bits at group `group` of a plane, if it has that group.
template <unsigned Width>
STASH_DEVICE void store_packed(const code_plane& plane, std::uint64_t group, std::uint32_t codes) {
  using code_word = std::conditional_t<Width == 4, std::uint32_t,
                                       std::conditional_t<Width == 2, std::uint16_t, std::uint8_t>>;
  if (group * Width < plane.bytes)
    reinterpret_cast<code_word*>(plane.data)[group] = static_cast<code_word>(codes);
}

/// What is staged after the last value: whatever the plane, its code is zero.
template <unsigned Width>
inline constexpr std::uint32_t staged_padding = Width == 4 ? staged_pass : 0;

/// Eight codes of a tile, of windows with codes of `Width` bits.
template <unsigned Width>
STASH_DEVICE void store_staged_codes(const pool_planes& planes, std::uint64_t group, const vector8& staged) {
  std::uint32_t taps[2];
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i)
    taps[i] = staged.word[i] & 0x0f0f0f0fU;
  if (planes.index.data != nullptr)
    store_packed<Width>(planes.index, group, packed_codes<Width>(taps[0], taps[1]));
  if (planes.code.data == nullptr) return;
  std::uint32_t passing[2], chosen[2];
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    passing[i] = staged.word[i] / staged_pass & 0x01010101U;
    // All bits of the codes that pass.
    const std::uint32_t kept = passing[i] * no_gradient;
    chosen[i] = Width == 4 ? taps[i] | (~kept & 0x0f0f0f0fU) : taps[i] & kept;
  }
  store_packed<Width>(planes.code, group, packed_codes<Width>(chosen[0], chosen[1]));
  if (planes.gradient.data != nullptr)
    store_packed<1>(planes.gradient, group, packed_codes<1>(passing[0], passing[1]));
}

/// Values and codes of a block's tile with all rules, one after the other.
template <class Bits>
STASH_DEVICE void find_halo_maxima_with_care(const pool_job& job, bool relu, const out_tile& tile,
                                             const void* x, Bits* values, std::uint8_t* codes) {
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank(); at < tile.count; at += halo_threads) {
    const auto o = position_in_map<1, std::int32_t>(job, tile.first + at, job.depth.by_out, job.rows.by_out,
                                                    job.columns.by_out);
    maxima<1> one;
    const std::uint32_t first_tap = find_maxima<Bits, 1>(job, x, 1, o, one);
    if (relu) rectify_maxima<Bits, 1>(job, first_tap, one);
    values[at] = element_of<Bits>(one.rank[0]);
    codes[at] = staged_code<Bits>(job, one.rank[0], one.tap[0]);
  }
}

/// pool_forward() for windows of Kernel x Kernel with stride Stride. Grid: blocks for all tiles of y, and for
/// the padding of the planes.
template <class Bits, unsigned Kernel, unsigned Stride>
STASH_KERNEL(halo_threads, tuning::halo_blocks)
pool_forward_halo_tiles(pool_job job, halo_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  using search_type = halo_search<Bits, Kernel, Stride>;
  constexpr halo_capacity capacity = forward_halo<Stride>;
  STASH_SHARED(vector16, halo, capacity.read);
  STASH_SHARED(vector16, made, capacity.made + 2 * slack_vec16s);
  STASH_SHARED(vector16, made_codes, capacity.made / sizeof(Bits) + 2 * slack_vec16s);
  STASH_SHARED(std::uint32_t, notes, halo_threads / warp_lanes);
  auto* const values = reinterpret_cast<Bits*>(made + slack_vec16s);
  auto* const codes = reinterpret_cast<std::uint8_t*>(made_codes + slack_vec16s);
  const out_tile tile(grid, job.columns.by_out, job.rows.by_out);
  if (tile.count > 0) {
    const halo_windows windows{static_cast<std::int64_t>(tile.first), tile.count, tile.plane, tile.row,
                               tile.column};
    const shared_halo in_halo = search_type::halo_of(job, windows);
    note_care(notes, is_nan_sum<Bits>(in_halo.load<Bits, capacity.read>(x, grid.read_values, halo)));
    sync_block();
    if (any_care(notes)) {
      find_halo_maxima_with_care<Bits>(job, relu, tile, x, values, codes);
    } else {
      search_halo<search_type>(
          job, grid.search, windows, halo, in_halo,
          [&](std::uint32_t at, std::uint32_t columns, const search_type& search,
              typename search_type::row_maxima& found) {
            if (relu) {
              STASH_UNROLL
              for (unsigned w = 0; w < halo_words<Bits>; ++w) {
                const std::uint32_t kept = positive_masks<Bits>(found.value[w]);
                found.value[w] &= kept;
                found.tap[w] =
                    select_bits(kept, found.tap[w] + found.number(staged_pass), search.first_taps(w));
              }
            }
            // A group of columns of which the tile has a part.
            constexpr unsigned others = halo_columns - 1;
            if (at + others >= tile.count + others) return;
            Bits* const to = values + static_cast<std::int32_t>(at);
            std::uint8_t* const to_codes = codes + static_cast<std::int32_t>(at);
            STASH_UNROLL
            for (unsigned i = 0; i < halo_columns; ++i) {
              if (i >= columns) break;
              to[i] = element_of_words<Bits>(found.value, i);
              to_codes[i] = static_cast<std::uint8_t>(element_of_words<Bits>(found.tap, i));
            }
          });
    }
  }
  constexpr unsigned width = square_tap_bits<Kernel>;
  if (tile.count < grid.block_values) {
    // What others have written there is after their last value.
    sync_block();
    STASH_NO_UNROLL
    for (std::uint32_t at = tile.count + thread_rank(); at < grid.block_values; at += halo_threads)
      codes[at] = staged_padding<width>;
  }
  sync_block();
  store_out_tile<Bits, capacity.made>(tile, made + slack_vec16s, y);
  const std::uint64_t first_group = tile.first / group_elements;
  STASH_NO_UNROLL
  for (std::uint32_t group = thread_rank(); group < grid.block_values / group_elements; group += halo_threads)
    store_staged_codes<width>(planes, first_group + group, reinterpret_cast<const vector8*>(codes)[group]);
  if (block_rank() == 0 && thread_rank() == 0) report_planes(planes);
}

}  // namespace stash::kernels
