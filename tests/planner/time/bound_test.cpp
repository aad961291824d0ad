// SPDX-License-Identifier: Apache-2.0
// The checker of bounds against the planner's own code, and against damage.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "planner/budget_planner.hpp"
#include "planner/plan_answers.hpp"
#include "planner/search/fast_problems.hpp"
#include "planner/time/bound_plans.hpp"
#include "planner/time/relaxation.hpp"
#include "planner/verify/validator_bound.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

dual_prices prices_of(const plan& p) {
  dual_prices d;
  d.limits = p.certificate.transfer_limits;
  d.classes.resize(std::max<std::size_t>(d.limits.size(), 1));
  for_each_price_row(d, [&](const std::string& name, std::vector<double>& list) {
    for (const bound_certificate::row_prices& r : p.certificate.prices) {
      if (r.row != name) continue;
      list.assign(p.certificate.first_tick.size(), 0.0);
      for (const auto& [step, price] : r.list)
        list.at(static_cast<std::size_t>(step)) = price;
    }
  });
  return d;
}

step_problem problem_of(const plan& p, const plan_options& o) {
  item_rules rules;
  rules.swap = o.swap;
  rules.smallest_swap = o.smallest_swap;
  rules.overflow_share = o.overflow_share;
  rules.move_images = true;
  const option_set set = make_options(p.network, o, o.slot_margin);
  return compress(make_problem(p.network, set, *o.model, rules, p.certificate.limit_bytes));
}

TEST(bound, is_the_planners) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  std::uint64_t plans = 0, binding = 0, lower = 0;
  double less = 0.0, more = 0.0;
  const auto compare = [&](const plan& p, const plan_options& o) {
    ++plans;
    ASSERT_EQ(findings_of(p), "") << p.network.name;
    ASSERT_FALSE(p.certificate.first_tick.empty());
    const step_problem s = problem_of(p, o);
    ASSERT_EQ(s.first_tick.list(), p.certificate.first_tick) << p.network.name;
    const double own = std::min(bound_from(s, prices_of(p)), p.times.simulated_ms);
    const double proven = proven_bound_ms(p);
    binding += own > least_ms(s) * 1.001;
    // Forms that the planner leaves aside because another one is never larger nor slower can be worth a
    // trifle: they may leave for the host where a smaller one may not.
    EXPECT_GE(proven, own * (1 - 1e-3)) << p.network.name << ", budget " << p.budget_bytes;
    lower += proven < own * (1 - 1e-6);
    less = std::min(less, proven / own - 1);
    more = std::max(more, proven / own - 1);
    // What is proven is not only not above the plan at hand because it is cut off there.
    plan slow = p;
    slow.times.simulated_ms *= 100.0;
    EXPECT_LE(proven_bound_ms(slow), p.times.simulated_ms * (1 + 1e-9)) << p.network.name;
  };
  for_each_plan(stash_test::cases(180), 1, [&](const plan& p, const plan_options& o) {
    compare(p, o);
    return !::testing::Test::HasFatalFailure();
  });
  RecordProperty("relative_difference", std::to_string(less) + " to " + std::to_string(more));
  std::printf("%d plans, %d binding, %d lower, proven / planner's - 1 from %g to %g\n",
              static_cast<int>(plans), static_cast<int>(binding), static_cast<int>(lower), less, more);
  EXPECT_GT(plans, stash_test::cases(400));
  EXPECT_GT(binding, stash_test::cases(100));
  EXPECT_LE(lower, 4);
}

