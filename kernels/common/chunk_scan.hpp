// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Running sums over an array in memory that is one word per tile or row of a tensor: by one block where it
/// is short, else by as many as there are chunks of it. There is no memory besides the array, so what one
/// kernel knows for the next one lies in the array itself.
///
/// A caller that needs the sums passes `store`, a plain value with
///     void operator()(i, before, own) const;   puts what becomes of word i there, given the sum before it
///     void finish(total) const;                once, with the sum of all
/// Both run on the device; finish() may run before other words are placed.

#include <cstdint>

#include "common/block_scan.hpp"
#include "common/launch.hpp"

namespace stash::kernels {

/// Words of `own_bits` bits each: sums within a chunk take the other bits, next to the word. The first two
/// words of a chunk need no such sum, so their other bits take the sum before the chunk, which is below 2^46.
struct chunked_words {
  static constexpr unsigned own_bits = 9;
  static constexpr std::uint32_t own_mask = (1U << own_bits) - 1;
  static constexpr unsigned sum_bits = 32 - own_bits;
  static constexpr std::uint64_t chunk = std::uint64_t{scan_threads} * scan_words;

  std::uint32_t* words;
  std::uint64_t count;
  /// The last one is up to twice as long, so that none is very short.
  std::uint64_t chunks = count < 2 * chunk ? 1 : count / chunk;

  STASH_DEVICE std::uint64_t size(std::uint64_t c) const {
    return c + 1 == chunks ? count - c * chunk : chunk;
  }
};
// The longest chunk of the largest words.
static_assert((2 * chunked_words::chunk - 1) * chunked_words::own_mask < std::uint64_t{1}
                                                                             << chunked_words::sum_bits);

/// Everything. Grid: one block.
template <class Store>
STASH_KERNEL(scan_threads)
scan_in_one_block(chunked_words all, Store store) {
  begin_kernel();
  STASH_SHARED(std::uint64_t, warp_sums, scan_threads / warp_lanes);
  const std::uint64_t total = scan_in_block(
      all.count, warp_sums, [&](std::uint64_t i) { return all.words[i]; }, store);
  if (thread_rank() == 0) store.finish(total);
}

/// Sums within chunks. Grid: a block for each.
STASH_KERNEL(scan_threads) sum_within_chunks(chunked_words all) {
  begin_kernel();
  STASH_SHARED(std::uint64_t, warp_sums, scan_threads / warp_lanes);
  std::uint32_t* const words = all.words + block_rank() * chunked_words::chunk;
  scan_in_block(
      all.size(block_rank()), warp_sums, [&](std::uint64_t i) { return words[i]; },
      [&](std::uint64_t i, std::uint64_t before, std::uint32_t own) {
        const auto sum = i < 2 ? 0U : static_cast<std::uint32_t>(before);
        words[i] = own | sum << chunked_words::own_bits;
      });
}

/// Sums before chunks. Grid: one block.
STASH_KERNEL(scan_threads) sum_over_chunks(chunked_words all) {
  begin_kernel();
  STASH_SHARED(std::uint64_t, warp_sums, scan_threads / warp_lanes);
  scan_in_block(
      all.chunks, warp_sums,
      [&](std::uint64_t c) {
        const std::uint32_t last = all.words[c * chunked_words::chunk + all.size(c) - 1];
        return (last & chunked_words::own_mask) + (last >> chunked_words::own_bits);
      },
      [&](std::uint64_t c, std::uint64_t before, std::uint32_t) {
        std::uint32_t* const words = all.words + c * chunked_words::chunk;
        words[0] |= static_cast<std::uint32_t>(before) << chunked_words::own_bits;
        words[1] |= static_cast<std::uint32_t>(before >> chunked_words::sum_bits) << chunked_words::own_bits;
      });
}

/// Grid: a block for each chunk.
template <class Store>
STASH_KERNEL(scan_threads)
scan_in_chunks(chunked_words all, Store store) {
  begin_kernel();
  const std::uint64_t first = block_rank() * chunked_words::chunk;
  const std::uint64_t size = all.size(block_rank());
  const std::uint32_t* const words = all.words + first;
  const std::uint32_t low = words[0], high = words[1];
  const std::uint64_t before_chunk =
      low >> chunked_words::own_bits | std::uint64_t{high >> chunked_words::own_bits}
                                           << chunked_words::sum_bits;
  sync_block();  // all have read them
  for (std::uint64_t i = thread_rank(); i < size; i += scan_threads) {
    const std::uint32_t word = words[i];
    const std::uint32_t own = word & chunked_words::own_mask;
    std::uint64_t before = before_chunk;
    if (i == 1) {
      before += low & chunked_words::own_mask;
    } else if (i > 1) {
      before += word >> chunked_words::own_bits;
    }
    store(first + i, before, own);
    if (first + i + 1 == all.count) store.finish(before + own);
  }
}

/// Launches what serves the length. Words are below 512.
template <class Store>
void scan_with_sums(const char* function, const execution_context& context, std::uint32_t* words,
                    std::uint64_t count, const Store& store) {
  const chunked_words all{words, count};
  if (all.chunks == 1) {
    launch(function, context, 1, scan_threads, scan_in_one_block<Store>, all, store);
    return;
  }
  launch(function, context, all.chunks, scan_threads, sum_within_chunks, all);
  launch(function, context, 1, scan_threads, sum_over_chunks, all);
  launch(function, context, all.chunks, scan_threads, scan_in_chunks<Store>, all, store);
}

}  // namespace stash::kernels
