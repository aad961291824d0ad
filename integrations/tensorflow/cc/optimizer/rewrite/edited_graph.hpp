// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A graph to which nodes and control edges are added.

#include <string>
#include <utility>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/rewrite/unused_names.hpp"
#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

class edited_graph {
 public:
  /// `start` is what `original` was made of, or that with more nodes after it. `original` has to outlive
  /// this.
  edited_graph(tensorflow::GraphDef start, const graph_view& original);

  /// By its number in the original.
  tensorflow::NodeDef* node(int i) { return graph_.mutable_node(i); }
  /// Marked as ours, on the device of node `like`. Its name is this one, or one that begins so.
  tensorflow::NodeDef* add_node(const std::string& base_name, const char* op, int like);
  /// A control edge from the node of this name.
  void wait_for(int waiting, const std::string& name);

  tensorflow::GraphDef take() { return std::move(graph_); }

 private:
  const graph_view& original_;
  tensorflow::GraphDef graph_;
  unused_names names_;
};

}  // namespace stash_tf