TEST(bound, a_pinned_machine_has_its_own) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  std::uint64_t plans = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(40); ++seed) {
    plan_options o = timed_options(seed);
    o.chosen_policy = policy::automatic;
    o.model->pinned = true;
    o.model->produced_factor = 2.5;
    o.model->compute_factor = 14.0;
    o.model->codec_factor = 1.5;
    budget_planner sweep(random_graph(seed), o);
    for (int percent = 40; percent <= 100; percent += 20) {
      try {
        const plan p = sweep.make(sweep.baseline_bytes() * percent / 100);
        ++plans;
        ASSERT_EQ(findings_of(p), "") << "seed " << seed;
        ASSERT_GE(p.times.bound_ms, p.times.unplanned_ms * (1 - 1e-9));
        // A forward product is slower than anything else by this factor.
        plan other = p;
        other.model->compute_factor = 13.0;
        EXPECT_TRUE(refuted(other)) << "seed " << seed;
      } catch (const error& e) {
        ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
      }
    }
  }
  EXPECT_GE(plans, stash_test::cases(50));
}

TEST(bound, no_damage_goes_unseen) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const std::span<const plan> plans = tight_plans(12);
  ASSERT_EQ(plans.size(), 12U);
  // A faster machine or one more form changes a proof only where it matters.
  int changes = 0, noticed = 0;
  for (const plan& sound : plans) {
    SCOPED_TRACE(sound.network.name);
    ASSERT_EQ(findings_of(sound), "");
    plan p = sound;
    // The proof is asked, not only the plan's own time.
    p.times.bound_ms *= 1.001;
    p.times.simulated_ms *= 1.01;
    EXPECT_TRUE(refuted(p)) << "a higher bound";
    p = sound;
    p.times.simulated_ms = p.times.bound_ms * (1 - 1e-6);
    EXPECT_TRUE(refuted(p)) << "a plan below its bound";
    for (const double factor : {0.999, 1.001}) {
      p = sound;
      p.times.unplanned_ms *= factor;
      EXPECT_TRUE(refuted(p)) << "other durations";
    }
    for (const std::int64_t bytes : {-64, -1, 1, 64}) {
      p = sound;
      p.certificate.limit_bytes += bytes;
      EXPECT_TRUE(refuted(p)) << "another limit";
    }
    p = sound;
    p.budget_bytes += 64;
    EXPECT_TRUE(refuted(p)) << "another budget";
    p = sound;
    p.budget_bytes *= 2;
    p.certificate.limit_bytes += p.budget_bytes / 2;
    EXPECT_TRUE(refuted(p)) << "another budget and limit";
    p = sound;
    p.network.ops[op_id(0)].seconds = 1e-9;
    EXPECT_TRUE(refuted(p)) << "a faster op";
    // With durations that agree, too.
    const double before = sound.times.unplanned_ms;
    const auto times = validation::time_model_of(*sound.model);
    op_id longest(0);
    for (const op_id i : sound.network.ops.ids()) {
      if (times->op_time(sound.network, sound.network.ops[i]) >
          times->op_time(sound.network, sound.network.ops[longest]))
        longest = i;
    }
    p = sound;
    const double ms = times->op_time(p.network, p.network.ops[longest]);
    p.network.ops[longest].seconds = 0.5e-3 * ms;
    p.times.unplanned_ms = before - 0.5 * ms;
    ++changes;
    noticed += refuted(p);
    for (double machine::*rate : {&machine::out_bytes_per_second, &machine::in_bytes_per_second,
                                  &machine::memory_bytes_per_second, &machine::flops_per_second}) {
      p = sound;
      (*p.model).*rate *= 4.0;
      ++changes;
      noticed += refuted(p);
    }
    p = sound;
    p.model->op_latency_seconds = 0.0;
    EXPECT_TRUE(refuted(p)) << "no latency";
    p = sound;
    p.chosen_policy = policy::automatic;
    p.values = {value_format::fp8_e4m3, value_format::mxfp4_e2m1};
    ++changes;
    noticed += refuted(p);
    p = sound;
    p.model.reset();
    EXPECT_TRUE(refuted(p)) << "no model";
    p = sound;
    p.certificate = {};
    EXPECT_TRUE(refuted(p)) << "no certificate";
    p = sound;
    p.certificate.prices[0].row = "rent";
    EXPECT_TRUE(refuted(p)) << "prices of an unknown row";
    p = sound;
    p.certificate.prices[0].list[0].first = static_cast<std::int32_t>(p.certificate.first_tick.size()) - 1;
    EXPECT_TRUE(refuted(p)) << "a step out of range";
    ASSERT_EQ(findings_of(sound), "");
  }
  std::printf("%d of %d changes of the problem noticed\n", noticed, changes);
  EXPECT_GE(noticed, changes * 6 / 10);
}

