// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the backward pass needs of the tensors of the forward pass, followed to where it matters: a value
/// that is read to compute another value of the forward pass again is needed as exactly as that one.

#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

class need_propagation {
 public:
  /// Refers to all of them; `order` is topological, `backward` and `late` are of backward_nodes() and
  /// after_a_gradient().
  need_propagation(const graph_view& graph, const std::vector<int>& order, const std::vector<bool>& backward,
                   const std::vector<bool>& late);

  /// What a node of the backward pass needs of one of its inputs, in names of docs/needs.md. Where its result
  /// is not known to be a gradient, that includes what is needed of the result: of a divisor, the exact
  /// value; of what a view hands on to a ReLU's gradient, the sign as well; of what a derivative such as
  /// 1 - y * y is made of, or a map that runs again, a fine value. What the gradient of a loss
  /// begins with is needed exactly: the better a model is, the smaller are the differences between what it
  /// gives and its labels, far below the smallest number of a narrow format.
  std::vector<std::string> needs(int node, int input) const;

 private:
  /// What is needed of a result, besides that it is a value.
  struct demand {
    bool exact = false, sign = false, fine = false;
  };

  bool is_gradient(int node) const;
  bool is_constant(int node) const;
  bool is_late_derivative(int node) const;
  bool is_of_loss(int node) const;
  bool is_unknown_gradient(int node, int input) const;
  demand of_input(int node, int input, bool may_be_gradient) const;
  bool is_for_sigmoids(int node) const;
  bool is_computed_again(int node) const;

  const graph_view& graph_;
  const std::vector<bool>&backward_, &late_;
  std::vector<bool> gradient_;         ///< by node: its results are gradients for certain
  std::vector<bool> constant_;         ///< by node
  std::vector<bool> late_derivative_;  ///< by node: late, but no gradient
  std::vector<bool> of_loss_;          ///< by node: the gradient of a loss, before the first layer
  std::vector<demand> of_result_;      ///< by node
};

}  // namespace stash_tf
