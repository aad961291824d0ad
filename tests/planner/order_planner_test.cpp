// SPDX-License-Identifier: Apache-2.0
#include "planner/order_planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/graph/machine.hpp"
#include "planner/graph/op_order.hpp"
#include "planner/graph/random_network.hpp"
#include "planner/graph/random_order.hpp"
#include "planner/json/json.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

plan_options any_order(policy p = policy::lossless) {
  plan_options o;
  o.chosen_policy = p;
  o.order = op_order::memory;
  return o;
}

plan_options keep(plan_options o) {
  o.order = op_order::keep;
  return o;
}

// Each of `count` readers of one map makes a large map that only its own short tail reads; all large maps
// come before all tails.
graph wide_graph(int count) {
  network net("wide");
  const node_id image = net.input(16, 16, 3);
  const node_id x = net.conv2d("x", image, 2, {1, 1}, {1, 1}, {0, 0});
  std::vector<node_id> tails;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    const node_id large = net.conv2d("large" + n, x, 64, {1, 1}, {1, 1}, {0, 0});
    tails.push_back(net.global_avg_pool("tail" + n, large));
  }
  node_id sum = tails[0];
  for (int i = 1; i < count; ++i)
    sum = net.add("sum" + std::to_string(i), sum, tails[static_cast<std::size_t>(i)]);
  net.softmax_cross_entropy("loss", net.dense("fc", net.flatten("flat", sum), 10));
  const graph g = make_training_graph(net, 4);
  id_vector<op_id, op_id> order;
  const auto add_if = [&](auto wanted) {
    for (const op_id o : g.ops.ids())
      if (wanted(g.ops[o])) order.push_back(o);
  };
  const auto is_large = [](const op& o) { return o.name == "x" || o.name.starts_with("large"); };
  add_if([&](const op& o) { return o.stage == op_stage::forward && is_large(o); });
  add_if([&](const op& o) { return o.stage == op_stage::forward && !is_large(o); });
  add_if([](const op& o) { return o.stage != op_stage::forward; });
  return reordered(g, order);
}

TEST(order_planner, large_maps_are_made_one_by_one) {
  const graph g = wide_graph(6);
  const plan given = make_plan(g, keep(any_order()));
  const plan found = make_plan(g, any_order());
  EXPECT_LT(found.sizes.planned_peak, given.sizes.planned_peak * 2 / 3);
  EXPECT_THAT(validate(found), IsEmpty());
  ASSERT_EQ(found.planned_op.size(), g.ops.size());
  for (const op_id o : found.planned_op.ids())
    EXPECT_EQ(found.network.ops[o].name, g.ops[found.planned_op[o]].name);
}

TEST(order_planner, plans_survive_json) {
  const plan found = make_plan(wide_graph(4), any_order());
  ASSERT_FALSE(found.planned_op.empty());
  const plan read = plan_from_json(to_json(found));
  EXPECT_EQ(read.planned_op, found.planned_op);
  EXPECT_EQ(to_json(read), to_json(found));
  EXPECT_THAT(validate(read), IsEmpty());
}

TEST(order_planner, no_plan_is_larger_than_that_of_the_given_order) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const graph tape = make_training_graph(testing::random_network(seed).make(), 2);
    const graph g = reordered(tape, testing::random_order(tape, seed));
    for (const policy p : {policy::none, policy::lossless, policy::fp8}) {
      const plan found = make_plan(g, any_order(p));
      EXPECT_LE(found.sizes.planned_peak_total, make_plan(g, keep(any_order(p))).sizes.planned_peak_total);
      EXPECT_LE(found.sizes.bound, found.sizes.planned_peak);
      EXPECT_THAT(validate(found), IsEmpty()) << seed;
    }
  }
}

TEST(order_planner, a_budget_below_every_plan_of_the_given_order_is_kept) {
  const graph g = wide_graph(6);
  const std::int64_t smallest = make_plan(g, any_order()).sizes.planned_peak_total;
  plan_options o = any_order();
  o.budget_bytes = smallest;
  EXPECT_THROW(make_plan(g, keep(o)), error);
  const plan found = make_plan(g, o);
  EXPECT_LE(found.sizes.planned_peak_total, smallest);
  EXPECT_THAT(validate(found), IsEmpty());
  o.budget_bytes = make_plan(g, keep(any_order())).sizes.baseline_peak_total;
  EXPECT_THAT(make_plan(g, o).planned_op, IsEmpty());  // the given order keeps it, too
}

TEST(order_planner, with_a_machine_the_faster_plan_is_taken) {
  const graph g = wide_graph(6);
  plan_options o = any_order();
  o.model = find_machine("rtx");
  o.swap = true;
  o.budget_bytes = make_plan(g, any_order()).sizes.planned_peak_total;
  const plan found = make_plan(g, o);
  EXPECT_LE(found.sizes.planned_peak_total, o.budget_bytes);
  EXPECT_THAT(validate(found), IsEmpty());
}

TEST(order_planner, refusals_are_those_of_the_order_that_needs_less) {
  const graph g = wide_graph(6);
  const std::int64_t smallest = make_plan(g, any_order()).sizes.planned_peak_total;
  plan_options o = any_order();
  o.budget_bytes = 1;
  try {
    make_plan(g, o);
    FAIL() << "planned within a byte";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::infeasible_budget);
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(smallest)));
  }
}

TEST(order_planner, the_validator_knows_the_planned_graph) {
  const plan good = make_plan(wide_graph(4), any_order());
  ASSERT_FALSE(good.planned_op.empty());
  const op_dependencies found = dependencies_of(good.network);
  int damaged = 0;
  for (const op_id o : good.network.ops.ids()) {
    for (const op_id first : found.before[o]) {
      plan bad = good;
      std::swap(bad.planned_op[o], bad.planned_op[first]);
      const std::vector<plan_finding> findings = validate(bad);
      ASSERT_THAT(findings, Not(IsEmpty())) << good.network.ops[o].name;
      EXPECT_EQ(findings.front().fault, plan_fault::bad_order);
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 10);
  for (const auto damage : {+[](plan& p) { p.planned_op.pop_back(); },
                            +[](plan& p) { p.planned_op[op_id(0)] = p.planned_op[op_id(1)]; },
                            +[](plan& p) { p.planned_op[op_id(0)] = op_id(); }}) {
    plan bad = good;
    damage(bad);
    const std::vector<plan_finding> findings = validate(bad);
    ASSERT_THAT(findings, Not(IsEmpty()));
    EXPECT_EQ(findings.front().fault, plan_fault::bad_order);
  }
}

TEST(order_planner, names_of_orders) {
  EXPECT_EQ(parse_op_order("keep"), op_order::keep);
  EXPECT_EQ(parse_op_order(to_string(op_order::memory)), op_order::memory);
  try {
    parse_op_order("fast");
    FAIL() << "parsed";
  } catch (const error& e) {
    EXPECT_STREQ(e.what(), "parse_op_order: name: expected keep or memory, got 'fast'");
  }
}

}  // namespace
}  // namespace stash::planner
