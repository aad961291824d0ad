// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Prefix sums over the blocks of one launch, without a second one: "decoupled look-back" of Merrill and
/// Garland (NVIDIA technical report NVR-2016-002). A block publishes its own sum, then adds up what the
/// blocks before it have published, and publishes the sum up to its end.
///
/// Blocks take numbers in the order in which they start, so that each waits only for blocks that run already.

#include <cstdint>

#include "common/simt.hpp"

namespace stash::kernels {

/// In device memory, zero before the launch: a counter of tickets, then a word for each block. Null: no sums.
struct block_sums {
  std::uint64_t* words;

  /// Bytes for this many blocks.
  static constexpr std::uint64_t bytes(std::uint64_t blocks) { return (blocks + 1) * 8; }
};

/// This block's number. All threads come; `shared` is one word of shared memory.
STASH_DEVICE std::uint64_t take_ticket(const block_sums& sums, std::uint64_t* shared) {
  if (thread_rank() == 0) *shared = atomic_add(sums.words, std::uint64_t{1});
  sync_block();
  return *shared;
}

/// The sum of `own` over all blocks with lower numbers; sums stay below 2^62. All lanes of one warp come.
STASH_DEVICE std::uint64_t sum_before(const block_sums& sums, std::uint64_t number, std::uint64_t own) {
  constexpr std::uint64_t own_known = std::uint64_t{1} << 62;
  constexpr std::uint64_t all_known = std::uint64_t{2} << 62;
  constexpr std::uint64_t value_bits = own_known - 1;
  std::uint64_t* const states = sums.words + 1;
  const unsigned lane = thread_rank() % warp_lanes;
  if (lane == 0) store_release(states + number, (number == 0 ? all_known : own_known) | own);
  std::uint64_t before = 0;
  // Thirty-two blocks at a time, the nearest first.
  for (std::uint64_t end = number; end > 0;) {
    const bool exists = lane < end;
    std::uint64_t state = all_known;
    if (exists) {
      state = load_acquire(states + (end - 1 - lane));
      while (state == 0) {
        pause();
        state = load_acquire(states + (end - 1 - lane));
      }
    }
    const std::uint32_t complete = ballot(all_lanes, (state & all_known) != 0);
    // After the nearest complete sum nothing counts any more.
    const unsigned last = complete == 0 ? warp_lanes - 1 : static_cast<unsigned>(trailing_zeros(complete));
    std::uint64_t part = exists && lane <= last ? state & value_bits : 0;
    STASH_UNROLL
    for (unsigned bit = 1; bit < warp_lanes; bit *= 2)
      part += shuffle_xor(all_lanes, part, bit);
    before += part;
    if (complete != 0) break;
    end -= warp_lanes;
  }
  if (lane == 0 && number != 0) store_release(states + number, all_known | (before + own));
  return before;
}

}  // namespace stash::kernels
