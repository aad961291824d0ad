// SPDX-License-Identifier: Apache-2.0
#include "fuzz/planner_documents.hpp"

#include "planner/graph/network.hpp"

namespace stash::fuzz {

using planner::network;
using planner::node_id;

std::vector<planner::graph> small_graphs() {
  network tiny("tiny");
  tiny.softmax_cross_entropy("loss", tiny.dense("d", tiny.flatten("flat", tiny.input(1, 1, 2)), 2));

  network dense("dense");
  const node_id hidden = dense.relu("r", dense.dense("d0", dense.flatten("flat", dense.input(2, 2, 1)), 3));
  dense.softmax_cross_entropy("loss", dense.dense("d1", hidden, 2));

  network mixed("mixed");
  const node_id image = mixed.input(6, 6, 2);
  const node_id stem =
      mixed.relu("r0", mixed.batch_norm("n0", mixed.conv2d("c0", image, 2, {3, 3}, {1, 1}, {1, 1}, false)));
  const node_id pooled =
      mixed.max_pool("p", mixed.relu("r1", mixed.conv2d("c1", stem, 2, {1, 1}, {1, 1}, {0, 0})), 2, 2);
  const node_id left = mixed.relu6("r2", mixed.conv2d("c2", pooled, 2, {1, 1}, {1, 1}, {0, 0}));
  const node_id joined = mixed.dropout("drop", mixed.concat("cat", {left, pooled}), 0.5F);
  mixed.softmax_cross_entropy("loss", mixed.dense("d", mixed.flatten("flat", joined), 2));
  return {make_training_graph(tiny, 1), make_training_graph(dense, 2), make_training_graph(mixed, 3)};
}

}  // namespace stash::fuzz
