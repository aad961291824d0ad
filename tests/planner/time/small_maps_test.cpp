// SPDX-License-Identifier: Apache-2.0
// Networks of many small maps: codecs of these make no steps of their own (planner/time/problem.hpp), and
// what they take must be in the plan's timeline all the same.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "models/models.hpp"
#include "planner/budget_planner.hpp"
#include "planner/plan_answers.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

graph small_graph(const char* name, std::int64_t batch, std::int64_t steps = 6) {
  const models::model_info& info = models::find(name);
  if (info.make_graph == nullptr) return models::default_graph(info, batch);
  models::graph_parameters parameters = info.default_parameters;
  parameters.steps = steps;
  return info.make_graph(batch, parameters);
}

plan_options options_on(const char* machine, policy chosen) {
  plan_options o;
  o.chosen_policy = chosen;
  o.model = find_machine(machine);
  o.swap = chosen != policy::gist && chosen != policy::none;
  o.evaluations = 100;
  return o;
}

// What a plan encodes, decodes and computes again.
std::size_t codecs(const plan& p) {
  return static_cast<std::size_t>(std::count_if(p.steps.begin(), p.steps.end(), [](const step& s) {
    return s.kind == step_kind::encode || s.kind == step_kind::decode || s.kind == step_kind::recompute;
  }));
}

TEST(small_maps, work_of_the_last_codecs_lies_before_the_update) {
  for (const char* name : {"lstm_lm", "seq2seq"}) {
    const graph g = models::default_graph(models::find(name), 2);
    const plan p = make_plan(g, options_on("rtx", policy::gist));
    EXPECT_EQ(findings_of(p), "") << name;
    EXPECT_GT(codecs(p), 100U) << name;
  }
}

TEST(small_maps, forced_forms) {
  plan_options o = options_on("rtx", policy::fp16);
  o.force = "fp16";
  const plan p = make_plan(small_graph("bert_base", 1), o);
  EXPECT_EQ(findings_of(p), "");
  EXPECT_GT(codecs(p), 100U);
}

// A copy may end while small maps are encoded, in a tick of which the plan shows no encoder: compute does not
// stand still then.
TEST(small_maps, work_that_no_step_shows_is_not_waited_for) {
  constexpr std::pair<const char*, int> networks[] = {{"bert_base", 40}, {"gpt2_small", 50}};
  for (const auto& [name, percent] : networks) {
    budget_planner sweep(small_graph(name, 1, 8), options_on("rtx", policy::fp8));
    const std::int64_t maps = sweep.baseline_bytes() - sweep.static_bytes();
    EXPECT_EQ(findings_of(sweep.make(sweep.static_bytes() + maps * percent / 100)), "") << name;
  }
}

TEST(small_maps, plans_are_valid_whatever_the_policy_and_the_machine) {
  constexpr policy policies[] = {policy::none, policy::lossless, policy::fp16,     policy::fp8,
                                 policy::gist, policy::layrub,   policy::swap_only};
  const std::vector<const char*> machines =
      stash_test::only_part() ? std::vector{"rtx"} : std::vector{"cpu", "rtx", "a100"};
  const std::vector<std::int64_t> batches =
      stash_test::only_part() ? std::vector<std::int64_t>{3} : std::vector<std::int64_t>{1, 3};
  std::size_t plans = 0, with_codecs = 0;
  for (const char* name : {"lenet", "resnet20", "lstm_lm", "seq2seq", "bert_base", "gpt2_small"}) {
    for (const std::int64_t batch : batches) {
      const graph g = small_graph(name, batch);
      for (const policy chosen : policies) {
        for (const char* machine : machines) {
          budget_planner sweep(g, options_on(machine, chosen));
          const std::int64_t maps = sweep.baseline_bytes() - sweep.static_bytes();
          for (const int percent : {60, 80, 110}) {
            plan p;
            try {
              p = sweep.make(sweep.static_bytes() + maps * percent / 100);
            } catch (const error& e) {
              ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
              continue;
            }
            ++plans;
            if (codecs(p) > 0) ++with_codecs;
            ASSERT_EQ(findings_of(p), "") << name << ", batch " << batch << ", " << to_string(chosen) << ", "
                                          << machine << ", " << percent << " %";
            ASSERT_GE(p.times.simulated_ms, p.times.bound_ms * (1 - 1e-9));
          }
        }
      }
    }
  }
  std::printf("%zu plans, %zu with codecs\n", plans, with_codecs);
  EXPECT_GT(plans, stash_test::cases(350));
  EXPECT_GT(with_codecs, stash_test::cases(120));
}

}  // namespace
}  // namespace stash::planner::testing
