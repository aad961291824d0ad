// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Steps that fail: how a step whose budget is too small says so, because an optimizer cannot.

#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// The graph as it is, but for an op that fails with this message before any variable is written.
tensorflow::GraphDef refuse(const tensorflow::GraphDef& original, const graph_view& graph,
                            const step& analysis, const control_flow& flow, const std::string& message);

}  // namespace stash_tf
