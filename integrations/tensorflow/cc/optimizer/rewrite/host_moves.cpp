// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/host_moves.hpp"

#include <algorithm>

namespace stash_tf {

host_moves::host_moves(const graph_view& graph, const control_flow& flow, const ordering& ordered,
                       const std::vector<int>& op_nodes)
    : flow_(flow), op_nodes_(op_nodes), line_(graph.positions(ordered.order)) {}

host_move host_moves::schedule(int from, const std::vector<int>& readers, const host_stay& stay) const {
  int first = line_[at(readers.front())];
  for (const int r : readers)
    first = std::min(first, line_[at(r)]);
  const auto is_between = [&](int i) { return line_[at(from)] < line_[at(i)] && line_[at(i)] < first; };
  const auto all_may_wait = [&](int i) {
    return std::all_of(readers.begin(), readers.end(), [&](int r) { return flow_.may_wait(r, i); });
  };
  host_move move;
  // Loops and branches may forbid the plan's op: then the next one, which holds a little more memory.
  int op = std::min(stay.in_from, static_cast<int>(op_nodes_.size()) - 1);
  for (; op >= 0 && is_between(op_nodes_[at(op)]) && move.in_after < 0; --op)
    if (all_may_wait(op_nodes_[at(op)])) move.in_after = op_nodes_[at(op)];
  if (move.in_after < 0 || stay.out_by < 0) return move;
  for (op = stay.out_by; op < stay.in_from && move.out_by < 0; ++op) {
    const int i = op_nodes_[at(op)];
    if (is_between(i) && flow_.may_wait(i, from)) move.out_by = i;
  }
  return move;
}

}  // namespace stash_tf
