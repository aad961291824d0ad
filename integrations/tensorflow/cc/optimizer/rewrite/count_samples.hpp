// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// An op that tells how many samples each execution of a step has.

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// Adds to `result`, which is what rewrite() gave or only a copy of the original, an op that counts the
/// samples of an execution. False, and nothing is added, if no tensor of the step tells them.
bool count_samples(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                   const control_flow& flow, tensorflow::GraphDef* result);

}  // namespace stash_tf
