// SPDX-License-Identifier: Apache-2.0
// Updates in the backward pass: the same weights bit for bit, with the gradients of one layer at a time.

#include "executor/training_support.hpp"

namespace stash::executor::testing {
namespace {

constexpr int steps = sanitized ? 3 : 20;

planner::graph graph_of(const std::string& network, bool fused) {
  planner::training_graph_options options;
  options.fused_update = fused;
  planner::graph g = planner::make_training_graph(models::find(network).build({28, 28, 1}, 10), 8, options);
  static_cast<void>(annotate_workspaces(g, {1, framework_rule::tensorflow}));
  return g;
}

class fused_update : public ::testing::TestWithParam<std::string> {};

TEST_P(fused_update, weights_are_those_of_one_update_at_the_end) {
  const auto plain = make_trainer(graph_of(GetParam(), false), make_options(planner::policy::none));
  const training_log expected = train(*plain, steps);
  for (const planner::policy p : {planner::policy::none, planner::policy::lossless}) {
    trainer_options o = make_options(p);
    const auto t = make_trainer(graph_of(GetParam(), true), o);
    expect_identical(expected, train(*t, steps));
    EXPECT_LT(t->current().current_plan().sizes.parameter_bytes,
              plain->current().current_plan().sizes.parameter_bytes);
    EXPECT_LE(t->touched_peak_total(), t->planned_peak_total());
  }
}

TEST_P(fused_update, a_step_for_gradients_changes_no_weight) {
  const auto t = make_trainer(graph_of(GetParam(), true), make_options(planner::policy::none));
  executor e(t->current().current_plan(), {});
  e.initialise(3);
  const std::string before = e.parameters_sha256();
  const image_batch b = make_batch(e.current_plan().network, 0);
  EXPECT_TRUE(e.gradient_step(b.images, b.labels, 0).committed);
  EXPECT_EQ(e.parameters_sha256(), before);
  EXPECT_TRUE(e.train_step(b.images, b.labels, 0, {}).committed);
  EXPECT_NE(e.parameters_sha256(), before);
}

INSTANTIATE_TEST_SUITE_P(networks, fused_update, ::testing::Values("lenet", "resnet20"),
                         [](const auto& network) { return network.param; });

TEST(fused_update, gradients_that_are_there_together_are_refused) {
  planner::graph g = graph_of("lenet", true);
  // The last two updates are swapped with what comes between them.
  std::vector<planner::op_id> updates;
  for (const planner::op_id i : g.ops.ids()) {
    if (g.ops[i].kind == planner::op_kind::sgd_update) updates.push_back(i);
  }
  ASSERT_GE(updates.size(), 2U);
  const planner::op_id first = updates[updates.size() - 2], last = updates.back();
  planner::op moved = g.ops[first];
  g.ops.erase(g.ops.begin() + first.number());
  g.ops.insert(g.ops.begin() + last.number(), std::move(moved));
  planner::plan_options o;
  o.chosen_policy = planner::policy::none;
  const planner::plan p = planner::make_plan(g, o);
  try {
    executor e(p, {});
    ADD_FAILURE() << "accepted";
  } catch (const error& refused) {
    EXPECT_EQ(refused.code(), errc::invalid_argument);
    EXPECT_NE(std::string_view(refused.what()).find("before the next gradient begins"),
              std::string_view::npos);
  }
}

}  // namespace
}  // namespace stash::executor::testing
