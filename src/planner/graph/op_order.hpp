// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// In which orders the ops of a training step may run.

#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::planner {

/// What must run directly before an op, and directly after it. Other ops may change places, within their
/// stage.
struct op_dependencies {
  id_vector<op_id, std::vector<op_id>> before, after;  ///< ascending, no op twice
};

/// Two ops depend on each other if one of them writes bytes that the other reads or writes: channels of a
/// storage, a parameter, or what an alternative or a recipe of a backward op reads. So every sum is added up
/// in the order of `g`, and every order that keeps the dependencies gives the same bits. `g` passes
/// check_graph().
op_dependencies dependencies_of(const graph& g);

/// Whether `order` holds every op of `g` once, stage by stage, each after what it depends on.
bool is_legal_order(const graph& g, const op_dependencies& dependencies,
                    const id_vector<op_id, op_id>& order);

/// `g` with its ops in another order: the op `order[i]` of `g` becomes op `i`. Storages and recipes keep
/// their numbers. Throws error(invalid_argument) for an order that is_legal_order() refuses.
graph reordered(const graph& g, const id_vector<op_id, op_id>& order);

}  // namespace stash::planner
