// The checker of bounds against the planner's own bounds, and against damage.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "planner/fast_problems.hpp"
#include "planner/json.hpp"
#include "planner/relaxation.hpp"
#include "planner/sweep.hpp"
#include "planner/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner::testing {
namespace {

plan_options timed_options(std::uint64_t seed, policy chosen) {
  plan_options o;
  o.chosen_policy = chosen;
  o.model = small_machine(seed);
  o.swap = chosen != policy::gist && chosen != policy::none;
  o.smallest_swap = 64;
  o.evaluations = 100;
  return o;
}

std::string findings_of(const plan& p) {
  std::string text;
  for (const plan_finding& f : validate(p))
    text += std::string(to_string(f.fault)) + ": " + f.message + "\n";
  return text;
}

// What the planner's own code makes of the plan's prices.
double planners_bound(const plan& p, const plan_options& options) {
  const option_set set = make_options(p.network, options, options.slot_margin);
  item_rules rules;
  rules.swap = options.swap;
  rules.smallest_swap = options.smallest_swap;
  rules.overflow_share = options.overflow_share;
  step_problem s = compress(make_problem(p.network, set, *options.model, rules, p.certificate.limit_bytes));
  s.limit = p.certificate.limit_bytes;
  dual_prices d;
  for_each_price_row(d, [&](const char* name, std::vector<double>& list) {
    for (const bound_certificate::row_prices& r : p.certificate.prices) {
      if (r.row != name) continue;
      list.assign(s.ms.size(), 0.0);
      for (const auto& [step, price] : r.list)
        list.at(static_cast<std::size_t>(step)) = price;
    }
  });
  return bound_from(s, d);
}

TEST(bound, is_the_planners) {
  if (!can_relax()) GTEST_SKIP() << "built without a solver";
  const bool verbose = std::getenv("BOUND_VERBOSE") != nullptr;
  int plans = 0, less = 0;
  double worst = 0.0, most = 0.0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const graph g = random_graph(seed);
    constexpr policy policies[] = {policy::lossless, policy::fp8, policy::automatic, policy::fp10};
    plan_options o = timed_options(seed, policies[seed % 4]);
    if (seed % 4 == 2) o.values = {value_format::fp16, value_format::fp8_e4m3};
    plan_sweep sweep(g, o);
    for (int percent = 30; percent <= 100; percent += 10) {
      plan p;
      try {
        p = sweep.make(sweep.baseline_bytes() * percent / 100);
      } catch (const error&) {
        continue;
      }
      ++plans;
      const double own = std::min(planners_bound(p, o), p.times.simulated_ms), proven = proven_bound_ms(p);
      const double difference = proven / own - 1.0;
      if (difference < -1e-6) {
        ++less;
        if (verbose) printf("seed %d %d%%: planner %.9f proven %.9f simulated %.9f (%.3g)\n", (int)seed, percent, own, proven, p.times.simulated_ms, difference);
      }
      worst = std::min(worst, difference);
      most = std::max(most, difference);
    }
  }
  printf("%d plans, %d less, worst %g, most %g\n", plans, less, worst, most);
  EXPECT_GT(plans, 300);
}

}  // namespace
}  // namespace stash::planner::testing
