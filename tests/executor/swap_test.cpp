// SPDX-License-Identifier: Apache-2.0
// Training steps whose maps go to the host: no order that the edges allow changes a bit, every edge is
// needed, and whatever fails in the middle of a step leaves everything as before it.

#include <random>

#include "executor/swap_of_plan.hpp"
#include "executor/training_support.hpp"
#include "runtime/swap/swap_orders.hpp"
#include "support/failing_allocations.hpp"
#include "support/test_depth.hpp"

namespace stash::executor::testing {
namespace {

using planner::policy;
using planner::step_kind;

constexpr std::int64_t batch = 2;

planner::graph graph_of(const std::string& network, bool fused = false) {
  planner::training_graph_options options;
  options.fused_update = fused;
  planner::graph g =
      planner::make_training_graph(models::find(network).build({28, 28, 1}, 10), batch, options);
  static_cast<void>(annotate_workspaces(g, {1, framework_rule::tensorflow}));
  return g;
}

/// As much as can goes to the host: encoded under policy lossless, as it is under swap_only.
planner::plan plan_of(const std::string& network, policy chosen, bool fused = false) {
  planner::graph g = graph_of(network, fused);
  trainer_options o = make_options(chosen);
  o.plan.model = planner::find_machine("cpu");
  o.plan.swap = true;
  o.plan.smallest_swap = 64;
  o.plan.evaluations = 300;
  o.plan.swap_all = true;
  // Maps are so small that the arena would be larger than what sparse forms save.
  o.plan.overflow_share = 0.0;
  if (chosen != policy::swap_only) o.plan.budget_bytes = smallest_budget(g, o);
  const auto t = make_trainer(g, o);
  return t->current().current_plan();
}

std::size_t copies(const planner::plan& p) {
  return static_cast<std::size_t>(std::ranges::count_if(p.steps, [](const planner::step& s) {
    return s.kind == step_kind::copy_out || s.kind == step_kind::copy_in;
  }));
}

executor_options options_with(runtime::swap_schedule* schedule,
                              std::vector<runtime::swap_edge> without = {}) {
  executor_options o;
  o.swap.schedule = schedule;
  o.swap.without = std::move(without);
  o.swap.chunk_bytes = 4096;
  o.poison_freed = true;
  return o;
}

/// Hash of all parameters after steps from fresh weights; the loss is in it through the gradients.
std::string hash_after(executor& e, int steps) {
  e.initialise(5);
  for (int i = 0; i < steps; ++i) {
    const image_batch b = make_batch(e.current_plan().network, i);
    EXPECT_TRUE(e.train_step(b.images, b.labels, i, {}).committed);
  }
  return e.parameters_sha256();
}

std::string unplanned_hash(const std::string& network, int steps) {
  const auto t = make_trainer(graph_of(network), make_options(policy::none));
  return hash_after(t->current(), steps);
}

struct swapped_case {
  const char* network;
  policy chosen;
};

// Sanitizers make steps slow.
bool brief() {
  return sanitized || stash_test::only_part();
}

class swap : public ::testing::TestWithParam<swapped_case> {
 protected:
  const planner::plan p = plan_of(GetParam().network, GetParam().chosen);
};

TEST_P(swap, no_order_changes_a_bit) {
  constexpr int steps = 2;
  ASSERT_GE(copies(p), 4U);
  const std::string expected = unplanned_hash(GetParam().network, steps);
  executor threads(p, options_with(nullptr));
  EXPECT_EQ(hash_after(threads, steps), expected);
  std::size_t laggards = 0;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const step_kind kind = p.steps[i].kind;
    if (kind != step_kind::copy_out && kind != step_kind::copy_in && i % 16 != 0) continue;
    if (brief() && ++laggards > 12) break;
    runtime::laggard_order order(static_cast<std::int32_t>(i));
    executor e(p, options_with(&order));
    ASSERT_EQ(hash_after(e, steps), expected) << "laggard " << i;
    ASSERT_TRUE(order.violations.empty());
  }
  for (std::uint64_t seed = 0; seed < (brief() ? 4 : 20); ++seed) {
    runtime::random_order order(seed);
    executor e(p, options_with(&order));
    ASSERT_EQ(hash_after(e, steps), expected) << "random " << seed;
    ASSERT_TRUE(order.violations.empty());
  }
}

// At least 1000 edges over the plans of this test; all of a plan with fewer than its share.
TEST_P(swap, every_edge_is_missed) {
  const std::string expected = unplanned_hash(GetParam().network, 1);
  const std::vector<encode_report> reports(p.choices.size());
  std::vector<runtime::swap_edge> edges = swap_of_plan(p, reports).edges;
  ASSERT_GE(edges.size(), 4U);
  std::shuffle(edges.begin(), edges.end(), std::mt19937_64(3));
  edges.resize(std::min<std::size_t>(edges.size(), sanitized ? 10 : stash_test::cases(250)));
  // A map that leaves before a ReLU in place has run has the wrong values and the right signs. Where backward
  // reads no more than those, the result is right by luck, and only the order shows it.
  std::size_t by_luck = 0;
  for (const runtime::swap_edge& e : edges) {
    runtime::swap_program less = swap_of_plan(p, reports);
    std::erase(less.edges, e);
    ASSERT_FALSE(find_races(less).empty()) << e.before << " " << e.after;
    runtime::laggard_order order(e.before);
    executor run(p, options_with(&order, {e}));
    run.initialise(5);
    const image_batch b = make_batch(p.network, 0);
    std::string found;
    try {
      run.train_step(b.images, b.labels, 0, {});
      found = run.parameters_sha256();
    } catch (const error& refused) {
      found = refused.what();  // bytes that do not decode
    }
    EXPECT_FALSE(order.violations.empty()) << e.before << " " << e.after;
    const std::string& source = less.tasks[static_cast<std::size_t>(e.before)].name;
    if (found != expected) continue;
    EXPECT_TRUE(source.ends_with("relu"))
        << source << " -> " << less.tasks[static_cast<std::size_t>(e.after)].name;
    ++by_luck;
  }
  EXPECT_LE(by_luck * 20, edges.size());
}

INSTANTIATE_TEST_SUITE_P(plans, swap,
                         ::testing::Values(swapped_case{"lenet", policy::swap_only},
                                           swapped_case{"vgg_small", policy::swap_only},
                                           swapped_case{"vgg_small", policy::lossless},
                                           swapped_case{"resnet20", policy::swap_only},
                                           swapped_case{"resnet20", policy::lossless}),
                         [](const auto& c) {
                           return std::string(c.param.network) +
                                  (c.param.chosen == policy::lossless ? "_encoded" : "_raw");
                         });

// ---- transactions ---------------------------------------------------------------------------------------

/// Everything that a step may change.
std::vector<float> state_of(const executor& e) {
  std::vector<float> values;
  const planner::graph& g = e.current_plan().network;
  for (const planner::storage_id s : g.storages.ids()) {
    const planner::storage_role role = g.storages[s].role;
    if (role != planner::storage_role::weight && role != planner::storage_role::momentum &&
        role != planner::storage_role::statistic)
      continue;
    const std::span<const float> v = e.parameter(planner::storage_id(s));
    values.insert(values.end(), v.begin(), v.end());
  }
  return values;
}

class failing_step : public ::testing::TestWithParam<bool> {
 protected:
  const planner::plan p = plan_of("lenet", policy::swap_only, GetParam());
  const image_batch b = make_batch(p.network, 0);
};

TEST_P(failing_step, every_action_in_turn) {
  for (const bool threads : {false, true}) {
    runtime::list_order order;
    executor_options o = options_with(threads ? nullptr : &order);
    o.swap.chunk_bytes = 16384;
    std::atomic<int> left = -1;
    o.swap.before = [&](runtime::swap_action, std::int32_t) {
      if (left-- == 0) throw error(errc::device_failure, "expected a link, got none");
    };
    executor e(p, o);
    e.initialise(5);
    const std::vector<float> before = state_of(e);
    int n = 0;
    for (;; ++n) {
      left = n;
      try {
        e.train_step(b.images, b.labels, 0, {});
        break;
      } catch (const error& failure) {
        EXPECT_EQ(failure.code(), errc::device_failure);
        EXPECT_EQ(std::string_view(failure.what()).substr(0, 13), "swap engine: ");
      }
      ASSERT_EQ(state_of(e), before) << n;
    }
    EXPECT_GE(n, 20);
    EXPECT_NE(state_of(e), before);
    executor undisturbed(p, options_with(nullptr));
    undisturbed.initialise(5);
    undisturbed.train_step(b.images, b.labels, 0, {});
    EXPECT_EQ(state_of(e), state_of(undisturbed));
  }
}

TEST_P(failing_step, interrupted_before_every_step) {
  int left = -1;
  executor_options o = options_with(nullptr);
  o.stop = [&] { return left-- == 0; };
  executor e(p, o);
  e.initialise(5);
  const std::vector<float> before = state_of(e);
  int n = 0;
  for (;; ++n) {
    left = n;
    try {
      e.train_step(b.images, b.labels, 0, {});
      break;
    } catch (const error& failure) {
      EXPECT_EQ(failure.code(), errc::interrupted);
    }
    ASSERT_EQ(state_of(e), before) << n;
  }
  EXPECT_GE(n, 20);
  EXPECT_NE(state_of(e), before);
}

TEST_P(failing_step, every_allocation_in_turn) {
  runtime::list_order order;
  executor undisturbed(p, options_with(nullptr));
  undisturbed.initialise(5);
  undisturbed.train_step(b.images, b.labels, 0, {});
  for (const bool threads : {false, true}) {
    executor e(p, options_with(threads ? nullptr : &order));
    e.initialise(5);
    const std::vector<float> before = state_of(e);
    std::int64_t n = 0;
    for (bool failed = true; failed; ++n) {
      failed = false;
      const stash_test::failing_allocation failing(n);
      try {
        e.train_step(b.images, b.labels, 0, {});
      } catch (const error& refused) {
        failed = true;
        EXPECT_EQ(refused.code(), errc::out_of_memory) << refused.what();
      }
      if (failed) {
        ASSERT_TRUE(failing.failed());
        ASSERT_EQ(state_of(e), before) << n;
      }
    }
    EXPECT_EQ(state_of(e), state_of(undisturbed)) << n;
  }
}

// Copies fail and maps do not fit, again and again: the weights are those of a run that nothing disturbed.
TEST_P(failing_step, ten_thousand_steps) {
  const int steps = sanitized ? 100 : static_cast<int>(stash_test::cases(GetParam() ? 2'000 : 10'000));
  executor undisturbed(p, {});
  undisturbed.initialise(5);
  executor_options o = options_with(nullptr);
  o.poison_freed = false;
  std::mt19937_64 random(11);
  std::atomic<int> left = -1;
  o.swap.before = [&](runtime::swap_action, std::int32_t) {
    if (left-- == 0) throw error(errc::device_failure, "expected a link, got none");
  };
  executor e(p, o);
  e.initialise(5);
  bool overflows = false;
  const std::size_t backward = first_backward_step(p);
  e.after_step = [&](std::size_t i) {
    if (overflows && i < backward) e.report(planner::storage_id(0)).status |= status_capacity;
  };
  std::vector<image_batch> batches;
  for (int i = 0; i < 16; ++i)
    batches.push_back(make_batch(p.network, i));
  const sgd_settings sgd{0.01F, 0.9F, 5e-4F};
  int failures = 0, overflowed = 0;
  for (int step = 0; step < steps; ++step) {
    const image_batch& x = batches[static_cast<std::size_t>(step) % batches.size()];
    undisturbed.train_step(x.images, x.labels, step, sgd);
    for (bool committed = false; !committed;) {
      left = random() % 4 == 0 ? static_cast<int>(random() % 60) : -1;
      overflows = random() % 8 == 0;
      try {
        committed = e.train_step(x.images, x.labels, step, sgd).committed;
        overflowed += committed ? 0 : 1;
      } catch (const error&) {
        ++failures;
      }
    }
  }
  EXPECT_GT(failures, steps / 20);
  EXPECT_GT(overflowed, steps / 20);
  EXPECT_EQ(e.parameters_sha256(), undisturbed.parameters_sha256());
}

INSTANTIATE_TEST_SUITE_P(updates, failing_step, ::testing::Bool(),
                         [](const auto& fused) { return fused.param ? "in_backward" : "at_the_end"; });

TEST(swap_of_plan, sparse_maps_move_what_they_hold) {
  const planner::plan p = plan_of("vgg_small", policy::lossless);
  const std::vector<encode_report> reports(p.choices.size());
  const runtime::swap_program program = swap_of_plan(p, reports);
  std::size_t sparse = 0;
  for (const runtime::swap_task& t : program.tasks)
    sparse += t.used != nullptr ? 1 : 0;
  EXPECT_GT(sparse, 0U);
}

}  // namespace
}  // namespace stash::executor::testing
