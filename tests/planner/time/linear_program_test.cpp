// SPDX-License-Identifier: Apache-2.0
// Whatever solves the planner's linear programs.

#include <gtest/gtest.h>

#include <random>

#include "planner/time/relaxation.hpp"
#include "planner/time/relaxation_program.hpp"
#include "support/failing_allocations.hpp"

namespace {

using namespace stash::planner;

/// Chains of running sums within bounds, as the planner's programs have; without a solution if `tight`.
linear_program chained_program(std::uint32_t seed, int length, bool tight) {
  std::mt19937 random(seed);
  const auto draw = [&random](int most) {
    return static_cast<double>(random() % static_cast<unsigned>(most));
  };
  linear_program p;
  const auto add_entry = [&p](int row, int column, double value) {
    p.row_of.push_back(row);
    p.column_of.push_back(column);
    p.value.push_back(value);
  };
  for (int i = 0; i < 2 * length; ++i) {
    p.column_lower.push_back(0);
    p.column_upper.push_back(i % 3 == 0 ? lp_infinity : 5 + draw(20));
    p.objective.push_back(draw(10) - 2);
  }
  for (int i = 0; i < length; ++i) {
    const int row = static_cast<int>(p.row_lower.size());
    // What went out and came back by now.
    add_entry(row, i, 1);
    add_entry(row, length + i, -1);
    if (i > 0) add_entry(row, i - 1, -1);
    add_entry(row, static_cast<int>(random() % static_cast<unsigned>(2 * length)), 1 + draw(3));
    p.row_lower.push_back(tight && i == length / 2 ? 1e6 : draw(4));
    p.row_upper.push_back(lp_infinity);
    for (int j = 0; j < 3; ++j)
      add_entry(row + 1, static_cast<int>(random() % static_cast<unsigned>(2 * length)), 1 + draw(5));
    p.row_lower.push_back(-lp_infinity);
    p.row_upper.push_back(30 + draw(50));
  }
  return p;
}

TEST(linear_program, every_allocation_may_fail) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int optimal = 0, infeasible = 0;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    const linear_program p = chained_program(seed, 30 + 30 * static_cast<int>(seed % 3), seed % 2 != 0);
    const lp_solution expected = solve(p, {});
    optimal += expected.optimal ? 1 : 0;
    infeasible += expected.infeasible ? 1 : 0;
    const std::int64_t reports = stash_test::fail_every_allocation(
        [&] {
          const lp_solution found = solve(p, {});
          EXPECT_EQ(found.optimal, expected.optimal);
          EXPECT_EQ(found.infeasible, expected.infeasible);
          EXPECT_EQ(found.columns, expected.columns);
        },
        [] {}, 3, stash_test::left_blocks::some);
    EXPECT_GT(reports, 20);
  }
  EXPECT_GT(optimal, 0);
  EXPECT_GT(infeasible, 0);
}

}  // namespace
