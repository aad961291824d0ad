// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/node_edits.hpp"

#include <algorithm>
#include <utility>

#include "optimizer/graph/needs.hpp"

namespace stash_tf {

using tensorflow::NodeDef;

void add_control_edge(NodeDef* waiting, const std::string& first) {
  const std::string edge = "^" + first;
  if (std::find(waiting->input().begin(), waiting->input().end(), edge) == waiting->input().end())
    waiting->add_input(edge);
}

NodeDef copied_node(const NodeDef& from, const std::string& name) {
  NodeDef copy = from;
  copy.set_name(name);
  copy.clear_input();
  copy.mutable_attr()->erase("_class");
  (*copy.mutable_attr())[mark].set_b(true);
  return copy;
}

void change_op(NodeDef* node, const char* op, std::vector<std::string> data,
               const std::set<std::string>& kept_attrs) {
  std::vector<std::string> control;
  for (const std::string& input : node->input())
    if (!input.empty() && input[0] == '^') control.push_back(input);
  node->set_op(op);
  node->clear_input();
  for (std::string& input : data)
    node->add_input(std::move(input));
  for (std::string& input : control)
    node->add_input(std::move(input));
  auto* attrs = node->mutable_attr();
  std::vector<std::string> gone;
  for (const auto& [name, value] : *attrs)
    if (kept_attrs.count(name) == 0 && name[0] != '_') gone.push_back(name);
  for (const std::string& name : gone)
    attrs->erase(name);
  attrs->erase("_output_shapes");
  (*attrs)[mark].set_b(true);
}

void describe_encoding(tensorflow::DataType type, const block_choice& choice, const std::string& tensor,
                       NodeDef* node) {
  auto& attrs = *node->mutable_attr();
  attrs["T"].set_type(type);
  attrs["encoding"].set_s(choice.encoding);
  attrs["keep_nonzero"].set_b(choice.keep_nonzero);
  attrs["tensor"].set_s(tensor);
}

void take_bits(const std::string& op, const std::string& encoding, const std::string& stored,
               const std::string& tensor, NodeDef* node) {
  change_op(node, op_on_bits(op), {node->input(0), stored}, {"T", "alpha"});
  if (op != "Relu6Grad") (*node->mutable_attr())["encoding"].set_s(encoding);
  (*node->mutable_attr())["tensor"].set_s(tensor);
}

}  // namespace stash_tf
