// SPDX-License-Identifier: Apache-2.0
// Lossless plans change nothing: losses of every step and all parameters equal the unplanned run's bit for
// bit, whatever is encoded and however tight the budget is.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "executor/training_support.hpp"
#include "planner/graph/random_order.hpp"
#include "support/test_depth.hpp"

namespace stash::executor::testing {
namespace {

constexpr std::int64_t batch = 8;

// Sanitizers make a step some ten times slower; they look for other faults than differences in late steps.
constexpr int steps = sanitized ? 4 : 50;

const planner::graph& graph_of(const std::string& network, int threads) {
  static std::map<std::pair<std::string, int>, planner::graph> graphs;
  const auto [at, fresh] = graphs.try_emplace({network, threads});
  if (fresh) at->second = make_graph(network, batch, threads);
  return at->second;
}

const training_log& unplanned(const std::string& network, int threads) {
  static std::map<std::pair<std::string, int>, training_log> logs;
  const auto [at, fresh] = logs.try_emplace({network, threads});
  if (fresh) {
    const auto t = make_trainer(graph_of(network, threads), make_options(planner::policy::none, threads));
    at->second = train(*t, steps);
  }
  return at->second;
}

std::int64_t baseline_bytes(const std::string& network) {
  return planner::make_plan(graph_of(network, 1), make_options(planner::policy::none).plan)
      .sizes.baseline_peak_total;
}

std::set<std::string> encodings_used(const planner::plan& p) {
  std::set<std::string> names;
  for (const planner::stash_choice& c : p.choices) {
    if (c.kind == planner::stash_kind::raw) names.insert("raw");
    if (c.kind == planner::stash_kind::recompute) names.insert("recompute");
    if (c.kind == planner::stash_kind::encoded) names.insert(to_string(c.stored));
  }
  return names;
}

class lossless : public ::testing::TestWithParam<std::string> {
 protected:
  // A map may outgrow a budget that was the smallest one for the first batch: then the smallest one for
  // the whole run is looked for from there.
  struct budgeted_run {
    std::int64_t budget = 0;
    training_log log;
  };
  budgeted_run run_at(std::int64_t budget) const {
    trainer_options o = make_options(planner::policy::lossless);
    for (int attempt = 0; attempt < 20; ++attempt) {
      o.plan.budget_bytes = budget;
      const auto t = make_trainer(graph_of(GetParam(), 1), o);
      try {
        training_log log = train(*t, steps);
        EXPECT_LE(t->planned_peak_total(), budget);
        EXPECT_LE(t->touched_peak_total(), budget);
        return {budget, std::move(log)};
      } catch (const error& e) {
        const std::int64_t next = budget_in(e);
        EXPECT_GT(next, budget);
        budget = next;
      }
    }
    ADD_FAILURE() << "no budget was enough, the last one was " << budget;
    return {};
  }
};

TEST_P(lossless, learns) {
  const std::vector<double>& losses = unplanned(GetParam(), 1).losses;
  const auto mean = [&](std::size_t first, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += losses[first + i];
    return sum / static_cast<double>(count);
  };
  const std::size_t part = losses.size() / 4;
  for (const double loss : losses)
    ASSERT_TRUE(std::isfinite(loss));
  if (!sanitized) {
    EXPECT_LT(mean(losses.size() - part, part), mean(0, part)) << "a run that goes nowhere proves nothing";
  }
}

TEST_P(lossless, least_memory) {
  const auto t = make_trainer(graph_of(GetParam(), 1), make_options(planner::policy::lossless));
  const planner::plan_sizes& sizes = t->current().current_plan().sizes;
  EXPECT_LT(sizes.planned_peak, sizes.baseline_peak);
  expect_identical(unplanned(GetParam(), 1), train(*t, steps));
}

TEST_P(lossless, ops_in_another_order) {
  const planner::graph& tape = graph_of(GetParam(), 1);
  trainer_options o = make_options(planner::policy::lossless);
  o.plan.order = planner::op_order::memory;
  const auto t = make_trainer(planner::reordered(tape, planner::testing::random_order(tape, 1)), o);
  expect_identical(unplanned(GetParam(), 1), train(*t, steps));
}

TEST_P(lossless, smallest_budget) {
  const std::int64_t smallest =
      smallest_budget(graph_of(GetParam(), 1), make_options(planner::policy::lossless));
  const budgeted_run run = run_at(smallest);
  EXPECT_LT(run.budget, baseline_bytes(GetParam()));
  expect_identical(unplanned(GetParam(), 1), run.log);
}

TEST_P(lossless, halfway_to_the_baseline) {
  const std::int64_t smallest =
      smallest_budget(graph_of(GetParam(), 1), make_options(planner::policy::lossless));
  const std::int64_t half = smallest + (baseline_bytes(GetParam()) - smallest) / 2;
  const budgeted_run run = run_at(half);
  EXPECT_EQ(run.budget, half);
  expect_identical(unplanned(GetParam(), 1), run.log);
}

TEST_P(lossless, baseline_budget) {
  const budgeted_run run = run_at(baseline_bytes(GetParam()));
  EXPECT_EQ(run.budget, baseline_bytes(GetParam()));
  expect_identical(unplanned(GetParam(), 1), run.log);
}

TEST_P(lossless, two_threads_with_two_threads) {
  const auto t = make_trainer(graph_of(GetParam(), 2), make_options(planner::policy::lossless, 2));
  expect_identical(unplanned(GetParam(), 2), train(*t, steps));
}

// Plans made for speed: maps go to the host and come back, norms are computed again. Every feasible budget
// gives the unplanned run's bits.
TEST_P(lossless, swapped_at_every_budget) {
  const int few = sanitized || stash_test::only_part() ? 2 : 5;
  const planner::graph& g = graph_of(GetParam(), 1);
  const auto plain = make_trainer(g, make_options(planner::policy::none));
  const training_log expected = train(*plain, few);
  trainer_options o = make_options(planner::policy::automatic);
  o.plan.model = planner::find_machine("cpu");
  o.plan.swap = true;
  o.plan.smallest_swap = 512;
  o.plan.evaluations = 300;
  const std::int64_t smallest = smallest_budget(g, o), baseline = baseline_bytes(GetParam());
  ASSERT_LT(smallest, baseline);
  int swapped = 0, plans = 0;
  for (int part = 0; part <= 4; ++part) {
    o.plan.budget_bytes = smallest + (baseline - smallest) * part / 4;
    // At the smallest budgets a map that outgrows its slot may leave no plan.
    std::unique_ptr<trainer> t;
    training_log log;
    try {
      t = make_trainer(g, o);
      log = train(*t, few);
    } catch (const error& e) {
      ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
      ASSERT_LE(part, 1) << e.what();
      continue;
    }
    ++plans;
    const planner::plan& p = t->current().current_plan();
    swapped += std::any_of(p.choices.begin(), p.choices.end(),
                           [](const planner::stash_choice& c) { return c.swapped; });
    EXPECT_LE(t->planned_peak_total(), o.plan.budget_bytes);
    EXPECT_LE(t->touched_peak_total(), o.plan.budget_bytes);
    expect_identical(expected, log);
  }
  EXPECT_GE(plans, 3);
  // The peak of lenet is what one op works on: nothing that could move.
  EXPECT_GE(swapped, GetParam() == "lenet" ? 0 : 1) << "plans without a swap prove nothing of it";
}

INSTANTIATE_TEST_SUITE_P(networks, lossless, ::testing::Values("lenet", "vgg_small", "resnet20"),
                         [](const auto& p) { return p.param; });

// Where no storage of a network has only readers that an encoding serves (docs/needs.md), forcing it is an
// error. lenet: every ReLU is joined with a pool or read as values by the next layer, so none is left for
// sign_mask. Max pooling gives window_index and relu_pool their work, batch norm with ReLU recompute.
struct legality {
  std::string network;
  std::set<std::string> nowhere;
};

using forced = std::tuple<legality, std::string>;

class lossless_forced : public ::testing::TestWithParam<forced> {};

TEST_P(lossless_forced, equals_the_unplanned_run) {
  const auto& [where, encoding] = GetParam();
  const planner::graph& g = graph_of(where.network, 1);
  trainer_options o = make_options(planner::policy::lossless);
  o.plan.force = encoding;
  if (where.nowhere.contains(encoding)) {
    try {
      make_trainer(g, o);
      FAIL() << "expected error(invalid_argument)";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument) << e.what();
      EXPECT_NE(std::string_view(e.what()).find(encoding), std::string_view::npos) << e.what();
    }
    return;
  }
  // Forced where it does not pay, an encoding may need a little more than the unplanned run does.
  const std::int64_t baseline = baseline_bytes(where.network);
  o.plan.budget_bytes = baseline;
  std::unique_ptr<trainer> t;
  try {
    t = make_trainer(g, o);
  } catch (const error& e) {
    EXPECT_LT(budget_in(e), baseline + baseline / 20);
    o.plan.budget_bytes = 0;
    t = make_trainer(g, o);
  }
  EXPECT_TRUE(encodings_used(t->current().current_plan()).contains(encoding));
  expect_identical(unplanned(where.network, 1), train(*t, steps));
  EXPECT_TRUE(encodings_used(t->current().current_plan()).contains(encoding)) << "a rerun dropped it";
}

INSTANTIATE_TEST_SUITE_P(
    encodings, lossless_forced,
    ::testing::Combine(
        ::testing::Values(legality{"lenet", {"sign_mask", "recompute"}}, legality{"vgg_small", {"recompute"}},
                          legality{"resnet20", {"window_index", "relu_pool"}}),
        ::testing::Values("raw", "sign_mask", "window_index", "relu_pool", "bitmap", "csr", "recompute")),
    [](const auto& p) { return std::get<0>(p.param).network + "_" + std::get<1>(p.param); });

}  // namespace
}  // namespace stash::executor::testing
