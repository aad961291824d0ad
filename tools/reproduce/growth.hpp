// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The largest batch (or side, or number of steps) whose plan fits a memory, and what stands in the way of a
/// larger one.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "planner/budget_planner.hpp"
#include "planner/plan.hpp"

namespace stash::tools {

/// What came of planning one size.
struct probe {
  std::int64_t size = 0;
  bool fits = false;     ///< within memory and slowdown
  bool planned = false;  ///< there is a plan; false: it does not fit the memory
  bool valid = false;    ///< the validator found nothing
  std::int64_t planned_bytes = 0, host_bytes = 0, bound_bytes = 0;
  double unplanned_ms = 0, simulated_ms = 0, bound_ms = 0;
  std::string limit;  ///< does not fit: what binds
  double slowdown() const {
    return unplanned_ms > 0 ? std::max(0.0, simulated_ms / unplanned_ms - 1.0) : 0.0;
  }
};

/// The same with a short search and no relaxation: for sizes that fit, or do not fit, by far.
planner::plan_options quick_search(planner::plan_options o);
/// Whether the relaxation of a graph as large as this is worth its time.
bool long_search_pays(const planner::graph& g);

/// What makes a plan slower: the link or compute.
std::string what_slows(const planner::plan_load& load, const planner::plan_times& times);
/// What keeps a plan from fitting, from the planner's message.
std::string what_is_there(const std::string& why, bool swap = true);

/// Plans `g` within `memory`; policy none needs no model. A quick search first; if it finds nothing that
/// fits, with `long_search` the one that `options` asks for. Throws failed_while_running if the plan is not
/// valid, and what the planner throws besides error(infeasible_budget).
probe plan_probe(const planner::graph& g, const planner::plan_options& options, std::int64_t memory,
                 double max_slowdown, bool long_search);

struct growth {
  std::int64_t unit = 1;   ///< sizes are multiples of it
  std::int64_t first = 1;  ///< tried first, in units
  std::int64_t most = 1'000'000;
  double tolerance = 0.0;  ///< share of the size to which the largest one is found
  std::function<probe(std::int64_t size)> plan;
  std::function<bool()> stop;  ///< true: the largest so far
};

struct largest_size {
  std::int64_t size = 0;  ///< 0: nothing fits
  probe best;             ///< at `size`
  probe next;             ///< the smallest one that was tried and does not fit
  int probes = 0;
  bool interrupted = false;
};

/// By doubling and bisection: correct where whatever fits at one size fits at all smaller ones.
largest_size find_largest(const growth& g);

}  // namespace stash::tools
