// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Plans of random graphs, for tests of what is proven of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/budget_planner.hpp"
#include "planner/plan_answers.hpp"
#include "planner/search/fast_problems.hpp"
#include "stash/error.hpp"

namespace stash::planner::testing {

inline plan_options timed_options(std::uint64_t seed) {
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

/// Whether the bound is complained about, and nothing else but a timeline that ends at another time.
inline bool refuted(const plan& p) {
  const auto findings = validate(p);
  const auto is = [](plan_fault fault) {
    return [fault](const plan_finding& f) { return f.fault == fault; };
  };
  const auto bounds = std::count_if(findings.begin(), findings.end(), is(plan_fault::bad_bound));
  const auto times = std::count_if(findings.begin(), findings.end(), is(plan_fault::bad_times));
  return bounds > 0 && bounds + times == static_cast<std::ptrdiff_t>(findings.size());
}

/// Calls visit(plan, options) for plans of random graphs at several budgets, until it returns false.
template <class Visit>
void for_each_plan(std::uint64_t seeds, std::uint64_t every, Visit visit) {
  for (std::uint64_t seed = 0; seed < seeds; seed += every) {
    const plan_options o = timed_options(seed);
    budget_planner sweep(random_graph(seed), o);
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

/// Plans whose bound owes something to memory and link, with at least one form on the host; twelve at most,
/// found once.
inline std::span<const plan> tight_plans(std::size_t count) {
  static const std::vector<plan> found = [] {
    std::vector<plan> list;
    // Every fourth network is planned without loss.
    for_each_plan(600, 4, [&](const plan& p, const plan_options&) {
      const bool moves =
          std::any_of(p.choices.begin(), p.choices.end(), [](const stash_choice& c) { return c.swapped; });
      if (moves && p.times.bound_ms > 1.02 * p.times.unplanned_ms) list.push_back(p);
      return list.size() < 12;
    });
    return list;
  }();
  return std::span(found).first(std::min(count, found.size()));
}

}  // namespace stash::planner::testing
