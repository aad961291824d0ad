// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/input.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stash::bench {
namespace {

constexpr std::int64_t channels = 64;

std::vector<float> made(zero_pattern zeros, double density) {
  std::vector<float> values(std::size_t{64} << 14);
  fill_before_relu(values, {zeros, density}, channels);
  return values;
}

double share_of_positives(const std::vector<float>& values) {
  const auto count = std::count_if(values.begin(), values.end(), [](float v) { return v > 0; });
  return static_cast<double>(count) / static_cast<double>(values.size());
}

TEST(bench_input, has_the_requested_density_and_no_zero_or_large_value) {
  for (const zero_pattern zeros : {zero_pattern::independent, zero_pattern::clustered}) {
    for (const double density : {0.05, 0.2, 0.5, 0.9}) {
      const std::vector<float> values = made(zeros, density);
      EXPECT_NEAR(share_of_positives(values), density, 0.02) << to_string({zeros, density});
      EXPECT_TRUE(std::none_of(values.begin(), values.end(),
                               [](float v) { return v == 0 || !(v <= 4.0F && v >= -4.0F); }));
    }
  }
}

TEST(bench_input, independent_zeros_come_in_short_runs_and_clustered_ones_in_runs_of_the_stated_mean) {
  const auto mean_run = [](const std::vector<float>& values) {
    double zeros = 0, runs = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] > 0) continue;
      ++zeros;
      if (i == 0 || values[i - 1] > 0) ++runs;
    }
    return zeros / runs;
  };
  EXPECT_NEAR(mean_run(made(zero_pattern::independent, 0.5)), 2.0, 0.05);
  EXPECT_NEAR(mean_run(made(zero_pattern::clustered, 0.5)), mean_zero_run, 0.05 * mean_zero_run);
  EXPECT_NEAR(mean_run(made(zero_pattern::clustered, 0.2)), mean_zero_run, 0.05 * mean_zero_run);
}

TEST(bench_input, dead_channels_are_dead_everywhere_and_the_others_nowhere) {
  for (const double density : {0.25, 0.5}) {
    const std::vector<float> values = made(zero_pattern::dead_channels, density);
    EXPECT_EQ(share_of_positives(values), density);
    for (std::size_t i = channels; i < values.size(); ++i)
      ASSERT_EQ(values[i] > 0, values[i - channels] > 0) << i;
  }
}

TEST(bench_input, is_the_same_every_time) {
  EXPECT_EQ(made(zero_pattern::independent, 0.5), made(zero_pattern::independent, 0.5));
}

TEST(bench_input, has_a_name) {
  EXPECT_EQ(to_string({zero_pattern::independent, 0.5}), "iid_0.5");
  EXPECT_EQ(to_string({zero_pattern::independent, 0.05}), "iid_0.05");
  EXPECT_EQ(to_string({zero_pattern::dead_channels, 0.5}), "dead_channels_0.5");
  EXPECT_EQ(to_string({zero_pattern::clustered, 0.2}), "clustered_0.2");
}

}  // namespace
}  // namespace stash::bench
