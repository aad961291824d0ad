// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Shapes of tensors that come out of lists. TensorFlow's shape inference does not follow lists through
/// loops; what goes into a list says what comes out of it.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"

namespace stash_tf {

/// What comes out of a list.
struct listed_shape {
  static constexpr std::int64_t unknown = -1;
  static constexpr std::int64_t batch = -2;

  std::string stand_in;  ///< name of a node of that shape (with_stand_ins)
  std::vector<std::int64_t> dims;
  tensorflow::DataType type = tensorflow::DT_INVALID;
};

/// A name that no node has.
std::string stand_in_name(const graph_view& graph, const source& tensor);

/// Adds those tensors whose shape the inference left open and which can be told from what the list was given;
/// `symbols` stand for the batch. False if there are no more.
bool add_shapes_out_of_lists(const graph_view& graph, const tensorflow::grappler::GraphProperties& known,
                             const std::set<std::int64_t>& symbols, std::map<source, listed_shape>* shapes);

/// The graph with nodes of these shapes in place of what is read out of lists: for inference only.
tensorflow::GraphDef with_stand_ins(const tensorflow::GraphDef& graph, const graph_view& view,
                                    const std::map<source, listed_shape>& shapes);

/// Adds what stands for the batch in those nodes.
void add_symbols_of_stand_ins(const tensorflow::grappler::GraphProperties& known,
                              const std::map<source, listed_shape>& shapes, std::set<std::int64_t>* symbols);

}  // namespace stash_tf
