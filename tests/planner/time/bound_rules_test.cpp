// SPDX-License-Identifier: Apache-2.0
// Plans that break the rules of their bound, or leave out what it is made of, are found.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "planner/budget_planner.hpp"
#include "planner/plan_answers.hpp"
#include "planner/time/bound_plans.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

// Whether a fault of this kind is found after the change, and none before.
void expect_noticed(const plan& sound, const char* what, plan_fault expected,
                    const std::function<void(plan&)>& change) {
  plan p = sound;
  change(p);
  const auto findings = validate(p);
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                          [&](const plan_finding& f) { return f.fault == expected; }))
      << what << ": expected " << to_string(expected) << ", got\n"
      << findings_of(p);
}

// The least bytes that a moved form takes, rounded up.
std::int64_t smallest_moved(const plan& p) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const buffer& b : p.buffers) {
    if (b.form == buffer_form::host) least = std::min(least, b.bytes);
  }
  return least;
}

// The bound holds for plans that keep to these rules: a plan that breaks them may be faster.
TEST(bound_rules, plans_outside_its_rules_are_refused) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  using enum plan_fault;
  for (const plan& sound : tight_plans(stash_test::only_part() ? 2 : 6)) {
    SCOPED_TRACE(sound.network.name);
    ASSERT_EQ(findings_of(sound), "");
    const auto moved = std::find_if(sound.choices.begin(), sound.choices.end(),
                                    [](const stash_choice& c) { return c.swapped; });
    const std::string name = sound.network.storages[sound.choices.id_of(moved)].name;
    expect_noticed(sound, "nothing may move", illegal_encoding, [](plan& p) { p.swap = false; });
    for (double machine::*rate : {&machine::out_bytes_per_second, &machine::in_bytes_per_second})
      expect_noticed(sound, "no link", illegal_encoding, [=](plan& p) { (*p.model).*rate = 0.0; });
    expect_noticed(sound, "a host that is too small for what is largest", over_budget, [](plan& p) {
      for (const buffer& b : p.buffers) {
        if (b.form == buffer_form::host) p.model->host_bytes = std::max(p.model->host_bytes, b.bytes - 1);
      }
    });
    expect_noticed(sound, "only larger forms may move", illegal_encoding,
                   [](plan& p) { p.smallest_swap = smallest_moved(p) + 1; });
    expect_noticed(sound, "a tensor that stays", illegal_encoding, [&](plan& p) {
      p.tensors = {{name, {"swap"}, true}};
    });
    expect_noticed(sound, "all tensors as they are", illegal_encoding, [](plan& p) {
      p.tensors = {{"*", {"raw"}, false}};
    });
    expect_noticed(sound, "no copies", illegal_encoding, [](plan& p) {
      const auto stays = std::find_if(p.choices.begin(), p.choices.end(), [](const stash_choice& c) {
        return c.kind != stash_kind::none && !c.swapped;
      });
      ASSERT_NE(stays, p.choices.end());
      stays->swapped = true;
    });
    // What is exactly at the limit is within it.
    plan p = sound;
    p.model->host_bytes = p.sizes.host_bytes;
    p.smallest_swap = smallest_moved(p);
    p.tensors = {{"*", {"nothing"}, true}};
    for (const plan_finding& found : validate(p))
      EXPECT_EQ(found.fault, plan_fault::bad_bound) << found.message;
  }
}

// Shows everything in less time, the bound included.
void compress_times(plan& p, double share) {
  for (step_time& t : p.timeline) {
    t.begin_ms *= share;
    t.end_ms *= share;
  }
  p.times.simulated_ms *= share;
  p.times.update_ms *= share;
  p.times.bound_ms = std::min(p.times.bound_ms, p.times.simulated_ms);
}

TEST(bound_rules, times_that_the_machine_cannot_reach_are_refused) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  constexpr plan_fault bad = plan_fault::bad_times;
  for (const plan& sound : tight_plans(stash_test::only_part() ? 2 : 6)) {
    SCOPED_TRACE(sound.network.name);
    ASSERT_EQ(findings_of(sound), "");
    const auto first = [&](plan& p, step_kind kind) -> step_time& {
      const auto at =
          std::find_if(p.steps.begin(), p.steps.end(), [&](const step& s) { return s.kind == kind; });
      return p.timeline.at(static_cast<std::size_t>(at - p.steps.begin()));
    };
    expect_noticed(sound, "times without a timeline", bad, [](plan& p) { p.timeline.clear(); });
    expect_noticed(sound, "everything faster", bad, [](plan& p) { compress_times(p, 0.999); });
    expect_noticed(sound, "no time at all", bad, [](plan& p) {
      p.timeline.assign(p.timeline.size(), {});
      p.times.update_ms = p.times.simulated_ms;
    });
    expect_noticed(sound, "a quick op", bad, [&](plan& p) {
      step_time& t = first(p, step_kind::run);
      t.end_ms -= 0.01 * (t.end_ms - t.begin_ms);
    });
    for (const step_kind kind : {step_kind::copy_out, step_kind::copy_in}) {
      expect_noticed(sound, "a quick copy", bad, [&](plan& p) {
        step_time& t = first(p, kind);
        t.begin_ms = t.end_ms - 0.4 * (t.end_ms - t.begin_ms);
      });
    }
    expect_noticed(sound, "a quick update", bad, [](plan& p) {
      const double less = 0.01 * p.times.update_ms;
      ASSERT_GT(less, 0.0);
      p.times.update_ms -= less;
      p.times.simulated_ms -= less;
      p.times.bound_ms = std::min(p.times.bound_ms, p.times.simulated_ms);
    });
    // Everything that is not an op is left out.
    expect_noticed(sound, "codecs that take no time", bad, [](plan& p) {
      double now = 0.0;
      for (std::size_t i = 0; i < p.steps.size(); ++i) {
        const double ms = p.timeline[i].end_ms - p.timeline[i].begin_ms;
        const bool runs = p.steps[i].kind == step_kind::run;
        p.timeline[i] = {now, runs ? now + ms : now};
        now = p.timeline[i].end_ms;
      }
      p.times.simulated_ms = now + p.times.update_ms;
      p.times.bound_ms = std::min(p.times.bound_ms, p.times.simulated_ms);
    });
    plan untimed = sound;
    untimed.timeline.clear();
    untimed.times = {};
    untimed.certificate = {};
    EXPECT_EQ(findings_of(untimed), "");
  }
}

