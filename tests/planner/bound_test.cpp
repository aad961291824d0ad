// The checker of bounds against the planner's own code, and against damage.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "planner/fast_problems.hpp"
#include "planner/json.hpp"
#include "planner/plan_answers.hpp"
#include "planner/relaxation.hpp"
#include "planner/sweep.hpp"
#include "planner/validator_bound.hpp"
#include "stash/error.hpp"

namespace stash::planner::testing {
namespace {

plan_options timed_options(std::uint64_t seed) {
  constexpr policy policies[] = {policy::lossless, policy::fp8, policy::automatic, policy::fp10};
  plan_options o;
  o.chosen_policy = policies[seed % 4];
  if (o.chosen_policy == policy::automatic) o.values = {value_format::fp16, value_format::mxfp4_e2m1};
  o.model = small_machine(seed);
  o.swap = seed % 5 != 4;
  o.smallest_swap = 64;
  o.evaluations = 60;
  return o;
}

// Whether the bound is complained about, and nothing else but a timeline that ends at another time.
bool refuted(const plan& p) {
  const auto findings = validate(p);
  const auto is = [](plan_fault fault) {
    return [fault](const plan_finding& f) { return f.fault == fault; };
  };
  const auto bounds = std::count_if(findings.begin(), findings.end(), is(plan_fault::bad_bound));
  const auto times = std::count_if(findings.begin(), findings.end(), is(plan_fault::bad_times));
  return bounds > 0 && bounds + times == static_cast<std::ptrdiff_t>(findings.size());
}

// Calls visit(plan, options) for plans of random graphs at several budgets, until it returns false.
template <class Visit>
void for_each_plan(std::uint64_t seeds, std::uint64_t every, Visit visit) {
  for (std::uint64_t seed = 0; seed < seeds; seed += every) {
    const plan_options o = timed_options(seed);
    plan_sweep sweep(random_graph(seed), o);
    for (int percent = 30; percent <= 100; percent += 10) {
      try {
        const plan p = sweep.make(sweep.baseline_bytes() * percent / 100);
        if (!visit(p, o)) return;
      } catch (const error& e) {
        ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
      }
    }
  }
}

dual_prices prices_of(const plan& p) {
  dual_prices d;
  for_each_price_row(d, [&](const char* name, std::vector<double>& list) {
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
  int plans = 0, binding = 0, lower = 0;
  double less = 0.0, more = 0.0;
  const auto compare = [&](const plan& p, const plan_options& o) {
    ++plans;
    ASSERT_EQ(findings_of(p), "") << p.network.name;
    ASSERT_FALSE(p.certificate.first_tick.empty());
    const step_problem s = problem_of(p, o);
    ASSERT_EQ(s.first_tick, p.certificate.first_tick) << p.network.name;
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
  for_each_plan(180, 1, [&](const plan& p, const plan_options& o) {
    compare(p, o);
    return !::testing::Test::HasFatalFailure();
  });
  RecordProperty("relative_difference", std::to_string(less) + " to " + std::to_string(more));
  std::printf("%d plans, %d binding, proven / planner's - 1 from %g to %g\n", plans, binding, less, more);
  EXPECT_GT(plans, 400);
  EXPECT_GT(binding, 100);
  EXPECT_LE(lower, 4);
}

TEST(bound, a_pinned_machine_has_its_own) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int plans = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    plan_options o = timed_options(seed);
    o.chosen_policy = policy::automatic;
    o.model->pinned = true;
    o.model->produced_factor = 2.5;
    o.model->compute_factor = 14.0;
    o.model->codec_factor = 1.5;
    plan_sweep sweep(random_graph(seed), o);
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
  EXPECT_GT(plans, 50);
}

// Plans whose bound owes something to memory and link, with at least one form on the host.
std::vector<plan> tight_plans(std::size_t wanted) {
  std::vector<plan> list;
  // Every fourth network is planned without loss.
  for_each_plan(600, 4, [&](const plan& p, const plan_options&) {
    const bool moves =
        std::any_of(p.choices.begin(), p.choices.end(), [](const stash_choice& c) { return c.swapped; });
    if (moves && p.times.bound_ms > 1.02 * p.times.unplanned_ms) list.push_back(p);
    return list.size() < wanted;
  });
  return list;
}

TEST(bound, no_damage_goes_unseen) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const std::vector<plan> plans = tight_plans(12);
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
    p.network.ops[0].seconds = 1e-9;
    EXPECT_TRUE(refuted(p)) << "a faster op";
    // With durations that agree, too.
    const double before = sound.times.unplanned_ms;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < sound.network.ops.size(); ++i) {
      if (validation::op_time(sound.network, sound.network.ops[i], *sound.model) >
          validation::op_time(sound.network, sound.network.ops[longest], *sound.model))
        longest = i;
    }
    p = sound;
    const double ms = validation::op_time(p.network, p.network.ops[longest], *p.model);
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
TEST(bound, plans_outside_its_rules_are_refused) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  using enum plan_fault;
  for (const plan& sound : tight_plans(6)) {
    SCOPED_TRACE(sound.network.name);
    ASSERT_EQ(findings_of(sound), "");
    const auto moved = std::find_if(sound.choices.begin(), sound.choices.end(),
                                    [](const stash_choice& c) { return c.swapped; });
    const std::string name =
        sound.network.storages[static_cast<std::size_t>(moved - sound.choices.begin())].name;
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

TEST(bound, times_that_the_machine_cannot_reach_are_refused) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  constexpr plan_fault bad = plan_fault::bad_times;
  for (const plan& sound : tight_plans(6)) {
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
TEST(bound, codecs_take_their_time) {
  int noticed = 0;
  for_each_plan(40, 1, [&](const plan& sound, const plan_options&) {
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
  EXPECT_GT(noticed, 10);
}

TEST(bound, plans_with_a_small_host_keep_to_it) {
  int plans = 0, refused = 0;
  for_each_plan(60, 1, [&](const plan& free, const plan_options& o) {
    if (free.sizes.host_bytes == 0) return true;
    for (const int tenths : {10, 9, 6, 3, 1}) {
      plan_options small = o;
      small.model->host_bytes = std::max<std::int64_t>(1, free.sizes.host_bytes * tenths / 10);
      try {
        const plan p = plan_sweep(free.network, small).make(free.budget_bytes);
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
  std::printf("%d plans, %d refused\n", plans, refused);
  EXPECT_GT(plans, 10);
}

TEST(bound, forms_outside_the_rules_are_refused) {
  int refused = 0;
  for_each_plan(40, 1, [&](const plan& sound, const plan_options&) {
    for (std::size_t s = 0; s < sound.choices.size(); ++s) {
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
  EXPECT_GT(refused, 100);
}

TEST(bound, prices_and_steps_are_what_proves_it) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int flipped = 0, removed = 0, noticed_flips = 0, noticed_steps = 0;
  const std::vector<plan> plans = tight_plans(8);
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

TEST(bound, forgotten_configurations_are_noticed) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const std::vector<std::vector<std::string>> forgotten{
      {"sign_mask"},        {"bitmap"}, {"recompute"}, {"swap"}, {"window_index", "relu_pool"},
      {"fp8", "bitmap_fp8"}};
  for (const std::vector<std::string>& forms : forgotten) {
    int plans = 0, noticed = 0;
    for (std::uint64_t n = 0; n < 400 && noticed < 2; ++n) {
      const std::uint64_t seed = n / 2;
      plan_options o = timed_options(seed);
      o.chosen_policy = forms[0] == "fp8" ? policy::fp8 : policy::lossless;
      o.swap = true;
      o.tensors = {{"*", forms, true}};
      try {
        plan_sweep sweep(random_graph(seed), o);
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
  for_each_price_row(d, [&](const char* name, std::vector<double>&) { rows.emplace_back(name); });
  for (const plan& sound : tight_plans(4)) {
    const double ms = sound.times.simulated_ms;
    const auto steps = sound.certificate.first_tick.size() - 1;
    for (int n = 0; n < 400; ++n) {
      plan p = sound;
      p.times.simulated_ms *= 1000.0;
      const bool keep = n % 2 == 0;
      if (!keep) p.certificate.prices.clear();
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
  for_each_plan(40, 1, [&](const plan& p, const plan_options& o) {
    compare(p, o);
    return !::testing::Test::HasFatalFailure();
  });
  std::printf("%d of %d groups equal\n", equal, groups);
  EXPECT_GE(equal, groups * 9 / 10);
}

}  // namespace
}  // namespace stash::planner::testing
