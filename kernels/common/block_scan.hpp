// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Running sums over an array in memory by a single block: for arrays of one word per tile or row, which are
/// short compared with the tensors that they describe.

#include <cstdint>

#include "common/simt.hpp"
#include "common/tuning.hpp"

namespace stash::kernels {

using tuning::scan_threads;
using tuning::scan_words;

/// Calls body(i, sum of get(0) .. get(i - 1), get(i)) for every i below `count` and returns the sum of all,
/// the same in every thread. What get() returns for 256 neighbours together fits 32 bits. The grid is one
/// block of scan_threads; `warp_sums` has a word of shared memory for each warp.
template <class Get, class Body>
STASH_DEVICE std::uint64_t scan_in_block(std::uint64_t count, std::uint64_t* warp_sums, const Get& get,
                                         const Body& body) {
  constexpr unsigned warps = scan_threads / warp_lanes;
  static_assert(warps == warp_lanes);  // a lane for the sum of each
  const unsigned lane = thread_rank() % warp_lanes;
  const unsigned warp = thread_rank() / warp_lanes;
  std::uint64_t before_round = 0;
  for (std::uint64_t base = 0; base < count; base += scan_threads * scan_words) {
    // A warp has neighbouring words, so that its lanes read and write neighbours each time.
    const std::uint64_t first = base + warp * (warp_lanes * scan_words) + lane;
    // Of the lane's words, those that lie this far after its first are there: what is compared has 32 bits.
    const std::uint64_t left = first < count ? count - first : 0;
    const auto there =
        static_cast<std::uint32_t>(left < warp_lanes * scan_words ? left : warp_lanes * scan_words);
    std::uint32_t own[scan_words];
    std::uint32_t sum[scan_words];  // up to and with the lane's word, from the warp's first
    STASH_UNROLL
    for (unsigned k = 0; k < scan_words; ++k) {
      const unsigned offset = k * warp_lanes;
      own[k] = offset < there ? get(first + offset) : 0;
    }
    std::uint32_t before_row = 0;
    STASH_UNROLL
    for (unsigned k = 0; k < scan_words; ++k) {
      sum[k] = own[k];
      STASH_UNROLL
      for (unsigned distance = 1; distance < warp_lanes; distance *= 2) {
        const std::uint32_t below = shuffle_up(all_lanes, sum[k], distance);
        if (lane >= distance) sum[k] += below;
      }
      sum[k] += before_row;
      before_row = shuffle(all_lanes, sum[k], warp_lanes - 1);
    }
    if (lane == 0) warp_sums[warp] = before_row;
    sync_block();
    // Each lane has the sum of a warp: read one after the other, they would be as many registers.
    std::uint64_t upto = warp_sums[lane];
    STASH_UNROLL
    for (unsigned distance = 1; distance < warps; distance *= 2) {
      const std::uint64_t below = shuffle_up(all_lanes, upto, distance);
      if (lane >= distance) upto += below;
    }
    const std::uint64_t round = shuffle(all_lanes, upto, warps - 1);
    const std::uint64_t warps_before = shuffle(all_lanes, upto, (warp + warps - 1) % warps);
    const std::uint64_t before = before_round + (warp == 0 ? 0 : warps_before);
    STASH_UNROLL
    for (unsigned k = 0; k < scan_words; ++k) {
      const unsigned offset = k * warp_lanes;
      if (offset < there) body(first + offset, before + sum[k] - own[k], own[k]);
    }
    before_round += round;
    sync_block();
  }
  return before_round;
}

}  // namespace stash::kernels
