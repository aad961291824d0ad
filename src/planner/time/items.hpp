// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a graph and its legal configurations to a problem: when every configuration of a component holds how
/// many bytes, what its codecs cost, and which of its kept forms could move to the host.

#include "planner/graph/machine.hpp"
#include "planner/memory/options.hpp"
#include "planner/time/problem.hpp"

namespace stash::planner {

struct item_rules {
  bool swap = true;                                      ///< kept forms may move to the host
  std::int64_t smallest_swap = std::int64_t{64} * 1024;  ///< bytes; smaller ones stay
  bool move_images = false;  ///< images may go back to the host, too, until the first layer's gradient
  id_vector<storage_id, char> stays;  ///< per storage: it must stay on the device; empty: none must
  double overflow_share = 0.01;       ///< of the bytes of sparse forms, there for the whole step

  bool may_move(storage_id s) const { return stays.empty() || stays[s] == 0; }
};

/// One item per component, in order. `limit` is what the maps may take (parameters and workspace are not
/// theirs). Tick 2t is op t of the graph, update ops included.
problem make_problem(const graph& g, const option_set& options, const machine& m, const item_rules& rules,
                     std::int64_t limit);

}  // namespace stash::planner
