#include "optimizer/budget.hpp"

namespace stash_tf {

namespace {

// Of the budget, for what other orders of execution take than the simulated one.
constexpr std::int64_t parts_in_reserve = 20;
constexpr int most_attempts = 5;
constexpr int bisections = 6;

outcome attempt(const step_context& c, const planner_graph& g, const settings& wanted,
                std::int64_t planner_budget) {
  outcome o;
  o.chosen = plan(g, c.of, wanted, planner_budget);
  if (!o.chosen.infeasible.empty()) return o;
  o.graph = rewrite(c.original, c.graph, c.of, o.chosen, c.flow, c.ordered, g.node_of_op);
  o.simulated = simulated_footprint(graph_view(o.graph.graph), c.graph, c.sizes, c.of, o.chosen);
  return o;
}

// Whether a plan keeps the target, with the least codec work then.
bool keeps(const step_context& c, const planner_graph& g, const settings& wanted, std::int64_t target,
           outcome* result) {
  std::int64_t planner_budget = target;
  for (int k = 0; k < most_attempts && planner_budget > 0; ++k) {
    outcome o = attempt(c, g, wanted, planner_budget);
    if (!o.chosen.infeasible.empty()) return false;
    if (o.simulated.peak_bytes <= target) {
      *result = std::move(o);
      return true;
    }
    planner_budget -= o.simulated.peak_bytes - target;
  }
  return false;
}

// The smallest peak that is found with moves to the host, by bisection between nothing and `least`, the
// smallest without: the planner has no policy for that.
outcome least_with_moves(const step_context& c, const planner_graph& g, outcome least) {
  std::int64_t too_small = 0;
  std::int64_t enough = least.simulated.peak_bytes;
  for (int k = 0; k < bisections; ++k) {
    const std::int64_t middle = too_small + (enough - too_small) / 2;
    outcome o = attempt(c, g, c.wanted, middle);
    if (!o.chosen.infeasible.empty()) {
      too_small = middle;
      continue;
    }
    enough = middle;
    if (o.simulated.peak_bytes < least.simulated.peak_bytes) least = std::move(o);
  }
  return least;
}

}  // namespace

outcome best_graph(const step_context& c) {
  const planner_graph g = make_planner_graph(c.graph, c.of, c.sizes, c.ordered.order);
  const std::int64_t budget = c.sizes.batch_known() ? c.wanted.budget_bytes : 0;
  settings alone = c.wanted;  // encodings alone
  alone.swap = false;
  outcome o;
  if (budget > 0) {
    const std::int64_t target = budget - budget / parts_in_reserve;
    settings wanted = alone;
    if (wanted.policy == "auto") wanted.values.clear();
    if (keeps(c, g, wanted, target, &o)) return o;
    // Policy auto loses as little as the budget asks for: one more format at a time, the most precise first.
    for (const std::string& format :
         c.wanted.policy == "auto" ? c.wanted.values : std::vector<std::string>{}) {
      wanted.values.push_back(format);
      if (keeps(c, g, wanted, target, &o)) return o;
    }
    if (c.wanted.swap && keeps(c, g, c.wanted, target, &o)) return o;
  }
  outcome least = attempt(c, g, alone, 0);
  const std::int64_t limit = budget > 0 ? budget : c.device_bytes;
  if (!c.wanted.swap || !c.sizes.batch_known() || limit == 0 || least.simulated.peak_bytes <= limit)
    return least;
  if (budget == 0 && keeps(c, g, c.wanted, limit, &o)) return o;
  return least_with_moves(c, g, std::move(least));
}

}  // namespace stash_tf
