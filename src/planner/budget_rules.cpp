// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "planner/memory/bounds.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr int most_attempts = 8, most_attempts_with_more = 400;
constexpr int rounds_of_rule = 12;

// Takes from the steps in which blocks stand out of the capacity what they stand out.
void tighten(budget_problem& b, const placement& placed, std::int64_t capacity) {
  const id_vector<step_number, joined_step> step = b.view.steps_of(placed.steps);
  id_vector<joined_step, std::int64_t> out(b.steps.ms.size(), 0);
  if (!placed.laid_out) out = b.view.most_above(placed, capacity);
  for (const buffer& x : placed.steps.buffers) {
    if (x.form == buffer_form::host || x.offset + x.bytes <= capacity) continue;
    for (joined_step k = step[x.first_step]; k <= step[x.last_step]; ++k)
      out[k] = std::max(out[k], x.offset + x.bytes - capacity);
  }
  for (const joined_step k : out.ids())
    b.steps.fixed[k] += out[k];
}

std::optional<placed_rule> by_rule(budget_problem& b, std::int64_t limit, std::int64_t capacity,
                                   std::int64_t host) {
  problem ticks = b.ticks;
  ticks.link.host_bytes = host;
  const ruled decision =
      apply_rule(b.options.chosen_policy, {b.g, b.set, limit, b.static_bytes, b.options.swap_all}, ticks);
  b.steps = compress(ticks);
  b.steps.limit = limit;
  simulator sim(b.steps);
  std::optional<placed_rule> lowest;
  for (int round = 0; round < rounds_of_rule; ++round) {
    timeline_record record;
    const option_choice& c = decision.choice;
    const simulated s = decision.late ? sim.run_late(c, record)
                                      : sim.run(c, std::numeric_limits<double>::infinity(), &record);
    if (!s.feasible) break;
    timed_choice p = b.place_choice(c, s, record, capacity, quick_layout_work);
    const placement where = p.where;
    if (!lowest || where.height < lowest->placed.where.height) lowest = {decision, std::move(p)};
    if (where.height <= capacity || b.options.chosen_policy == policy::gist) break;
    tighten(b, where, capacity);
  }
  return lowest;
}

// A rule that moves more than the host can take, whatever the budget.
[[noreturn]] void refuse_host(const budget_problem& b, std::int64_t budget) {
  const std::int64_t host = b.ticks.link.host_bytes;
  throw error(errc::infeasible_budget,
              fmt::format("make_plan: budget: expected one that policy {} can meet{}, got {}",
                          to_string(b.options.chosen_policy),
                          host == INT64_MAX ? "" : fmt::format(" with {} bytes on the host", host), budget));
}

}  // namespace

placed_rule follow_rule(budget_problem& b, std::int64_t budget) {
  const std::int64_t capacity = budget - b.static_bytes;
  std::optional<placed_rule> result;
  std::int64_t limit = capacity, host = b.ticks.link.host_bytes;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    result = by_rule(b, limit, capacity, host);
    if (!result) break;
    const placement& where = result->placed.where;
    const std::int64_t beyond = where.height <= capacity ? b.beyond_host(where) : 0;
    if (where.height <= capacity && beyond == 0) break;
    if (beyond > 0) {
      host = std::max<std::int64_t>(0, host - beyond);
      result.reset();
    } else {
      limit -= where.height - capacity;
    }
  }
  // What does not fit with less still says what would do.
  std::int64_t more = std::max(capacity, working_set_wall(b.g).bytes);
  for (int attempt = 0; !result && attempt < most_attempts_with_more; ++attempt, more += more / 24 + 1) {
    result = by_rule(b, more, more, host);
    if (result && b.beyond_host(result->placed.where) > 0) result.reset();
  }
  if (!result) refuse_host(b, budget);
  if (result->placed.where.height > capacity)
    refuse_budget(b.g, result->placed.where, b.static_bytes, budget);
  b.steps = compress(b.ticks);
  b.steps.limit = capacity;
  return std::move(*result);
}

}  // namespace stash::planner
