// SPDX-License-Identifier: Apache-2.0
// Running sums of one block, for counts around the words of a warp and of a round, in place as its callers
// do; and of several blocks, for counts around their chunks.

#include "common/block_scan.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/chunk_scan.hpp"
#include "simt/simt.hpp"

namespace stash::kernels {
namespace {

constexpr std::uint64_t round_words = scan_threads * scan_words;

TEST(block_scan, sums_before_each_word_and_of_all) {
  std::mt19937 dice(7);
  int schedule = 0;
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{32}, std::uint64_t{33},
        std::uint64_t{255}, std::uint64_t{256}, std::uint64_t{257}, std::uint64_t{1023}, std::uint64_t{1024},
        round_words - 1, round_words, round_words + 1, 2 * round_words, 2 * round_words + 300}) {
    SCOPED_TRACE(count);
    constexpr simt::order orders[] = {simt::order::forward, simt::order::reverse, simt::order::random};
    simt::set_schedule({orders[schedule++ % 3], 5, 1});
    std::vector<std::uint32_t> words(count);
    // Sums beyond 32 bits, of words of which 256 are not.
    for (std::uint32_t& w : words)
      w = dice() % 3 == 0 ? 0 : static_cast<std::uint32_t>(dice() >> 8);
    const std::vector<std::uint32_t> input = words;
    std::vector<std::uint64_t> before(count), totals(scan_threads);
    std::vector<std::uint32_t> own(count);
    simt::launch({1}, {scan_threads}, 0, [&] {
      STASH_SHARED(std::uint64_t, warp_sums, scan_threads / warp_lanes);
      totals[thread_rank()] = scan_in_block(
          count, warp_sums, [&](std::uint64_t i) { return words[i]; },
          [&](std::uint64_t i, std::uint64_t sum, std::uint32_t word) {
            before[i] = sum;
            own[i] = word;
            words[i] = 0xffffffffU;  // a result overwrites its word
          });
    });
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(before[i], sum) << i;
      ASSERT_EQ(own[i], input[i]) << i;
      sum += input[i];
    }
    EXPECT_EQ(totals, std::vector<std::uint64_t>(scan_threads, sum));
  }
  simt::set_schedule({});
}

/// Where a test wants the sums; words are overwritten, as by those who use them.
struct store_sums {
  std::uint32_t* words;
  std::uint64_t *before, *total;
  std::uint32_t *own, *finished;

  void operator()(std::uint64_t i, std::uint64_t sum, std::uint32_t word) const {
    before[i] = sum;
    own[i] = word;
    words[i] = 0xffffffffU;
  }
  void finish(std::uint64_t sum) const {
    *total = sum;
    atomic_add(finished, 1U);
  }
};

TEST(chunk_scan, sums_before_each_word_and_of_all) {
  constexpr std::uint64_t chunk = chunked_words::chunk;
  constexpr std::uint32_t most = chunked_words::own_mask;
  std::mt19937 dice(11);
  int schedule = 0;
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, chunk, 2 * chunk - 1, 2 * chunk, 2 * chunk + 1, 3 * chunk - 1,
        3 * chunk, 4 * chunk + 1023, 6 * chunk - 1}) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(testing::Message() << count << (full ? " of the largest words" : ""));
      constexpr simt::order orders[] = {simt::order::forward, simt::order::reverse, simt::order::random};
      simt::set_schedule({orders[schedule++ % 3], 5, 1});
      // The largest words of six chunks need more bits than the first word of a chunk has space for.
      std::vector<std::uint32_t> words(count);
      for (std::uint32_t& w : words)
        w = full ? most : dice() % 3 == 0 ? 0 : static_cast<std::uint32_t>(dice() % (most + 1));
      const std::vector<std::uint32_t> input = words;
      std::vector<std::uint64_t> before(count);
      std::vector<std::uint32_t> own(count);
      std::uint64_t total = 1;
      std::uint32_t finished = 0;
      scan_with_sums("test", execution_context{}, words.data(), count,
                     store_sums{words.data(), before.data(), &total, own.data(), &finished});
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(before[i], sum) << i;
        ASSERT_EQ(own[i], input[i]) << i;
        sum += input[i];
      }
      EXPECT_EQ(total, sum);
      EXPECT_EQ(finished, 1U);
    }
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash::kernels
