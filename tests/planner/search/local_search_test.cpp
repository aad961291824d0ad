// SPDX-License-Identifier: Apache-2.0
#include "planner/search/local_search.hpp"

#include <gtest/gtest.h>

#include "planner/search/fast_problems.hpp"
#include "planner/search/mend.hpp"

namespace stash::planner {
namespace {

// Two items of 100 and 60 bytes in steps 0 to 2; each may go (40 stay of the first one), for 5 and 1 ms.
step_problem two_items() {
  step_problem p;
  p.ms.assign(3, 1.0);
  p.fixed.assign(3, 10);
  p.fixed_first = p.fixed_last = p.fixed;
  p.first_tick.assign(4, 0);
  item first, second;
  first.options.push_back({.held = {{0, 2, 100}}});
  first.options.push_back({.held = {{0, 2, 40}}, .work = {{0, 5.0}}});
  second.options.push_back({.held = {{0, 2, 60}}});
  second.options.push_back({.held = {}, .work = {{2, 1.0}}});
  p.items.push_back(first);
  p.items.push_back(second);
  p.limit = 120;
  return p;
}

option_costs costs_of(const step_problem& p) {
  option_costs costs;
  for (const item& i : p.items) {
    std::vector<double>& list = costs.emplace_back();
    for (const item_option& o : i.options)
      list.push_back(work_of(o) + link_ms(o, p.link));
  }
  return costs;
}

TEST(mend, takes_the_change_that_costs_least_for_a_byte) {
  const step_problem p = two_items();
  simulator sim(p);
  const option_choice all{0, 0};
  const simulated s = sim.run(all);
  ASSERT_FALSE(s.feasible);
  ASSERT_EQ(s.missing, 50);
  const auto change = cheapest_mend(p, costs_of(p), all, s);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->item, 1U);
  EXPECT_EQ(change->option, 1);
}

TEST(mend, finds_nothing_where_nothing_gains_memory) {
  step_problem p = two_items();
  p.limit = 20;
  simulator sim(p);
  const option_choice least{1, 1};
  const simulated s = sim.run(least);
  ASSERT_FALSE(s.feasible);
  EXPECT_FALSE(cheapest_mend(p, costs_of(p), least, s));
}

TEST(local_search, leaves_what_is_dear_once_it_fits_without_it) {
  const step_problem p = two_items();
  simulator sim(p);
  const option_choice start{1, 1};
  dice random(1);
  const local_search_result found =
      search_nearby(p, sim, costs_of(p), start, sim.run(start).ms, random, {200});
  EXPECT_EQ(found.choice, (option_choice{0, 1}));
  EXPECT_DOUBLE_EQ(found.ms, 4.0);
}

TEST(local_search, ends_by_its_limits_and_never_slower_than_it_began) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    testing::small_problem s = testing::make_small_problem(testing::random_graph(seed), policy::automatic,
                                                           true, testing::small_machine(seed));
    s.steps.limit = std::int64_t{1} << 50;
    simulator sim(s.steps);
    const option_choice raw(s.steps.items.size(), 0);
    s.steps.limit = sim.run(raw).peak * 7 / 10;
    const option_choice start = greedy_largest_first(s.steps, sim);
    const simulated begin = sim.run(start);
    if (!begin.feasible) continue;
    const option_costs costs = costs_of(s.steps);
    dice random(seed), same(seed);
    const local_search_limits limits{300, 0.0, {}};
    const local_search_result found = search_nearby(s.steps, sim, costs, start, begin.ms, random, limits);
    EXPECT_LE(found.ms, begin.ms) << seed;
    EXPECT_LE(found.evaluations, 300 + 6) << seed;
    simulator fresh(s.steps);
    const simulated again = fresh.run(found.choice);
    EXPECT_TRUE(again.feasible) << seed;
    EXPECT_DOUBLE_EQ(again.ms, found.ms) << seed;
    EXPECT_EQ(search_nearby(s.steps, fresh, costs, start, begin.ms, same, limits).choice, found.choice)
        << seed;
    const local_search_limits none{1000000, 0.0, [] { return true; }};
    EXPECT_EQ(search_nearby(s.steps, sim, costs, start, begin.ms, random, none).evaluations, 0) << seed;
    const local_search_limits enough{1000000, begin.ms, {}};
    EXPECT_EQ(search_nearby(s.steps, sim, costs, start, begin.ms, random, enough).evaluations, 0) << seed;
  }
}

}  // namespace
}  // namespace stash::planner
