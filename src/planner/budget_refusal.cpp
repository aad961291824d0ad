// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_refusal.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/memory/bounds.hpp"

namespace stash::planner {
namespace {

constexpr int most_attempts = 8, most_attempts_above = 60;
// How closely the smallest budget is told.
constexpr std::int64_t parts_of_named_budget = 100;

}  // namespace

// What picks of configurations are without moving anything.
option_choice small_plans::unmoved_choice(const picks& configurations) const {
  option_choice choice(b_.steps.items.size(), 0);
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const id_vector<std::int32_t, item_option>& options = b_.steps.items[i].options;
    const auto at = std::find_if(options.begin(), options.end(), [&](const item_option& o) {
      return o.swapped == 0 && position_of(o.configuration) == configurations[i];
    });
    if (at != options.end()) choice[i] = options.id_of(at);
  }
  return choice;
}

// Where maps are small, the arena for overflow of sparse forms is larger than what they save.
const timed_choice& small_plans::unmoved() {
  if (unmoved_) return *unmoved_;
  b_.steps.limit = b_.no_limit();
  const search finder(b_.facts, b_.set, b_.options);
  for (const bool sparse : {true, false}) {
    if (!sparse && !overflow_arena_matters(unmoved_->where)) break;
    const option_choice choice = unmoved_choice(finder.smallest_peak(sparse));
    timeline_record record;
    simulator sim(b_.steps);
    const simulated s = sim.run(choice, std::numeric_limits<double>::infinity(), &record);
    timed_choice p = b_.place_choice(choice, s, record);
    if (!unmoved_ || p.where.height < unmoved_->where.height) unmoved_ = std::move(p);
  }
  return *unmoved_;
}

// What the search begins with; its layout may be higher than the limit. Nothing if that does not fit, and by
// how much.
std::optional<timed_choice> small_plans::first(std::int64_t limit, std::int64_t& missing) {
  b_.steps.limit = limit;
  b_.steps.link.host_bytes = b_.ticks.link.host_bytes;
  fastest_limits limits;
  limits.evaluations = 0;
  limits.relax = false;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const fastest_choice found = find_fastest(b_.steps, limits);
    missing = found.missing;
    if (!found.found) break;
    timeline_record record;
    simulator sim(b_.steps);
    const simulated s = sim.run_late(found.choice, record);
    timed_choice placed = b_.place_choice(found.choice, s, record);
    missing = b_.beyond_host(placed.where);
    if (missing == 0) return placed;
    b_.steps.link.host_bytes = std::max<std::int64_t>(0, b_.steps.link.host_bytes - missing);
  }
  return {};
}

timed_choice small_plans::within(std::int64_t limit) {
  std::int64_t missing = 0;
  std::optional<timed_choice> m = first(limit, missing);
  return m && m->where.height <= unmoved().where.height ? *m : unmoved();
}

// A plan within little more than `capacity`, found without searching.
placement small_plans::quick_above(std::int64_t capacity, std::int64_t missing) {
  const placement& smallest = unmoved().where;
  std::int64_t limit = std::max<std::int64_t>(capacity, 0) + std::max<std::int64_t>(missing, 1);
  for (int attempt = 0; attempt < most_attempts_above && limit < smallest.height; ++attempt) {
    missing = 0;
    std::optional<timed_choice> m = first(limit, missing);
    if (!m) {
      limit += std::max(missing, limit / 64 + 1);
      continue;
    }
    if (m->where.height > capacity && m->where.height <= limit) return std::move(m->where);
    limit = std::max(limit + limit / 256 + 1, m->where.height);
  }
  return smallest;
}

placement small_plans::enough(std::int64_t capacity, std::int64_t missing,
                              const std::vector<timed_choice>& known) {
  if (!b_.options.smallest_budget) return quick_above(capacity, missing);
  placement enough = unmoved().where;
  std::int64_t too_little = std::max(capacity, working_set_wall(b_.g).bytes);
  while (enough.height - too_little > enough.height / parts_of_named_budget) {
    const std::int64_t between = too_little + (enough.height - too_little) / 2;
    searched s = search_within(b_, between, known);
    if (s.fits) {
      enough = std::move(s.fitted.where);
      enough.height = between;  // the search for less is another one
    } else {
      too_little = between;
    }
  }
  return enough;
}

}  // namespace stash::planner
