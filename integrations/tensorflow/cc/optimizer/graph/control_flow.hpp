// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Loops and branches of a graph whose control flow has been lowered to Switch, Merge, Enter and Exit: which
/// nodes may wait for which without changing what runs.

#include <string>
#include <utility>
#include <vector>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"

namespace stash_tf {

/// Arguments and results are not part of a function's body: no control edge may touch them.
bool is_outside(const std::string& op);

class control_flow {
 public:
  /// `order` is topological (graph_view).
  control_flow(const graph_view& graph, const std::vector<int>& order);

  /// True if a control edge from `first` to `second` changes nothing but the order: one device, one frame,
  /// neither an argument nor a result of the function (TensorFlow refuses such edges when the step runs), and
  /// `first` runs whenever `second` does. A node that waits for one that a branch left out would be left out
  /// too.
  bool may_wait(int second, int first) const;

  /// The same where `next` is a NextIteration and `first` belongs to the body of its loop: whether `first`
  /// runs in every iteration after which another one may come.
  bool may_hold_back(int next, int first) const;

  /// The NextIteration of a variable that decides whether the loop of this LoopCond goes on: an iteration
  /// that waits for it has not begun. -1: none was found.
  int deciding_variable(int condition) const;

  /// Loop in which a node runs; 0: none.
  int frame(int node) const { return loops_.loop_of(node); }

 private:
  // What a Switch reads to decide, and by which of its outputs. Switches that read the same decide alike: a
  // loop has one for each of its variables, a branch one for each of its inputs.
  using condition = std::pair<source, int>;

  const graph_view& graph_;
  const loops loops_;
  std::vector<std::vector<condition>> conditions_;  // sorted: all that decide about a node
};

}  // namespace stash_tf
