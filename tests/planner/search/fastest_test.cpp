// SPDX-License-Identifier: Apache-2.0
// The search against exhaustive search, and the bound against every choice.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <random>

#include "planner/search/fast_problems.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

// All choices of a problem with few of them, by calling visit(choice).
template <class Visit>
void for_each_choice(const step_problem& p, Visit visit) {
  option_choice c(p.items.size(), 0);
  while (true) {
    visit(c);
    std::size_t i = 0;
    for (; i < c.size(); ++i) {
      if (++c[i] < static_cast<std::int32_t>(p.items[i].options.size())) break;
      c[i] = 0;
    }
    if (i == c.size()) return;
  }
}

// Infinite if none fits.
double ms_of_best_choice(const step_problem& p) {
  simulator sim(p);
  double best = std::numeric_limits<double>::infinity();
  for_each_choice(p, [&](const option_choice& c) {
    const simulated s = sim.run(c, best);
    if (s.feasible) best = std::min(best, s.ms);
  });
  return best;
}

double number_of_choices(const step_problem& p) {
  double n = 1;
  for (const item& i : p.items)
    n *= static_cast<double>(i.options.size());
  return n;
}

std::int64_t peak_of_least_work(const step_problem& p) {
  step_problem free = p;
  free.limit = std::int64_t{1} << 50;
  simulator sim(free);
  return sim.run(greedy_largest_first(free, sim)).peak;
}

bool is_small(const step_problem& p) {
  return p.items.size() >= 2 && p.items.size() <= 8 && number_of_choices(p) <= 30000;
}

fastest_limits short_search() {
  fastest_limits limits;
  limits.evaluations = 3000;
  return limits;
}

int case_count() {
  return stash_test::only_part() ? 40 : 220;
}

// What the search finds compared with the best of all choices, problem after problem.
class comparison {
 public:
  int cases() const { return cases_; }

  void add(const step_problem& p) {
    const double best = ms_of_best_choice(p);
    const fastest_choice found = find_fastest(p, short_search());
    ASSERT_EQ(found.found, best < std::numeric_limits<double>::infinity());
    if (!found.found) return;
    ++cases_;
    simulator sim(p);
    ASSERT_LE(sim.run(found.choice).host_peak, p.link.host_bytes);
    ASSERT_GE(found.ms, best * (1 - 1e-12));
    ASSERT_GE(best * (1 + 1e-9), found.bound_ms) << "a bound above the optimum";
    if (found.ms <= best * (1 + 1e-9)) ++equal_;
    worst_ = std::max(worst_, found.ms / best - 1);
  }

  void expect_close() const {
    EXPECT_GE(cases_, stash_test::only_part() ? 20 : 100);
    EXPECT_GE(equal_, cases_ * 95 / 100);
    EXPECT_LE(worst_, 0.03);
  }

 private:
  int cases_ = 0, equal_ = 0;
  double worst_ = 0.0;
};

TEST(fastest, equals_exhaustive_search_on_small_graphs) {
  comparison against_all;
  for (std::uint64_t seed = 0; seed < 900 && against_all.cases() < case_count(); ++seed) {
    SCOPED_TRACE(seed);
    small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine(seed));
    if (!is_small(s.steps)) continue;
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(40 + 10 * (seed % 6)) / 100;
    ASSERT_NO_FATAL_FAILURE(against_all.add(s.steps));
  }
  against_all.expect_close();
}