// The sum counts, whatever the copies do.
TEST(bound_rules, codecs_take_their_time) {
  std::uint64_t noticed = 0;
  for_each_plan(stash_test::only_part() ? 12 : 40, 1, [&](const plan& sound, const plan_options&) {
    const bool waits = std::any_of(sound.steps.begin(), sound.steps.end(),
                                   [](const step& s) { return s.kind >= step_kind::copy_out; });
    double saved = 0.0;
    plan p = sound;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      const double ms = p.timeline[i].end_ms - p.timeline[i].begin_ms;
      p.timeline[i].begin_ms -= saved;
      if (p.steps[i].kind != step_kind::run) saved += ms;
      p.timeline[i].end_ms -= saved;
    }
    p.times.simulated_ms -= saved;
    p.times.bound_ms = std::min(p.times.bound_ms, p.times.simulated_ms);
    if (waits || saved == 0.0) return true;
    EXPECT_NE(findings_of(p), "") << p.network.name;
    ++noticed;
    return true;
  });
  EXPECT_GT(noticed, stash_test::cases(10));
}

TEST(bound_rules, plans_with_a_small_host_keep_to_it) {
  std::uint64_t plans = 0, refused = 0;
  for_each_plan(stash_test::cases(60), 1, [&](const plan& free, const plan_options& o) {
    if (free.sizes.host_bytes == 0) return true;
    for (const int tenths : {10, 9, 6, 3, 1}) {
      plan_options small = o;
      small.model->host_bytes = std::max<std::int64_t>(1, free.sizes.host_bytes * tenths / 10);
      try {
        const plan p = budget_planner(free.network, small).make(free.budget_bytes);
        EXPECT_EQ(findings_of(p), "") << p.network.name << ", budget " << p.budget_bytes;
        EXPECT_LE(p.sizes.host_bytes, small.model->host_bytes) << p.network.name;
        plans += p.sizes.host_bytes > 0;
      } catch (const error& e) {
        EXPECT_EQ(e.code(), errc::infeasible_budget) << e.what();
        EXPECT_LT(tenths, 10) << free.network.name << ", budget " << free.budget_bytes << ": " << e.what();
        ++refused;
      }
    }
    return true;
  });
  std::printf("%d plans, %d refused\n", static_cast<int>(plans), static_cast<int>(refused));
  EXPECT_GT(plans, stash_test::cases(10));
}

TEST(bound_rules, forms_outside_the_rules_are_refused) {
  std::uint64_t refused = 0;
  for_each_plan(stash_test::cases(40), 1, [&](const plan& sound, const plan_options&) {
    for (const storage_id s : sound.choices.ids()) {
      const stash_choice& c = sound.choices[s];
      if (c.kind == stash_kind::none) continue;
      const std::string form = c.kind == stash_kind::raw         ? "raw"
                               : c.kind == stash_kind::recompute ? "recompute"
                                                                 : to_string(c.stored);
      expect_noticed(sound, form.c_str(), plan_fault::illegal_encoding, [&](plan& p) {
        p.tensors = {{"*", {}, true}, {sound.network.storages[s].name, {form}, true}};
      });
      ++refused;
      break;
    }
    return true;
  });
  EXPECT_GT(refused, stash_test::cases(80));
}

TEST(bound_rules, forgotten_configurations_are_noticed) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const std::vector<std::vector<std::string>> forgotten{
      {"sign_mask"},        {"bitmap"}, {"recompute"}, {"swap"}, {"window_index", "relu_pool"},
      {"fp8", "bitmap_fp8"}};
  for (const std::vector<std::string>& forms : forgotten) {
    int plans = 0, noticed = 0;
    for (std::uint64_t n = 0; n < 400 && noticed < (stash_test::only_part() ? 1 : 2); ++n) {
      const std::uint64_t seed = n / 2;
      plan_options o = timed_options(seed);
      o.chosen_policy = forms[0] == "fp8" ? policy::fp8 : policy::lossless;
      o.swap = true;
      o.tensors = {{"*", forms, true}};
      try {
        budget_planner sweep(random_graph(seed), o);
        plan p = sweep.make(sweep.baseline_bytes() * (n % 2 == 0 ? 65 : 80) / 100);
        ++plans;
        ASSERT_EQ(findings_of(p), "") << forms[0] << ", seed " << seed;
        if (p.times.bound_ms < 1.02 * p.times.unplanned_ms) continue;
        p.tensors.clear();
        p.sizes.bound = std::min(p.sizes.bound, proven_peak_bytes(p));  // the bound on memory is lower, too
        noticed += refuted(p);
      } catch (const error&) {
      }
    }
    std::printf("%s: %d of %d plans noticed\n", forms[0].c_str(), noticed, plans);
    EXPECT_GT(noticed, 0) << forms[0];
  }
}

}  // namespace
}  // namespace stash::planner::testing