TEST(bound, prices_and_steps_are_what_proves_it) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int flipped = 0, removed = 0, noticed_flips = 0, noticed_steps = 0;
  const std::span<const plan> plans = tight_plans(8);
  for (const plan& sound : plans) {
    SCOPED_TRACE(sound.network.name);
    plan slow = sound;
    slow.times.simulated_ms *= 100.0;
    const double best = proven_bound_ms(slow);
    // No prices prove more than those of the optimum.
    for (std::size_t r = 0; r < sound.certificate.prices.size(); ++r) {
      if (sound.certificate.prices[r].row == "held" || sound.certificate.prices[r].row == "released" ||
          sound.certificate.prices[r].row == "needed")
        continue;
      plan p = slow;
      for (auto& [step, price] : p.certificate.prices[r].list)
        price = -price;
      EXPECT_LE(proven_bound_ms(p), best * (1 + 1e-6)) << p.certificate.prices[r].row;
      p.times.bound_ms = best;
      p.times.simulated_ms = sound.times.simulated_ms;
      ++flipped;
      noticed_flips += refuted(p);
    }
    // Price after price, as far as there is one in the plan; prices keep their steps' numbers.
    for (std::size_t k = 1; k + 1 < sound.certificate.first_tick.size(); ++k) {
      plan p = slow;
      p.certificate.first_tick.erase(p.certificate.first_tick.begin() + static_cast<std::ptrdiff_t>(k));
      for (auto& r : p.certificate.prices) {
        std::erase_if(r.list, [&](const auto& x) { return x.first == static_cast<std::int32_t>(k); });
        for (auto& [step, price] : r.list) {
          if (step > static_cast<std::int32_t>(k)) --step;
        }
      }
      EXPECT_LE(proven_bound_ms(p), best * (1 + 1e-6)) << "without step " << k;
      p = sound;
      p.certificate.first_tick.erase(p.certificate.first_tick.begin() + static_cast<std::ptrdiff_t>(k));
      ++removed;
      noticed_steps += refuted(p);
    }
  }
  std::printf("%d of %d flips and %d of %d removed steps noticed\n", noticed_flips, flipped, noticed_steps,
              removed);
  // Some rows have equals that carry the proof without them, and the last steps have no prices.
  EXPECT_GE(noticed_flips, flipped / 2);
  EXPECT_GE(noticed_steps, removed * 3 / 4);
}

