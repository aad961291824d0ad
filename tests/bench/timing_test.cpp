// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/timing.hpp"

#include <gtest/gtest.h>

#include "bench/cases/copy.hpp"

namespace stash::bench {
namespace {

TEST(bench_timing, median_is_the_middle_or_the_upper_of_two) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
}

TEST(bench_timing, a_quantile_is_the_value_that_a_share_does_not_exceed) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0), 3);
  EXPECT_EQ(quantile({3}, 1), 3);
  EXPECT_EQ(quantile({3, 1, 2}, 0.25), 1);
  EXPECT_EQ(quantile({3, 1, 2}, 0.75), 3);
  EXPECT_EQ(quantile({4, 3, 2, 1}, 0.25), 1);
  EXPECT_EQ(quantile({4, 3, 2, 1}, 0.75), 3);
  EXPECT_EQ(quantile({10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0.9), 9);
}

TEST(bench_timing, a_round_runs_every_call_as_often_as_was_found) {
  for (const bool one_thread : {true, false}) {
    interleaved_timing timing(one_thread);
    std::int64_t first = 0, second = 0;
    const auto count_to = [](std::int64_t& counter) { return [&counter] { ++counter; }; };
    ASSERT_EQ(timing.add(count_to(first)), 0U);
    ASSERT_EQ(timing.add(count_to(second)), 1U);
    // A call that costs next to nothing has to be repeated to be timed at all.
    EXPECT_GT(timing.repetitions(0), 1);
    EXPECT_GT(timing.repetitions(1), 1);
    first = second = 0;
    for (int i = 0; i < 3; ++i)
      timing.round();
    EXPECT_EQ(timing.rounds(), 3U);
    EXPECT_EQ(first, 3 * timing.repetitions(0));
    EXPECT_EQ(second, 3 * timing.repetitions(1));
    EXPECT_GT(timing.median_seconds(0), 0);
    EXPECT_GT(timing.last_seconds(1), 0);
  }
}

TEST(bench_timing, a_call_is_as_fast_as_itself) {
  interleaved_timing timing(true);
  timing.add(copy_call(1 << 16, {}));
  timing.round();
  EXPECT_EQ(timing.median_speed(0, 0), 1);
}

// Counts what it is asked for.
void two_halves(void* user, std::int64_t count, std::int64_t /*grain*/, range_function body, void* state) {
  auto& bytes = *static_cast<std::int64_t*>(user);
  body(state, 0, count / 2);
  body(state, count / 2, count);
  bytes += count;
}

TEST(bench_timing, a_copy_reads_half_of_the_bytes_and_writes_half) {
  std::int64_t bytes = 0;
  execution_context context;
  context.parallel_for = two_halves;
  context.user = &bytes;
  copy_call(3000, context)();
  EXPECT_EQ(bytes, 1500);
}

}  // namespace
}  // namespace stash::bench
