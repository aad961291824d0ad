// SPDX-License-Identifier: Apache-2.0
// Layrub (Liu et al., 2018), migration between layers: every map that backward reads moves, and comes back
// while the layer before its reader's works. Reuse within layers is the graph's: activations in place.

#include <algorithm>

#include "planner/baselines/policies.hpp"

namespace stash::planner {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// Per op the first op of the backward pass of its layer: ops of one forward op, and the sums and copies
// after them.
std::vector<op_id> layer_begins(const graph& g) {
  std::vector<op_id> begin(g.ops.size(), 0);
  op_id layer = -1;
  for (std::size_t i = 0; i < g.ops.size(); ++i) {
    const op& o = g.ops[i];
    const bool same = i > 0 && g.ops[i - 1].stage == o.stage && o.stage == op_stage::backward &&
                      (o.forward_op < 0 || o.forward_op == layer);
    if (o.forward_op >= 0 || !same) layer = o.forward_op;
    begin[i] = same ? begin[i - 1] : static_cast<op_id>(i);
  }
  return begin;
}

}  // namespace

ruled layrub_rule(const rule_input& in, problem& ticks) {
  const std::vector<op_id> begin = layer_begins(in.g);
  ruled r;
  for (item& x : ticks.items) {
    r.choice.push_back(option_that_moves(x, movable(x)));
    for (transfer& t : x.options[index(r.choice.back())].transfers) {
      const op_id reader = (t.needed + 1) / 2;
      const op_id own = begin[index(reader)];
      const bool first = own == 0 || in.g.op_at(own - 1).stage != op_stage::backward;
      const op_id layer_before = first ? own : begin[index(own) - 1];
      t.earliest = std::clamp(2 * layer_before, t.released + 1, t.needed);
    }
  }
  return r;
}

}  // namespace stash::planner