// The host has a part of what the fastest choice takes there that may take all it wants.
TEST(fastest, equals_exhaustive_search_where_the_host_is_small) {
  comparison against_all;
  for (std::uint64_t seed = 0; seed < 900 && against_all.cases() < case_count(); ++seed) {
    small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine(seed));
    if (!is_small(s.steps)) continue;
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(40 + 10 * (seed % 6)) / 100;
    const fastest_choice free = find_fastest(s.steps, short_search());
    simulator sim(s.steps);
    const std::int64_t taken = free.found ? sim.run(free.choice).host_peak : 0;
    if (taken == 0) continue;
    for (const std::int64_t percent : {15, 35, 55, 75, 95}) {
      SCOPED_TRACE(::testing::Message() << seed << ", " << percent << " %");
      s.steps.link.host_bytes = taken * percent / 100;
      ASSERT_NO_FATAL_FAILURE(against_all.add(s.steps));
    }
  }
  against_all.expect_close();
}

TEST(simulator, gives_up_on_what_takes_longer_and_on_nothing_else) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine(seed));
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(50 + 10 * (seed % 5)) / 100;
    simulator sim(s.steps);
    option_choice c(s.steps.items.size(), 0);
    for (std::size_t n = 0; n < 40; ++n) {
      for (std::size_t i = 0; i < c.size(); ++i)
        c[i] = static_cast<std::int32_t>((seed + n * (i + 3) + i / 2) % s.steps.items[i].options.size());
      const simulated whole = sim.run(c);
      if (!whole.feasible) continue;
      ++feasible;
      const simulated just = sim.run(c, whole.ms);
      ASSERT_TRUE(just.feasible) << "seed " << seed;
      ASSERT_EQ(just.ms, whole.ms);
      ASSERT_FALSE(sim.run(c, whole.ms * (1 - 1e-9)).feasible) << "seed " << seed;
    }
  }
  EXPECT_GT(feasible, 200);
}

TEST(simulator, a_run_does_not_depend_on_the_runs_before_it) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    small_problem s = make_small_problem(random_graph(seed, 3), policy::fp8, true, small_machine(seed));
    const std::int64_t peak = peak_of_least_work(s.steps);
    std::mt19937_64 random(seed);
    simulator reused(s.steps);
    option_choice c(s.steps.items.size(), 0);
    for (int n = 0; n < 60; ++n) {
      // Mostly a few changes, now and then all; the limit and what others hold change in between.
      for (std::size_t i = 0; i < c.size(); ++i) {
        if (n % 10 == 0 || random() % c.size() < 3)
          c[i] = static_cast<std::int32_t>(random() % s.steps.items[i].options.size());
      }
      s.steps.limit = peak * static_cast<std::int64_t>(50 + random() % 70) / 100;
      s.steps.fixed[random() % s.steps.fixed.size()] += static_cast<std::int64_t>(random() % 1024);
      simulator fresh(s.steps);
      timeline_record expected, got;
      const simulated a = fresh.run(c, 1e300, &expected), b = reused.run(c, 1e300, &got);
      ASSERT_EQ(a.feasible, b.feasible) << "seed " << seed << ", run " << n;
      ASSERT_EQ(a.ms, b.ms) << "seed " << seed << ", run " << n;
      ASSERT_EQ(a.peak, b.peak) << "seed " << seed << ", run " << n;
      ASSERT_EQ(a.missing, b.missing);
      ASSERT_EQ(a.missing_step, b.missing_step);
      ASSERT_EQ(expected.end, got.end);
      ASSERT_EQ(expected.transfers.size(), got.transfers.size());
      for (std::size_t t = 0; t < got.transfers.size(); ++t) {
        ASSERT_EQ(expected.transfers[t].item, got.transfers[t].item);
        ASSERT_EQ(expected.transfers[t].out_end, got.transfers[t].out_end);
        ASSERT_EQ(expected.transfers[t].in_begin, got.transfers[t].in_begin);
      }
    }
  }
}

