#include "optimizer/budget.hpp"

#include "optimizer/footprint.hpp"

namespace stash_tf {

namespace {

// Of the budget, for what other orders of execution take than the simulated one.
constexpr std::int64_t parts_in_reserve = 20;
constexpr int most_attempts = 5;

outcome attempt(const step_context& c, const planner_graph& g, const settings& wanted,
                std::int64_t planner_budget) {
  outcome o;
  o.chosen = plan(g, c.of, wanted, planner_budget);
  if (!o.chosen.infeasible.empty()) return o;
  o.graph = rewrite(c.original, c.graph, c.of, o.chosen, c.flow, c.ordered.pairs);
  o.peak_bytes = simulated_peak(graph_view(o.graph.graph), c.graph, c.sizes, c.of, o.chosen);
  return o;
}

// Whether a plan keeps the target, with the least codec work then.
bool keeps(const step_context& c, const planner_graph& g, const settings& wanted, std::int64_t target,
           outcome* result) {
  std::int64_t planner_budget = target;
  for (int k = 0; k < most_attempts && planner_budget > 0; ++k) {
    outcome o = attempt(c, g, wanted, planner_budget);
    if (!o.chosen.infeasible.empty()) return false;
    if (o.peak_bytes <= target) {
      *result = std::move(o);
      return true;
    }
    planner_budget -= o.peak_bytes - target;
  }
  return false;
}

}  // namespace

outcome best_graph(const step_context& c) {
  const planner_graph g = make_planner_graph(c.graph, c.of, c.sizes, c.ordered.order);
  const std::int64_t budget = c.sizes.batch_known() ? c.wanted.budget_bytes : 0;
  if (budget > 0) {
    const std::int64_t target = budget - budget / parts_in_reserve;
    outcome o;
    settings wanted = c.wanted;
    if (wanted.policy == "auto") wanted.values.clear();
    if (keeps(c, g, wanted, target, &o)) return o;
    // Policy auto loses as little as the budget asks for: one more format at a time, the most precise first.
    for (const std::string& format :
         c.wanted.policy == "auto" ? c.wanted.values : std::vector<std::string>{}) {
      wanted.values.push_back(format);
      if (keeps(c, g, wanted, target, &o)) return o;
    }
  }
  return attempt(c, g, c.wanted, 0);
}

}  // namespace stash_tf
