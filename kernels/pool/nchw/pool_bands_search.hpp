// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maxima of windows in a band of x (pool_bands.hpp). What lies outside of x never wins.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_bands_apart.hpp"
#include "pool/nchw/pool_bands_around.hpp"

namespace stash::kernels {

/// The search for windows of Kernel x Kernel that lie Stride apart.
template <class Bits, unsigned Kernel, unsigned Stride>
using band_search = std::conditional_t<Stride == 1, around_search<Bits>, apart_search<Bits, Kernel>>;

/// Calls each(number among the wanted windows, columns from there on that are the thread's, search, maxima)
/// for all rows of windows of this thread's.
template <class Search, class Each>
STASH_DEVICE void search_band(const pool_job& job, const band_walk& walk, const band_windows& wanted,
                              const vector16* band, const shared_band& in_band, const Each& each) {
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < walk.units; unit += band_threads) {
    const band_place place(walk, wanted, job.columns.by_out, job.rows.by_out, unit);
    if (place.rows == 0) continue;
    std::uint32_t at = place.at;
    Search search(job, band, in_band, wanted, place);
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < place.rows; row += Search::unrolled) {
      STASH_UNROLL
      for (unsigned k = 0; k < Search::unrolled; ++k) {
        if (row + k >= place.rows) break;
        typename Search::row_maxima found = search.find(k);
        each(at, place.columns, search, found);
        at += static_cast<std::uint32_t>(job.columns.out);
      }
    }
  }
}

}  // namespace stash::kernels
