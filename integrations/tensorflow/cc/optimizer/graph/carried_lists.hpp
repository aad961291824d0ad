// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Lists by which a loop of the forward pass hands tensors to one of the backward pass: each iteration puts
/// one in at the end, and the backward loop takes them out again, the last one first.

#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

struct carried_list {
  int begin = -1;  ///< EmptyTensorList; several lists may begin with the same empty one
  reader first;    ///< who takes it for this list
  int push = -1;   ///< the only TensorListPushBack
  int pop = -1;    ///< the only TensorListPopBack
  source element;  ///< what is put in
};

/// Those of which the graph shows every op: nobody else reads them, asks for their length or joins them with
/// another list, and they are neither arguments nor results of the function.
std::vector<carried_list> carried_lists(const graph_view& graph);

}  // namespace stash_tf
