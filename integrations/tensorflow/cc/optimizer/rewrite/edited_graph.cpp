// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/edited_graph.hpp"

#include "optimizer/rewrite/node_edits.hpp"

namespace stash_tf {

using tensorflow::NodeDef;

edited_graph::edited_graph(tensorflow::GraphDef start, const graph_view& original)
    : original_(original), graph_(std::move(start)), names_(graph_) {}

NodeDef* edited_graph::add_node(const std::string& base_name, const char* op, int like) {
  NodeDef* n = graph_.add_node();
  n->set_name(names_.take(base_name));
  n->set_op(op);
  n->set_device(original_.node(like).device());
  (*n->mutable_attr())[mark].set_b(true);
  // Others that come later must not take an encoder for a node without effect.
  (*n->mutable_attr())["_grappler_do_not_remove"].set_b(true);
  return n;
}

void edited_graph::wait_for(int waiting, const std::string& name) {
  add_control_edge(node(waiting), name);
}

}  // namespace stash_tf
