// SPDX-License-Identifier: Apache-2.0
// Plans say the truth about memory: what a run touches is what was planned, and no buffer is read after its
// last planned use.

#include "executor/training_support.hpp"

namespace stash::executor::testing {
namespace {

using planner::policy;

// Large enough for the overflow arena's smallest size to be a small part of everything.
constexpr std::int64_t batch = sanitized ? 8 : 32;

const planner::graph& graph_of(const std::string& network) {
  static std::map<std::string, planner::graph> graphs;
  const auto [at, fresh] = graphs.try_emplace(network);
  if (fresh) at->second = make_graph(network, batch);
  return at->second;
}

void expect_within_a_percent(std::int64_t planned, std::int64_t touched, const char* what) {
  EXPECT_LE(touched, planned) << what;
  EXPECT_GE(static_cast<double>(touched), 0.99 * static_cast<double>(planned)) << what;
}

using run = std::tuple<std::string, policy>;

class memory : public ::testing::TestWithParam<run> {};

TEST_P(memory, touched_peak_is_the_planned_peak) {
  const auto& [network, chosen] = GetParam();
  const auto t = make_trainer(graph_of(network), make_options(chosen));
  static_cast<void>(train(*t, 2));
  expect_within_a_percent(t->planned_peak(), t->touched_peak(), "maps");
  expect_within_a_percent(t->planned_peak_total(), t->touched_peak_total(), "total");
}

TEST_P(memory, touched_peak_is_the_planned_peak_under_a_budget) {
  const auto& [network, chosen] = GetParam();
  if (chosen == policy::none) GTEST_SKIP() << "an unplanned run has no choice";
  trainer_options o = make_options(chosen);
  const std::int64_t least = smallest_budget(graph_of(network), o);
  const std::int64_t most =
      planner::make_plan(graph_of(network), make_options(policy::none).plan).sizes.planned_peak_total;
  o.plan.budget_bytes = least + (most - least) / 2;
  const auto t = make_trainer(graph_of(network), o);
  static_cast<void>(train(*t, 2));
  EXPECT_LE(t->planned_peak_total(), o.plan.budget_bytes);
  expect_within_a_percent(t->planned_peak(), t->touched_peak(), "maps");
  expect_within_a_percent(t->planned_peak_total(), t->touched_peak_total(), "total");
}

TEST_P(memory, nothing_is_read_after_its_last_use) {
  const auto& [network, chosen] = GetParam();
  const planner::graph g = make_graph(network, 8);
  training_log logs[2];
  for (const bool poison : {false, true}) {
    trainer_options o = make_options(chosen);
    o.executor.poison_freed = poison;
    logs[poison ? 1 : 0] = train(*make_trainer(g, o), 3);
  }
  expect_identical(logs[0], logs[1]);
}

TEST_P(memory, evaluation_stays_inside_the_plan_and_changes_nothing) {
  const auto& [network, chosen] = GetParam();
  const planner::graph g = make_graph(network, 8);
  const auto t = make_trainer(g, make_options(chosen));
  const auto twin = make_trainer(g, make_options(chosen));
  const image_batch b = make_batch(g, 5);
  training_log with, without;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t right = t->current().count_correct(b.images, b.labels, g.batch);
    EXPECT_GE(right, 0);
    EXPECT_LE(right, g.batch);
    EXPECT_EQ(t->current().count_correct(b.images, b.labels, g.batch), right);
    const training_log one = train(*t, 1), other = train(*twin, 1);
    expect_identical(other, one);
  }
  EXPECT_LE(t->touched_peak_total(), t->planned_peak_total());
}

INSTANTIATE_TEST_SUITE_P(runs, memory,
                         ::testing::Combine(::testing::Values("lenet", "vgg_small", "resnet20"),
                                            ::testing::Values(policy::none, policy::lossless, policy::fp16,
                                                              policy::fp8)),
                         [](const auto& p) {
                           return std::get<0>(p.param) + "_" +
                                  std::string(planner::to_string(std::get<1>(p.param)));
                         });

// A 32x32 colour input goes through the same machinery.
TEST(memory_of_colour_images, touched_peak_is_the_planned_peak) {
  const planner::graph g = make_graph("vgg_small", 16, 1, {32, 32, 3});
  const auto t = make_trainer(g, make_options(policy::lossless));
  const auto unplanned = make_trainer(g, make_options(policy::none));
  expect_identical(train(*unplanned, 2), train(*t, 2));
  expect_within_a_percent(t->planned_peak(), t->touched_peak(), "maps");
}

}  // namespace
}  // namespace stash::executor::testing
