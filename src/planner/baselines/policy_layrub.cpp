// SPDX-License-Identifier: Apache-2.0
// Layrub (Liu et al., 2018), migration between layers: every map that backward reads moves, and comes back
// while the layer before its reader's works. Reuse within layers is the graph's: activations in place.

#include <algorithm>

#include "planner/baselines/policies.hpp"

namespace stash::planner {
namespace {

constexpr op_id first_op(0);

// Per op the first op of the backward pass of its layer: ops of one forward op, and the sums and copies
// after them.
id_vector<op_id, op_id> layer_begins(const graph& g) {
  id_vector<op_id, op_id> begin(g.ops.size());
  op_id layer = no_id;
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    const bool same = i != first_op && g.ops[i - 1].stage == o.stage && o.stage == op_stage::backward &&
                      (!o.forward_op.valid() || o.forward_op == layer);
    if (o.forward_op.valid() || !same) layer = o.forward_op;
    begin[i] = same ? begin[i - 1] : i;
  }
  return begin;
}

}  // namespace

ruled layrub_rule(const rule_input& in, problem& ticks) {
  const id_vector<op_id, op_id> begin = layer_begins(in.g);
  ruled r;
  for (item& x : ticks.items) {
    r.choice.push_back(option_that_moves(x, movable(x)));
    for (transfer& t : x.options[r.choice.back()].transfers) {
      const op_id reader = op_of_tick(t.needed + 1);
      const op_id own = begin[reader];
      const bool first = own == first_op || in.g.op_at(own - 1).stage != op_stage::backward;
      const op_id layer_before = first ? own : begin[own - 1];
      t.earliest = std::clamp(tick_of(layer_before), t.released + 1, t.needed);
    }
  }
  return r;
}

}  // namespace stash::planner
