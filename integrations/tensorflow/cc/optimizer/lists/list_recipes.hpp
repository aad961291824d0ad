// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a loop need not put into a list, because the backward loop can compute it again: the tanh of an
/// LSTM's state is made of its gates and of the state before, which are in other lists of the same iteration.

#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

struct list_recipe {
  int list = -1;          ///< of step::lists; needs not be kept
  std::vector<int> from;  ///< lists that are kept, and whose elements it is made of
  /// Nodes to copy, each after those that it reads; the last one makes the element. None: another list gets
  /// the same tensor.
  std::vector<int> again;
  std::vector<int> constants;  ///< nodes that these read, too
  int like = -1;               ///< one of `from` whose elements have the same shape; -1: there is none
};

/// Elements that at most eight deterministic element-wise ops of the loop's body make of elements of other
/// lists, which the same iteration fills and the same backward iteration empties, and of constants. Those
/// others are kept, as exact as the element has to be (listed_block::also_needs), where that costs less than
/// the element.
///
/// `lossy`: what is kept may be rounded. Then only continuous functions are computed again, for readers that
/// need values, and what they are made of keeps 16 bits.
std::vector<list_recipe> list_recipes(const graph_view& graph, const control_flow& flow, bool lossy,
                                      step* analysis);

}  // namespace stash_tf
