// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How nodes are changed and described, wherever the graph is rewritten.

#include <set>
#include <string>
#include <vector>

#include "optimizer/graph/marks.hpp"
#include "optimizer/plan/choices.hpp"
#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// A control edge, unless it is there; they stand after all data inputs.
void add_control_edge(tensorflow::NodeDef* waiting, const std::string& first);

/// A copy of a node without its inputs, marked.
tensorflow::NodeDef copied_node(const tensorflow::NodeDef& from, const std::string& name);

/// Makes another op of a node: its control edges stay, and so do `kept_attrs` and those that begin with "_".
void change_op(tensorflow::NodeDef* node, const char* op, std::vector<std::string> data,
               const std::set<std::string>& kept_attrs);

/// Gives an encoder or a decoder its attributes; `tensor` names it in the counters.
void describe_encoding(tensorflow::DataType type, const block_choice& choice, const std::string& tensor,
                       tensorflow::NodeDef* node);

/// Makes of a ReLU's gradient, whose op was `op`, one that reads the encoded bits instead of values.
void take_bits(const std::string& op, const std::string& encoding, const std::string& stored,
               const std::string& tensor, tensorflow::NodeDef* node);

}  // namespace stash_tf
