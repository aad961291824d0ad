// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A small training graph with every kind of operand: slices, optional outputs, statistics, recompute rules.

#include "planner/graph/graph.hpp"
#include "planner/graph/network.hpp"

namespace stash::planner {

inline graph sample_graph() {
  network net("sample");
  const node_id image = net.input(8, 8, 3);
  const node_id stem =
      net.relu("r1", net.batch_norm("n1", net.conv2d("c1", image, 4, {3, 3}, {1, 1}, {1, 1}, false)));
  const node_id pooled =
      net.max_pool("p1", net.relu("r0", net.conv2d("c0", stem, 4, {1, 1}, {1, 1}, {0, 0})), 2, 2);
  const node_id left = net.relu("r2", net.conv2d("c2", pooled, 4, {1, 1}, {1, 1}, {0, 0}));
  const node_id right = net.leaky_relu("r3", net.conv2d("c3", pooled, 2, {3, 3}, {1, 1}, {1, 1}), 0.1F);
  const node_id joined = net.dropout("d1", net.concat("cat", {left, right}), 0.25F);
  net.softmax_cross_entropy("loss", net.dense("fc", net.flatten("flat", joined), 5));
  graph g = make_training_graph(net, 4);
  g.ops[op_id(op_id(0))].workspace_bytes = 4096;
  g.ops[op_id(op_id(0))].seconds = 0.1;
  g.ops[op_id(op_id(1))].seconds = 0.0;
  return g;
}

}  // namespace stash::planner
