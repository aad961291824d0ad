// SPDX-License-Identifier: Apache-2.0
#include "optimizer/budget.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "optimizer/pinning.hpp"
#include "optimizer/plan/workspace.hpp"
#include "stash/c_api.h"

namespace stash_tf {

namespace {

// Of the budget, for what other orders of execution take than the simulated one.
constexpr std::int64_t parts_in_reserve = 20;
constexpr int most_attempts = 5;
constexpr int bisections = 6;
constexpr int most_refinements = 8;
// What is smaller may run in any order, as long as all of it together is at most twice as much.
constexpr std::int64_t parts_of_peak = 64;

// From which size on ops of a pass keep their order. Where many are small, as in a deep network of equal
// layers, they matter together: run ahead of the others, their results could all lie in memory.
std::int64_t smallest_kept(const step_context& c, const std::vector<simulated_op>& ran, std::int64_t peak,
                           bool backward) {
  const std::int64_t most = peak / parts_of_peak;
  std::vector<std::int64_t> small;
  for (const simulated_op& op : ran) {
    const bool counts = op.node < c.graph.size() && c.analysis.backward[at(op.node)] == backward;
    if (counts && op.takes > 0 && op.takes < most) small.push_back(op.takes);
  }
  std::sort(small.begin(), small.end());
  std::int64_t sum = 0;
  for (const std::int64_t bytes : small) {
    sum += bytes;
    if (sum > 2 * most) return bytes;
  }
  return most;
}

// A graph before its order is pinned, and an order for it.
struct unpinned_graph {
  const rewritten* plain;
  const graph_view* view;  // of its graph
  run_order order;
};

struct pinned_graph {
  rewritten graph;
  footprint simulated;
};

// Nothing where the peak of this order is not below `limit`.
std::optional<pinned_graph> pinned(const step_context& c, const unpinned_graph& k, const choices& chosen,
                                   bool pin_forward, std::int64_t limit) {
  std::vector<simulated_op> ran;
  const footprint intended =
      simulated_footprint(*k.view, c.graph, c.sizes, c.analysis, chosen, k.order, &ran);
  if (pin_forward && intended.peak_bytes >= limit)
    return std::nullopt;  // as most are: it saves the time for the rest
  smallest_pinned smallest;
  smallest.backward = smallest_kept(c, ran, intended.peak_bytes, true);
  if (pin_forward) smallest.forward = smallest_kept(c, ran, intended.peak_bytes, false);
  pinned_graph made{*k.plain, {}};
  pin_order(c.graph, c.analysis, c.flow, ran, smallest, &made.graph.graph);
  made.simulated = simulated_footprint(graph_view(made.graph.graph), c.graph, c.sizes, c.analysis, chosen);
  if (made.simulated.peak_bytes >= limit) return std::nullopt;
  return made;
}

// The forward pass keeps its order, too, where another one lowers the peak, or where its own is open and any
// that TensorFlow might take instead is higher: of branches, TensorFlow may run one layer of each before the
// next, and who is ready first depends on addresses and threads. `best` is what `found` was made of.
pinned_graph with_forward_order(const step_context& c, unpinned_graph best, const choices& chosen,
                                pinned_graph found) {
  const std::int64_t peak = found.simulated.peak_bytes;
  bool lower = false;
  for (const forward_order order : {forward_order::least_growth, forward_order::least_growth_with_backward,
                                    forward_order::least_growth_kept_last}) {
    best.order.forward = order;
    const std::int64_t limit = std::min(found.simulated.peak_bytes, peak - peak / parts_of_peak);
    std::optional<pinned_graph> next = pinned(c, best, chosen, true, limit);
    if (!next) continue;
    found = *std::move(next);
    lower = true;
  }
  if (lower) return found;
  run_order worst;
  worst.forward = forward_order::most_growth;
  const graph_view own(found.graph.graph);
  const std::int64_t as_high = peak + peak / parts_of_peak;  // the new edges may move something small
  if (simulated_footprint(own, c.graph, c.sizes, c.analysis, chosen, worst).peak_bytes <= as_high)
    return found;
  if (auto next = pinned(c, {&found.graph, &own, {}}, chosen, true, as_high)) return *std::move(next);
  best.order.forward = forward_order::least_growth;
  if (auto next = pinned(c, best, chosen, true, as_high)) return *std::move(next);
  return found;
}

// Whether a kernel takes a good part of the peak besides what it reads and makes.
bool takes_much_memory(const step_context& c, int node, std::int64_t peak) {
  constexpr std::int64_t parts = 8;
  return !c.analysis.on_device && workspace_bytes(c.graph, node, c.sizes, c.analysis.threads) > peak / parts;
}

// What is made of these choices, in the order with the smallest peak among those that are worth a try.
outcome realised(const step_context& c, const planner_graph& g, choices chosen) {
  const rewritten plain = rewrite(c.original, c.graph, c.analysis, chosen, c.flow, c.ordered, g.node_of_op);
  const graph_view view(plain.graph);
  unpinned_graph best{&plain, &view, {}};
  pinned_graph found;
  found.simulated.peak_bytes = std::numeric_limits<std::int64_t>::max();
  const auto try_backward = [&](const unpinned_graph& k) {
    std::optional<pinned_graph> next = pinned(c, k, chosen, false, found.simulated.peak_bytes);
    if (!next) return;
    found = *std::move(next);
    best = k;
  };
  for (const backward_order order : {backward_order::as_executor, backward_order::frees_first,
                                     backward_order::least_growth, backward_order::least_growth_read_last})
    try_backward({&plain, &view, {order}});
  const std::int64_t peak = found.simulated.peak_bytes;
  const ordering free = without_weights_first(c.graph, c.analysis, c.ordered,
                                              [&](int node) { return takes_much_memory(c, node, peak); });
  std::optional<rewritten> any;
  std::optional<graph_view> any_view;
  if (free.pairs.size() != c.ordered.pairs.size()) {
    any = rewrite(c.original, c.graph, c.analysis, chosen, c.flow, free, g.node_of_op);
    any_view.emplace(any->graph);
    for (const std::int64_t parts : {4, 8, 16, 32}) {
      run_order below{backward_order::below_bound};
      below.bound = found.simulated.peak_bytes - found.simulated.peak_bytes / parts;
      try_backward({&*any, &*any_view, below});
    }
  }
  found = with_forward_order(c, best, chosen, std::move(found));
  return {std::move(chosen), std::move(found.graph), std::move(found.simulated)};
}

// The choices, but for bits of their own that the last readers of these tensors get, so that the values die
// before. Nothing if none has any.
std::optional<choices> with_bits(const step_context& c, const std::set<std::string>& tensors,
                                 choices chosen) {
  bool changed = false;
  for (std::size_t k = 0; k < c.analysis.blocks.size(); ++k) {
    const stashed_block& b = c.analysis.blocks[k];
    block_choice& choice = chosen.blocks[k];
    if (b.bits.empty() || !choice.bit_readers.empty() || tensors.count(c.graph.tensor_name(b.tensor)) == 0)
      continue;
    for (const stash_reader& r : b.readers)
      if (reads_bits(c.graph, b, r)) choice.bit_readers.insert(r.node);
    stash_encoding mask = STASH_INIT(stash_encoding);
    mask.kind = STASH_KIND_SIGN_MASK;  // a range_mask is as large
    std::size_t bytes = 0;
    if (stash_encoded_bytes_bound(&mask, STASH_DTYPE_F32, b.size.elements, &bytes) != STASH_OK)
      throw std::runtime_error(stash_last_error_message());
    choice.bits_bytes = static_cast<std::int64_t>(bytes);
    changed = true;
  }
  if (!changed) return std::nullopt;
  return chosen;
}

// The planner takes encoded bytes to lie there until the op that reads them ends; TensorFlow frees them when
// they have been decoded. So bits in addition to them may pay where the planner sees no use in them.
outcome refined(const step_context& c, const planner_graph& g, std::int64_t target, outcome o) {
  for (int k = 0; k < most_refinements && o.simulated.peak_bytes > target; ++k) {
    const std::vector<std::string>& kept = o.simulated.kept_for_bits;
    std::optional<choices> chosen = with_bits(c, {kept.begin(), kept.end()}, o.chosen);
    if (!chosen) return o;
    outcome next = realised(c, g, *std::move(chosen));
    if (next.simulated.peak_bytes >= o.simulated.peak_bytes) return o;
    o = std::move(next);
  }
  return o;
}

// A plan of the planner's, improved as long as its simulated peak is above `target`. Choices alone where the
// planner finds none.
outcome attempt(const step_context& c, const planner_graph& g, const settings& request,
                std::int64_t planner_budget, std::int64_t target) {
  choices chosen = plan(g, c.analysis, request, planner_budget);
  if (!chosen.infeasible.empty()) return {std::move(chosen), {}, {}};
  return refined(c, g, target, realised(c, g, std::move(chosen)));
}

// A plan that keeps the target, with the least codec work then. Nothing if none is found.
std::optional<outcome> kept_within(const step_context& c, const planner_graph& g, const settings& request,
                                   std::int64_t target) {
  std::int64_t planner_budget = target;
  for (int k = 0; k < most_attempts && planner_budget > 0; ++k) {
    outcome o = attempt(c, g, request, planner_budget, target);
    if (!o.chosen.infeasible.empty()) return std::nullopt;
    if (o.simulated.peak_bytes <= target) return o;
    planner_budget -= o.simulated.peak_bytes - target;
  }
  return std::nullopt;
}

// What policy auto may do: nothing that loses at first, then one more format at a time, the most precise
// first.
std::vector<settings> steps_of_auto(const settings& all) {
  std::vector<settings> steps = {all};
  steps[0].values.clear();
  for (const std::string& format : all.values) {
    steps.push_back(steps.back());
    steps.back().values.push_back(format);
  }
  return steps;
}

// The smallest peak that is found with moves to the host, by bisection between nothing and `least`, the
// smallest without: the planner has no policy for that.
outcome least_with_moves(const step_context& c, const planner_graph& g, outcome least) {
  std::int64_t too_small = 0;
  std::int64_t enough = least.simulated.peak_bytes;
  for (int k = 0; k < bisections; ++k) {
    const std::int64_t middle = too_small + (enough - too_small) / 2;
    outcome o = attempt(c, g, c.request, middle, middle);
    if (!o.chosen.infeasible.empty()) {
      too_small = middle;
      continue;
    }
    enough = middle;
    if (o.simulated.peak_bytes < least.simulated.peak_bytes) least = std::move(o);
  }
  return least;
}

outcome with_formats(outcome o, const settings& request) {
  o.formats = request.policy == "auto" ? static_cast<int>(request.values.size()) : 0;
  return o;
}

}  // namespace

outcome best_graph(const step_context& c) {
  const planner_graph g = make_planner_graph(c.graph, c.analysis, c.sizes, c.ordered.order);
  const std::int64_t budget = c.sizes.batch_known() ? c.request.budget_bytes : 0;
  settings alone = c.request;  // encodings alone
  alone.swap = false;
  const std::vector<settings> steps =
      alone.policy == "auto" ? steps_of_auto(alone) : std::vector<settings>{alone};
  if (budget > 0) {
    const std::int64_t target = budget - budget / parts_in_reserve;
    for (const settings& request : steps)
      if (auto o = kept_within(c, g, request, target)) return with_formats(*std::move(o), request);
    if (c.request.swap)
      if (auto o = kept_within(c, g, c.request, target)) return with_formats(*std::move(o), alone);
  }
  outcome least = with_formats(attempt(c, g, alone, 0, 0), alone);
  if (budget > 0) {
    // What is kept in reserve cannot be had: nothing is lost for a peak that is as high without.
    const std::int64_t peak = least.simulated.peak_bytes;
    const std::int64_t as_high = std::min(budget, peak + peak / parts_of_peak);
    for (std::size_t k = 0; k + 1 < steps.size(); ++k) {
      outcome o = attempt(c, g, steps[k], 0, 0);
      if (o.chosen.infeasible.empty() && o.simulated.peak_bytes <= as_high)
        return with_formats(std::move(o), steps[k]);
    }
  }
  const std::int64_t limit = budget > 0 ? budget : c.device_bytes;
  if (!c.request.swap || !c.sizes.batch_known() || limit == 0 || least.simulated.peak_bytes <= limit)
    return least;
  if (budget == 0)
    if (auto o = kept_within(c, g, c.request, limit)) return with_formats(*std::move(o), alone);
  return with_formats(least_with_moves(c, g, std::move(least)), alone);
}

}  // namespace stash_tf
