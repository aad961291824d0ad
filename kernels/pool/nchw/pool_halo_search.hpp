// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maxima of windows in a halo tile of x (pool_halo_tiles.hpp). What lies outside of x never wins.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_halo_stride1.hpp"
#include "pool/nchw/pool_halo_stride2.hpp"

namespace stash::kernels {

/// The search for windows of Kernel x Kernel with stride Stride.
template <class Bits, unsigned Kernel, unsigned Stride>
using halo_search = std::conditional_t<Stride == 1, stride1_search<Bits>, stride2_search<Bits, Kernel>>;

/// Calls each(number among the windows, columns from there on that are the thread's, search, maxima) for all
/// rows of windows of this thread's.
template <class Search, class Each>
STASH_DEVICE void search_halo(const pool_job& job, const halo_walk& walk, const halo_windows& windows,
                              const vector16* halo, const shared_halo& in_halo, const Each& each) {
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < walk.units; unit += halo_threads) {
    const halo_position position(walk, windows, job.columns.by_out, job.rows.by_out, unit);
    if (position.rows == 0) continue;
    std::uint32_t at = position.at;
    Search search(job, halo, in_halo, windows, position);
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < position.rows; row += Search::unrolled) {
      STASH_UNROLL
      for (unsigned k = 0; k < Search::unrolled; ++k) {
        if (row + k >= position.rows) break;
        typename Search::row_maxima found = search.find(k);
        each(at, position.columns, search, found);
        at += static_cast<std::uint32_t>(job.columns.out);
      }
    }
  }
}

}  // namespace stash::kernels
