// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What readers need of tensors of the forward pass, by what they are and what the tensors are.

#include <string>
#include <vector>

#include "optimizer/analyse/need_propagation.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

class reader_needs {
 public:
  /// Refers to all of them, as need_propagation does.
  reader_needs(const graph_view& graph, const tensor_sizes& sizes, const std::vector<int>& order,
               const std::vector<bool>& backward, const std::vector<bool>& late);

  /// Of a tensor of this size that node `root` has computed, what input `input` of `node` needs, in names of
  /// docs/needs.md.
  std::vector<std::string> of(const tensor_size& size, const source& root, int node, int input) const;

 private:
  bool is_made_of_inputs(const source& root) const;
  bool is_spread(const tensor_size& operand, int node) const;

  const graph_view& graph_;
  const tensor_sizes& sizes_;
  const std::vector<bool> inputs_;  ///< by node: made_of_inputs()
  const need_propagation propagation_;
};

}  // namespace stash_tf
