// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/repeat_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/graph/sample_graph.hpp"
#include "planner/plan.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_text.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using ::testing::IsEmpty;

std::vector<graph> graphs() {
  return {sample_graph(), graph_of(read_trace(small_trace()))};
}

std::size_t count(const graph& g, op_stage stage) {
  return static_cast<std::size_t>(
      std::count_if(g.ops.begin(), g.ops.end(), [&](const op& o) { return o.stage == stage; }));
}

TEST(repeat_graph, forward_and_mirrored_backward_as_often_as_told) {
  for (const graph& g : graphs()) {
    const graph s = repeat_graph(g, 3);
    EXPECT_EQ(count(s, op_stage::forward), 3 * count(g, op_stage::forward));
    EXPECT_EQ(count(s, op_stage::backward), 3 * count(g, op_stage::backward));
    EXPECT_EQ(count(s, op_stage::update), count(g, op_stage::update));
    const std::size_t forward = count(g, op_stage::forward);
    EXPECT_EQ(s.ops[op_id(3 * forward)].name, g.ops[op_id(forward)].name + "#3");
    const op& first_copy = s.ops[op_id(3 * forward + 2 * count(g, op_stage::backward))];
    EXPECT_EQ(first_copy.name, g.ops[op_id(forward)].name);
  }
}

TEST(repeat_graph, copies_have_maps_of_their_own_and_share_parameters) {
  for (const graph& g : graphs()) {
    const graph s = repeat_graph(g, 2);
    std::size_t own = 0;
    for (const storage& x : g.storages) {
      own += x.role == storage_role::feature_map || x.role == storage_role::gradient ||
             x.role == storage_role::auxiliary || x.role == storage_role::saved_statistic;
    }
    EXPECT_EQ(s.storages.size(), g.storages.size() + own);
    const std::size_t forward = count(g, op_stage::forward);
    EXPECT_EQ(s.ops[op_id(forward)].parameters.empty(), g.ops[op_id(0)].parameters.empty());
    EXPECT_EQ(s.ops[op_id(forward)].parameters.at(0), g.ops[op_id(0)].parameters.at(0));
    EXPECT_NE(s.ops[op_id(forward)].outputs.at(0).storage, g.ops[op_id(0)].outputs.at(0).storage);
    for (const op& o : s.ops) {
      if (o.forward_op.valid()) {
        EXPECT_EQ(o.name.ends_with("#2"), s.op_at(o.forward_op).name.ends_with("#2")) << o.name;
      }
    }
    EXPECT_EQ(s.recipes.size(), 2 * g.recipes.size());
  }
}

TEST(repeat_graph, plans_are_valid_and_keep_every_copy) {
  for (const graph& g : graphs()) {
    plan_options options;
    options.chosen_policy = policy::none;
    const plan once = make_plan(g, options);
    const plan thrice = make_plan(repeat_graph(g, 3), options);
    EXPECT_THAT(validate(thrice), IsEmpty());
    EXPECT_GT(thrice.sizes.boundary, 2 * once.sizes.boundary);
  }
}

TEST(repeat_graph, once_is_the_graph_itself_and_less_is_refused) {
  for (const graph& g : graphs()) {
    EXPECT_EQ(repeat_graph(g, 1).ops.size(), g.ops.size());
    EXPECT_EQ(repeat_graph(g, 1).name, g.name);
    EXPECT_THROW(repeat_graph(g, 0), error);
    EXPECT_THROW(repeat_graph(g, 2'000'000'000), error);
  }
}

}  // namespace
}  // namespace stash::planner