TEST(fastest, no_choice_is_faster_than_the_bound) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    small_problem s = make_small_problem(
        random_graph(seed, 3), seed % 2 == 0 ? policy::lossless : policy::fp8, true, small_machine(seed));
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(35 + seed % 60) / 100;
    const relaxed r = relax(s.steps);
    std::mt19937_64 random(seed);
    simulator sim(s.steps);
    if (!r.solved) {
      EXPECT_TRUE(r.infeasible) << "seed " << seed;
    } else {
      const double bound = bound_from(s.steps, r.prices);
      // The prices prove what the solver says.
      EXPECT_NEAR(bound, r.ms, 1e-5 * r.ms) << "seed " << seed;
      EXPECT_LE(bound, r.ms * (1 + 1e-6)) << "seed " << seed;
    }
    const double bound = r.solved ? bound_from(s.steps, r.prices) : std::numeric_limits<double>::infinity();
    option_choice c(s.steps.items.size(), 0);
    for (int n = 0; n < 300; ++n) {
      for (std::size_t i = 0; i < c.size(); ++i)
        c[i] = static_cast<std::int32_t>(random() % s.steps.items[i].options.size());
      const simulated x = sim.run(c);
      if (x.feasible) {
        ASSERT_GE(x.ms, bound * (1 - 1e-9)) << "seed " << seed;
        ASSERT_LE(x.peak, s.steps.limit) << "seed " << seed;
      }
    }
  }
}

// One whose relaxation takes many iterations and has a solution.
small_problem problem_to_relax() {
  network net("chain");
  node_id x = net.input(16, 16, 3);
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    x = net.relu("r" + n, net.batch_norm("n" + n, net.conv2d("c" + n, x, 8, {3, 3}, {1, 1}, {1, 1}, false)));
  }
  net.softmax_cross_entropy("loss", net.dense("fc", x, 5));
  small_problem s = make_small_problem(make_training_graph(net, 4), policy::lossless, true, small_machine(1));
  const std::int64_t peak = peak_of_least_work(s.steps);
  s.steps.limit = peak * 6 / 10;
  while (!relax(s.steps).solved && s.steps.limit < peak)
    s.steps.limit += peak / 50;
  return s;
}

TEST(fastest, a_stop_ends_the_relaxation_without_a_bound) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const small_problem s = problem_to_relax();
  int all_questions = 0;
  const relaxed all = relax(s.steps, [&] {
    ++all_questions;
    return false;
  });
  ASSERT_TRUE(all.solved);
  EXPECT_EQ(all.ms, relax(s.steps).ms);
  ASSERT_GT(all_questions, 2);
  for (const int most : {1, 2, all_questions}) {
    int questions = 0;
    const auto stop = [&] { return ++questions >= most; };
    const relaxed r = relax(s.steps, stop);
    EXPECT_FALSE(r.solved);
    EXPECT_FALSE(r.infeasible);
    EXPECT_EQ(questions, most);
    questions = 0;
    EXPECT_FALSE(relax(s.steps, 8, [] { return true; }).solved);
    fastest_limits limits;
    limits.stop = stop;
    const fastest_choice found = find_fastest(s.steps, limits);
    EXPECT_FALSE(found.relaxed);
    EXPECT_EQ(found.bound_ms, least_ms(s.steps));
  }
}

volatile std::sig_atomic_t interrupts = 0;

TEST(fastest, interrupts_reach_the_program_while_the_relaxation_is_solved) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const small_problem s = problem_to_relax();
  using handler = void (*)(int);
  const handler own = [](int) { interrupts = interrupts + 1; };
  const handler before = std::signal(SIGINT, own);
  interrupts = 0;
  int raised = 0;
  const relaxed r = relax(s.steps, [&] {
    ++raised;
    std::raise(SIGINT);
    return false;
  });
  EXPECT_TRUE(r.solved);
  EXPECT_GT(raised, 2);
  EXPECT_EQ(interrupts, raised);
  EXPECT_EQ(std::signal(SIGINT, before), own);
}

