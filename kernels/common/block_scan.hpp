#pragma once
/// \file
/// Running sums over an array in memory by a single block: for arrays of one word per tile or row, which are
/// short beside the tensors that they describe.

#include <cstdint>

#include "common/simt.hpp"

namespace stash::kernels {

inline constexpr unsigned scan_threads = 1024;

/// Calls body(i, sum of get(0) .. get(i - 1), get(i)) for every i below `count` and returns the sum of all,
/// the same in every thread. The grid is one block of scan_threads; `warp_sums` has a word of shared memory
/// for each warp.
template <class Get, class Body>
STASH_DEVICE std::uint64_t scan_in_block(std::uint64_t count, std::uint64_t* warp_sums, const Get& get,
                                         const Body& body) {
  constexpr unsigned warps = scan_threads / warp_lanes;
  const unsigned lane = thread_rank() % warp_lanes;
  const unsigned warp = thread_rank() / warp_lanes;
  std::uint64_t before_round = 0;
  for (std::uint64_t base = 0; base < count; base += scan_threads) {
    const std::uint64_t i = base + thread_rank();
    const std::uint64_t own = i < count ? get(i) : 0;
    std::uint64_t sum = own;
    STASH_UNROLL
    for (unsigned distance = 1; distance < warp_lanes; distance *= 2) {
      const std::uint64_t below = shuffle_up(all_lanes, sum, distance);
      if (lane >= distance) sum += below;
    }
    if (lane == warp_lanes - 1) warp_sums[warp] = sum;
    sync_block();
    std::uint64_t before = before_round;
    std::uint64_t round = 0;
    for (unsigned w = 0; w < warps; ++w) {
      if (w < warp) before += warp_sums[w];
      round += warp_sums[w];
    }
    if (i < count) body(i, before + sum - own, own);
    before_round += round;
    sync_block();
  }
  return before_round;
}

}  // namespace stash::kernels
