// SPDX-License-Identifier: Apache-2.0
#include "planner/order_planner.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "encoders/message.hpp"
#include "planner/baselines/policies.hpp"
#include "planner/graph/op_order.hpp"
#include "planner/memory/order_search.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr int most_rounds = 4;

// What is smallest says which order is good; who is fastest within a budget is asked afterwards.
plan_options options_for_order(const plan_options& options) {
  plan_options o = options;
  o.order = op_order::keep;
  o.model.reset();
  o.swap = false;
  o.budget_bytes = 0;
  o.lay_out = false;
  if (has_rule(options.chosen_policy)) {
    o.chosen_policy = policy::none;
    o.values.clear();
  }
  return o;
}

bool stopped(const plan_options& options) {
  return options.stop && options.stop();
}

bool is_better(const plan& other, const plan& given, const plan_options& options) {
  if (options.model) return other.times.simulated_ms < given.times.simulated_ms;
  return options.budget_bytes == 0 && other.sizes.planned_peak_total < given.sizes.planned_peak_total;
}

// Nothing if the budget is too small; the refusal then.
std::optional<plan> plan_within(const graph& g, const plan_options& options, std::optional<error>& refusal) {
  try {
    return make_plan(g, options);
  } catch (const error& e) {
    if (e.code() != errc::infeasible_budget) throw;
    refusal = e;
    return std::nullopt;
  }
}

}  // namespace

std::string_view to_string(op_order order) noexcept {
  return order == op_order::memory ? "memory" : "keep";
}

op_order parse_op_order(std::string_view name) {
  if (name == "keep") return op_order::keep;
  if (name == "memory") return op_order::memory;
  throw error(errc::invalid_argument,
              fmt::format("parse_op_order: name: expected keep or memory, got '{}'", shortened(name)));
}

ordered_graph ordered_for_memory(const graph& g, const plan_options& options) {
  const plan_options own = options_for_order(options);
  plan best = make_plan(g, own);
  id_vector<op_id, op_id> planned_op;
  for (int round = 0; round < most_rounds && !stopped(options); ++round) {
    const id_vector<op_id, op_id> order = lower_peak_order(best, options.stop);
    plan next = make_plan(reordered(best.network, order), own);
    if (next.sizes.planned_peak_total >= best.sizes.planned_peak_total) break;
    best = std::move(next);
    id_vector<op_id, op_id> joined;
    for (const op_id o : order)
      joined.push_back(planned_op.empty() ? o : planned_op[o]);
    planned_op = std::move(joined);
  }
  return {std::move(best.network), std::move(planned_op)};
}

plan plan_in_any_order(const graph& g, const plan_options& options) {
  plan_options own = options;
  own.order = op_order::keep;
  ordered_graph other = ordered_for_memory(g, options);
  if (other.planned_op.empty()) return make_plan(g, own);
  std::optional<error> refused_given, refused_changed;
  std::optional<plan> given = plan_within(g, own, refused_given);
  std::optional<plan> changed = plan_within(other.network, own, refused_changed);
  if (changed && (!given || is_better(*changed, *given, options))) {
    changed->planned_op = std::move(other.planned_op);
    return std::move(*changed);
  }
  if (given) return std::move(*given);
  // The order was found for plans that move nothing: with swap it may need more than the given one.
  throw options.swap ? *refused_given : *refused_changed;
}

}  // namespace stash::planner
