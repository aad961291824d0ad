// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the forward pass makes out of nothing, as random numbers, and when it should.

#include <utility>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "tensorflow/core/framework/types.pb.h"

namespace stash_tf {

/// Large tensors that are made of small constants and seeds (noise, the masks of some kinds of dropout) could
/// be made at any time, and TensorFlow's executor begins a step with all of them.
struct late_source {
  int node = -1;  ///< the first node of such a tensor
  source met;     ///< the tensor of the step that it is joined with, and should wait for
  tensorflow::DataType type = tensorflow::DT_INVALID;  ///< of `met`
};

/// Those of a step. To wait like this makes no cycle with the graph and `masks`. Left out are tensors whose
/// op oneDNN will make one with the op that joins them.
std::vector<late_source> late_sources(const graph_view& graph, const step& analysis,
                                      const tensor_sizes& sizes, const control_flow& flow,
                                      const std::vector<std::pair<int, int>>& masks);

}  // namespace stash_tf
