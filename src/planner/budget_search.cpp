// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_search.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace stash::planner {
namespace {

constexpr int most_attempts = 8;
constexpr std::size_t most_steps_of_thorough = 5000;
// What a limit is lowered by at least, as a part of the capacity: less would seldom change anything.
constexpr std::int64_t least_parts_of_capacity = 2000;

// Of a search that comes after one with this result, if there was one.
fastest_limits limits_of(const budget_problem& b, std::int64_t capacity,
                         const std::vector<timed_choice>& known, const searched* before) {
  fastest_limits limits;
  limits.evaluations = b.options.evaluations;
  limits.seed = b.options.seed;
  limits.relax = b.options.relax;
  limits.stop = b.options.stop;
  // The prices of little less memory are much the same, and so are the choices.
  if (before != nullptr) {
    limits.evaluations /= 4;
    limits.relax = false;
    if (before->certified) limits.prices = &before->prices;
    limits.starts.push_back(before->fitted.choice);
  }
  for (const timed_choice& plan : known) {
    if (plan.where.height <= capacity) limits.starts.push_back(plan.choice);
  }
  return limits;
}

searched search_on_host(budget_problem& b, std::int64_t capacity, std::int64_t host,
                        const std::vector<timed_choice>& known) {
  searched result;
  std::int64_t limit = capacity;
  b.steps.link.host_bytes = host;
  // Layout needs more than what is live now and then, on the device and on the host: ask for less until it
  // fits.
  for (int attempt = 0; attempt <= most_attempts; ++attempt) {
    b.steps.limit = limit;
    fastest_choice found =
        find_fastest(b.steps, limits_of(b, capacity, known, attempt > 0 ? &result : nullptr));
    if (attempt == 0) {
      result.bound_ms = found.bound_ms;
      result.certified = found.relaxed;
      result.prices = found.prices;
    } else {
      found.relaxed = result.certified;
      found.prices = result.prices;
    }
    result.missing = found.missing;
    if (!found.found) break;
    // More rounds are worth their time where layouts are quick and nothing else was tried yet.
    const bool thorough = attempt == 0 && b.steps.ms.size() <= most_steps_of_thorough;
    result.fitted = b.fitter.fit(found, capacity, thorough);
    result.fits = result.fitted.where.height <= capacity;
    const bool capped = result.fits && host != INT64_MAX;
    if (const std::int64_t beyond = capped ? b.beyond_host(result.fitted.where) : 0; beyond > 0) {
      result.fits = false;
      b.steps.link.host_bytes = std::max<std::int64_t>(0, b.steps.link.host_bytes - beyond);
      continue;
    }
    if (result.fits) break;
    limit -= std::max(result.fitted.where.height - capacity, capacity / least_parts_of_capacity) *
             (1 + attempt / 2);
  }
  return result;
}

}  // namespace

searched search_within(budget_problem& b, std::int64_t capacity, const std::vector<timed_choice>& known) {
  const std::int64_t host = b.ticks.link.host_bytes;
  searched result = search_on_host(b, capacity, host, known);
  if (result.fits || host == INT64_MAX) return result;
  // What fits device and host is hard to find where both are short. A choice that does not know of the host's
  // limit may keep it, too.
  searched other = search_on_host(b, capacity, INT64_MAX, known);
  result.fits = other.fits && b.beyond_host(other.fitted.where) == 0;
  if (result.fits) result.fitted = std::move(other.fitted);
  return result;
}

std::vector<timed_choice> unplanned_within(budget_problem& b, std::int64_t capacity, double ms) {
  std::vector<timed_choice> found;
  for (unplanned_choice& u : b.unplanned) {
    if (u.ms >= ms || u.max_live > capacity) continue;
    b.steps.limit = b.no_limit();
    timeline_record record;
    simulator sim(b.steps);
    u.ms = sim.run(u.choice, std::numeric_limits<double>::infinity(), &record).ms;
    if (u.ms >= ms) continue;
    selection chosen = b.view.select(u.choice, record);
    schedule steps = b.facts.build(chosen, b.options);
    u.max_live = without_layout(steps).max_live;
    if (u.max_live > capacity) continue;
    placement where = place_within(b.options, std::move(steps), capacity, quick_layout_work, &b.baseline);
    if (where.height > capacity) continue;
    found.push_back(
        {{std::move(chosen), std::move(where)}, u.choice, b.view.times_of(u.choice, record), u.ms});
    ms = u.ms;
  }
  return found;
}

}  // namespace stash::planner
