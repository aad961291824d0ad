// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a step to the graph that runs it within the budget.

#include <cstdint>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/rewrite/ordering.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "optimizer/simulate/footprint.hpp"

namespace stash_tf {

struct step_context {
  const tensorflow::GraphDef& original;
  const graph_view& graph;
  const step& analysis;
  const tensor_sizes& sizes;
  const control_flow& flow;
  const ordering& ordered;
  const settings& request;
  std::int64_t device_bytes;  ///< what TensorFlow may take of the device; 0: not known
};

struct outcome {
  choices chosen;
  rewritten graph;
  footprint simulated;
  /// Policy auto: how many of the narrower formats that are allowed were enough; other policies: 0.
  int formats = 0;
};

/// The graph with the least codec work whose simulated peak keeps the budget; if request.swap, and no
/// encodings keep it, the fastest with moves to the host that does. With no budget, or one that nothing
/// keeps, the one of the smallest peak; with no budget, moves are for peaks above device_bytes. The
/// planner knows an op's order and its buffers, not how
/// TensorFlow forwards and when it runs what: so the simulation judges, and the planner is asked again for
/// less.
outcome best_graph(const step_context& context);

}  // namespace stash_tf