TEST(bound, any_certificate_is_safe) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  std::mt19937_64 random(7);
  const auto wild = [&]() -> double {
    switch (random() % 6) {
      case 0:
        return std::ldexp(1.0, static_cast<int>(random() % 2000) - 1000);
      case 1:
        return -std::ldexp(1.0, static_cast<int>(random() % 80) - 40);
      case 2:
        return 1e12;
      case 3:
        return -std::numeric_limits<double>::max();
      case 4:
        return std::ldexp(1.0, static_cast<int>(random() % 80) - 40);
      default:
        return static_cast<double>(random() % 100) / 50.0 - 1.0;
    }
  };
  std::vector<std::string> rows;
  dual_prices d;
  d.classes.resize(3);
  for_each_price_row(d, [&](const std::string& name, std::vector<double>&) { rows.push_back(name); });
  for (const plan& sound : tight_plans(4)) {
    const double ms = sound.times.simulated_ms;
    const auto steps = sound.certificate.first_tick.size() - 1;
    for (int n = 0; n < 400; ++n) {
      plan p = sound;
      p.times.simulated_ms *= 1000.0;
      const bool keep = n % 2 == 0;
      if (!keep) p.certificate.prices.clear();
      p.certificate.transfer_limits = {1 + static_cast<std::int64_t>(random() % 4096),
                                       4097 + static_cast<std::int64_t>(random() % 100000)};
      for (int k = 0; k < 1 + n % 20; ++k) {
        bound_certificate::row_prices r{rows[random() % rows.size()], {}};
        for (int i = 0; i < 5; ++i) {
          double price = wild();
          if (n % 3 != 0) price = std::clamp(price, -1e12, 1e12);
          r.list.emplace_back(static_cast<std::int32_t>(random() % steps), price);
        }
        p.certificate.prices.push_back(std::move(r));
      }
      ASSERT_LE(proven_bound_ms(p), ms * (1 + 1e-6)) << "case " << n;
      for (auto& tick : p.certificate.first_tick) {
        if (random() % 8 == 0) tick += static_cast<std::int32_t>(random() % 5) - 2;
        if (n % 16 == 1 && random() % 16 == 0) tick = static_cast<std::int32_t>(random());
      }
      if (n % 4 == 3) std::sort(p.certificate.first_tick.begin() + 1, p.certificate.first_tick.end() - 1);
      ASSERT_LE(proven_bound_ms(p), ms * (1 + 1e-6)) << "case " << n << ", other steps";
    }
    // Only waits, and one step for everything.
    plan p = sound;
    p.certificate.first_tick.assign(1000, 0);
    p.certificate.first_tick.push_back(sound.certificate.first_tick.back());
    EXPECT_LE(proven_bound_ms(p), ms);
    p.slot_margin = std::numeric_limits<double>::max();
    p.overflow_share = std::numeric_limits<double>::max();
    p.smallest_swap = std::numeric_limits<std::int64_t>::max();
    proven_bound_ms(p);
    p.budget_bytes = std::numeric_limits<std::int64_t>::max();
    p.times = {"m", 1e308, 1e308, 1e308, true};
    EXPECT_FALSE(validate(p).empty());
  }
  plan nothing;
  nothing.network.batch = 1;
  nothing.model = small_machine();
  nothing.times = {"small", 0.0, 1.0, 1.0, true};
  EXPECT_EQ(proven_bound_ms(nothing), 0.0);
  nothing.certificate.first_tick = {0};
  nothing.certificate.prices = {{"begin", {{0, -1.0}}}};
  EXPECT_EQ(proven_bound_ms(nothing), 0.0);
}

TEST(bound, elimination_stays_below_enumeration) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int groups = 0, equal = 0;
  const auto compare = [&](const plan& p, const plan_options&) {
    using namespace validation;
    const std::size_t ticks = 2 * p.network.ops.size() - 1;
    const std::vector<double> nothing(ticks, 0.0);
    finding_list found;
    const legal_set legal(p);
    const tick_prices prices(p.certificate, *p.model, legal.moves(), 1e9, nothing, nothing, found);
    for (const choice_group& c : groups_of(p.network, legal)) {
      std::int64_t none = 0, many = 1000000;
      const group_cost exact = cheapest(p, legal, prices, c, many),
                       below = cheapest(p, legal, prices, c, none);
      if (!exact.exact) continue;
      ASSERT_FALSE(below.exact);
      ++groups;
      ASSERT_LE(below.priced, exact.priced + 1e-9 * (1 + std::abs(exact.priced))) << p.network.name;
      equal += below.priced >= exact.priced - 1e-9 * (1 + std::abs(exact.priced));
    }
  };
  for_each_plan(stash_test::cases(40), 1, [&](const plan& p, const plan_options& o) {
    compare(p, o);
    return !::testing::Test::HasFatalFailure();
  });
  std::printf("%d of %d groups equal\n", equal, groups);
  EXPECT_GE(equal, groups * 9 / 10);
}

}  // namespace
}  // namespace stash::planner::testing