TEST(fastest, joined_steps_prove_no_more) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  int solved = 0;
  double least = 1.0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    small_problem s = make_small_problem(
        random_graph(seed, 3), seed % 2 == 0 ? policy::lossless : policy::fp8, true, small_machine(seed));
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(35 + seed % 60) / 100;
    const relaxed all = relax(s.steps);
    const auto steps = static_cast<std::int32_t>(s.steps.ms.size());
    for (const std::int32_t most : {1, 2, steps / 8, steps / 4, steps / 2, steps - 1, steps}) {
      const relaxed joined = relax(s.steps, most);
      ASSERT_TRUE(joined.solved || joined.infeasible) << "seed " << seed << ", " << most;
      // What cannot be over long steps cannot be over short ones.
      EXPECT_TRUE(all.infeasible || !joined.infeasible) << "seed " << seed << ", " << most;
      if (!all.solved || !joined.solved) continue;
      ++solved;
      EXPECT_LE(joined.ms, all.ms * (1 + 1e-6)) << "seed " << seed << ", " << most;
      EXPECT_GE(joined.ms, least_ms(s.steps) * (1 - 1e-9)) << "seed " << seed << ", " << most;
      if (most == steps / 2) least = std::min(least, joined.ms / all.ms);
    }
  }
  EXPECT_GT(solved, 200);
  EXPECT_GT(least, 0.3);
}

TEST(fastest, wrong_prices_give_a_low_bound_never_a_wrong_one) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine(seed));
    s.steps.limit = peak_of_least_work(s.steps) * 6 / 10;
    const relaxed r = relax(s.steps);
    if (!r.solved) continue;
    std::mt19937_64 random(seed);
    const auto spoil = [&](std::vector<double>& list) {
      for (double& y : list) {
        if (random() % 4 == 0) y *= static_cast<double>(random() % 400) / 100.0 - 1.0;
      }
    };
    for (int n = 0; n < 20; ++n) {
      dual_prices d = r.prices;
      for_each_price_row(d, [&](const std::string&, std::vector<double>& list) { spoil(list); });
      if (n % 5 == 4) d.limits.assign(d.limits.size(), 1);
      EXPECT_LE(bound_from(s.steps, d), r.ms * (1 + 1e-9)) << "seed " << seed;
    }
  }
}

TEST(fastest, never_worse_than_the_greedy_rule) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    small_problem s = make_small_problem(random_graph(seed), policy::fp8, true, small_machine(seed));
    s.steps.limit = peak_of_least_work(s.steps) * static_cast<std::int64_t>(30 + seed % 60) / 100;
    simulator sim(s.steps);
    const simulated greedy = sim.run(greedy_largest_first(s.steps, sim));
    fastest_limits limits;
    limits.evaluations = 200;
    const fastest_choice found = find_fastest(s.steps, limits);
    if (greedy.feasible) {
      ASSERT_TRUE(found.found) << "seed " << seed;
      ASSERT_LE(found.ms, greedy.ms) << "seed " << seed;
    }
  }
}

TEST(fastest, the_same_seed_gives_the_same_choice) {
  small_problem s = make_small_problem(random_graph(11), policy::lossless, true, small_machine());
  s.steps.limit = peak_of_least_work(s.steps) * 6 / 10;
  fastest_limits limits;
  limits.evaluations = 500;
  const fastest_choice a = find_fastest(s.steps, limits), b = find_fastest(s.steps, limits);
  EXPECT_EQ(a.choice, b.choice);
  EXPECT_EQ(a.ms, b.ms);
  EXPECT_EQ(a.evaluations, b.evaluations);
}

TEST(fastest, stops_when_it_is_told_to) {
  small_problem s = make_small_problem(random_graph(11), policy::lossless, true, small_machine());
  s.steps.limit = peak_of_least_work(s.steps) * 6 / 10;
  fastest_limits limits;
  limits.evaluations = 1'000'000'000;
  int asked = 0;
  limits.stop = [&] { return ++asked > 2; };
  EXPECT_LT(find_fastest(s.steps, limits).evaluations, 100000);
}

}  // namespace
}  // namespace stash::planner::testing
