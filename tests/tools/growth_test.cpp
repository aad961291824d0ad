// SPDX-License-Identifier: Apache-2.0
// The search for the largest size, and what the rows say that stands in the way.

#include "reproduce/growth.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "planner/graph/machine.hpp"

namespace stash::tools {
namespace {

growth up_to(std::int64_t largest, std::vector<std::int64_t>& tried) {
  growth g;
  g.plan = [largest, &tried](std::int64_t n) {
    tried.push_back(n);
    probe p;
    p.fits = n <= largest;
    p.limit = p.fits ? "" : "too large";
    return p;
  };
  return g;
}

TEST(find_largest, finds_what_fits) {
  for (std::int64_t largest = 0; largest < 200; ++largest) {
    for (const std::int64_t first : {1, 8, 64, 500}) {
      std::vector<std::int64_t> tried;
      growth g = up_to(largest, tried);
      g.first = first;
      const largest_size found = find_largest(g);
      EXPECT_EQ(found.size, largest) << "from " << first;
      EXPECT_EQ(found.next.size, largest + 1);
      EXPECT_EQ(found.next.limit, "too large");
      EXPECT_EQ(static_cast<std::size_t>(found.probes), tried.size());
      EXPECT_LT(tried.size(), 25U);
    }
  }
}

TEST(find_largest, in_units_to_a_tolerance_and_up_to_the_most) {
  std::vector<std::int64_t> tried;
  growth g = up_to(1000, tried);
  g.unit = 8;
  EXPECT_EQ(find_largest(g).size, 1000);
  g.tolerance = 0.1;
  const largest_size roughly = find_largest(g);
  EXPECT_GE(roughly.size, 900);
  EXPECT_LE(roughly.size, 1000);
  g.most = 20;
  EXPECT_EQ(find_largest(g).size, 160);
}

TEST(find_largest, stops_with_what_it_has) {
  std::vector<std::int64_t> tried;
  growth g = up_to(1000, tried);
  g.stop = [&] { return tried.size() >= 3; };
  const largest_size found = find_largest(g);
  EXPECT_TRUE(found.interrupted);
  EXPECT_EQ(found.size, 4);
}

planner::graph small_graph(std::int64_t batch) {
  planner::network net("small");
  planner::node_id x = net.input(16, 16, 3);
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    x = net.relu("relu" + n, net.conv2d("conv" + n, x, 8, {3, 3}, {1, 1}, {1, 1}, true));
  }
  net.softmax_cross_entropy("loss", net.dense("fc", net.global_avg_pool("mean", x), 5));
  return planner::make_training_graph(net, batch);
}

planner::plan_options options_for(planner::policy p, bool swap) {
  planner::plan_options o;
  o.chosen_policy = p;
  o.model = planner::find_machine("m40_12gb");
  o.swap = swap;
  o.smallest_swap = 64;
  o.evaluations = 300;
  return o;
}

TEST(plan_probe, says_what_binds) {
  const planner::graph g = small_graph(64);
  const auto limit = [&](const planner::plan_options& o, std::int64_t memory, double slower = 1e9) {
    const probe p = plan_probe(g, o, memory, slower, true);
    EXPECT_EQ(p.fits, p.limit.empty());
    return p.limit;
  };
  const planner::plan_options none = options_for(planner::policy::none, false);
  planner::plan_options swap = options_for(planner::policy::lossless, true);
  EXPECT_EQ(limit(none, std::int64_t{1} << 30), "");
  EXPECT_EQ(limit(none, 1000), "weights, gradients, momentum and workspace");
  EXPECT_NE(limit(none, 500'000).find("working set W of conv"), std::string::npos);
  EXPECT_NE(limit(none, 1'700'000).find("kept maps while"), std::string::npos);
  EXPECT_EQ(limit(swap, 1'700'000), "");
  // Copies of 10 us each way are longer than such small ops.
  std::int64_t tight = 1'200'000;
  while (tight < 1'700'000 && !limit(swap, tight).empty())
    tight += 10'000;
  const std::string slow = limit(swap, tight, 0.0);
  EXPECT_TRUE(slow.starts_with("link (") || slow.starts_with("compute (")) << slow;
}

TEST(plan_probe, host_memory_can_bind) {
  const planner::graph g = small_graph(64);
  planner::plan_options o = options_for(planner::policy::swap_only, true);
  constexpr std::int64_t memory = 1'700'000;
  ASSERT_TRUE(plan_probe(g, o, memory, 1e9, true).fits);
  o.model->host_bytes = 1;
  EXPECT_EQ(plan_probe(g, o, memory, 1e9, true).limit, "host memory");
}

}  // namespace
}  // namespace stash::tools
