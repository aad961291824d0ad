// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/running_peak.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "models/models.hpp"
#include "planner/graph/random_network.hpp"
#include "planner/graph/sample_graph.hpp"
#include "planner/memory/live_sums.hpp"
#include "planner/memory/options.hpp"
#include "planner/memory/search.hpp"

namespace stash::planner {
namespace {

// What the schedule says that is built as a whole.
class whole {
 public:
  whole(const search& s, const option_set& options, const picks& p) : options_(options), built_(s.build(p)) {
    const id_vector<step_number, std::int64_t> live = live_bytes(built_);
    const auto top = std::max_element(live.begin(), live.end());
    if (top == live.end()) return;
    bytes = *top;
    step_ = static_cast<std::int32_t>(top - live.begin());
  }

  bool is_live(std::size_t component) const {
    return std::any_of(built_.buffers.begin(), built_.buffers.end(), [&](const buffer& b) {
      return belongs(b, component) && b.first_step <= step_ && step_ <= b.last_step;
    });
  }

  std::int32_t longest_life(std::size_t component) const {
    std::int32_t longest = 0;
    for (const buffer& b : built_.buffers)
      if (belongs(b, component)) longest = std::max(longest, b.last_step - b.first_step);
    return longest;
  }

  std::int64_t bytes = 0;

 private:
  bool belongs(const buffer& b, std::size_t component) const {
    const std::vector<storage_id>& storages = options_.components[component].storages;
    return b.storage.valid() && std::find(storages.begin(), storages.end(), b.storage) != storages.end();
  }

  const option_set& options_;
  schedule built_;
  std::int32_t step_ = 0;
};

// Many changes, one after the other, each compared with the schedule that is built as a whole.
void expect_same(const graph& g, policy chosen, std::uint64_t seed, int changes) {
  SCOPED_TRACE(g.name + ", seed " + std::to_string(seed));
  plan_options plan;
  plan.chosen_policy = chosen;
  const scheduler facts(g);
  const option_set options = make_options(g, plan, plan.slot_margin);
  const search finder(facts, options, plan);
  picks now = finder.least_work();
  running_peak running(facts, options, plan, now);
  std::mt19937_64 random(seed);
  for (int k = 0; k <= changes; ++k) {
    const running_peak::moment top = running.top();
    const whole expected(finder, options, now);
    ASSERT_EQ(top.bytes, expected.bytes) << k;
    for (std::size_t c = 0; c < options.components.size(); ++c) {
      ASSERT_EQ(running.is_live(c, top), expected.is_live(c)) << k << ", component " << c;
      ASSERT_EQ(running.longest_life(c), expected.longest_life(c)) << k << ", component " << c;
    }
    if (options.components.empty()) return;
    const std::size_t c = random() % options.components.size();
    const std::size_t f = random() % options.components[c].configurations.size();
    const std::optional<std::int64_t> there = running.bytes_with(c, f, top);
    now[c] = f;
    running.pick(c, f);
    ASSERT_EQ(running.current(), now);
    if (there) {
      ASSERT_LE(*there, running.top().bytes) << k;
    }
  }
}

constexpr policy policies[] = {policy::none, policy::lossless, policy::fp16, policy::fp8};

TEST(running_peak, is_that_of_the_whole_schedule_in_random_networks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const graph g = make_training_graph(testing::random_network(seed).make(), 3);
    for (const policy p : policies)
      expect_same(g, p, seed, 20);
  }
}

TEST(running_peak, is_that_of_the_whole_schedule_in_models) {
  for (const char* name : {"lenet", "resnet50", "gpt2_small"})
    for (const policy p : {policy::lossless, policy::fp8})
      expect_same(models::default_graph(models::find(name), 4, 0.5), p, 7, 30);
}

TEST(running_peak, of_nothing) {
  graph g;
  g.name = "nothing";
  expect_same(g, policy::lossless, 1, 1);
}

TEST(live_sums, are_those_of_a_row) {
  std::mt19937_64 random(3);
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64}, std::size_t{65}}) {
    live_sums sums(count);
    std::vector<std::int64_t> row(count, 0);
    for (int k = 0; k < 200; ++k) {
      const std::size_t first = random() % (count + 1), end = random() % (count + 1);
      const auto bytes = static_cast<std::int64_t>(random() % 9) - 4;
      sums.add(first, end, bytes);
      for (std::size_t i = first; i < end; ++i)
        row[i] += bytes;
      const auto most = std::max_element(row.begin(), row.end());
      ASSERT_EQ(sums.largest(), *most) << count;
      ASSERT_EQ(sums.first_of_largest(), static_cast<std::size_t>(most - row.begin())) << count;
    }
  }
}

}  // namespace
}  // namespace stash::planner
