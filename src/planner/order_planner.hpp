// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Plans whose ops need not run in the order of their graph.

#include "planner/plan.hpp"

namespace stash::planner {

/// A graph in another order of its ops.
struct ordered_graph {
  graph network;
  id_vector<op_id, op_id> planned_op;  ///< plan::planned_op; empty: no other order was found
};

/// The order for which the smallest plan that lower_peak_order() leads to is smallest: plan, order, and plan
/// again as long as that helps. `options` say what may be done to the maps; model, budget and swap are not
/// read, and for policies that are published rules maps stay as they are. Throws like make_plan().
ordered_graph ordered_for_memory(const graph& g, const plan_options& options);

/// make_plan() with op_order::memory: the better of the plan for the order of `g` and of that for the order
/// of ordered_for_memory(). Better is: within the budget at all; with a model, in less time; without one and
/// without a budget, smaller. Of equals, and of two within a budget without a model, that of `g`.
plan plan_in_any_order(const graph& g, const plan_options& options);

}  // namespace stash::planner
