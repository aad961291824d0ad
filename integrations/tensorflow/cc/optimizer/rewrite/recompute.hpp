// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maps that cheap ops make of other maps need not be kept: the backward pass computes them again. A norm and
/// an activation after a convolution leave three maps of which one has to stay.

#include <cstdint>
#include <set>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/headroom.hpp"
#include "optimizer/plan/kept_bits.hpp"
#include "optimizer/rewrite/recipes.hpp"

namespace stash_tf {

/// What recompute() changed.
struct copied_ops {
  int maps = 0;            ///< whose values the backward pass no longer reads
  int ops = 0;             ///< that were copied for them
  std::int64_t bytes = 0;  ///< of these maps
  std::set<source> kept;   ///< other maps, which could go as well but do not raise the peak
};

/// A copy of the graph in which backward ops read copies of forward ops instead of their results. Copied are
/// deterministic ops without state of the kinds `which`, at most so many for a map as recipes.hpp says, whose
/// large inputs are other maps that the backward pass reads for their values; small tensors, as a norm's
/// factors, stay as they are. A copy waits for the gradient that the first reader of its map meets.
///
/// Where the policy rounds nothing, the same ops read the same values, so every bit of the step is the same.
/// Where it may round, what a map is made of is rounded as far as its readers allow (need_propagation.hpp), a
/// map goes only where that keeps fewer bits, and who needs one bit for each value takes that of the map
/// itself.
///
/// `spare`: what a step in which each map has copies of its own leaves free. Maps that fit in there stay, and
/// so do copies between the readers of several maps. Null: there is none, for the smallest peak.
///
/// Left as they are: maps that lie in loops or are results of the function, and those of which one bit a
/// value or a window's index is enough.
///
/// Nodes of the graph keep their names and numbers; copies follow after them, and their sizes are added to
/// `sizes`. `result` is written if there are any.
copied_ops recompute(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                     const control_flow& flow, const settings& request, copyable which, headroom* spare,
                     tensor_sizes* sizes, tensorflow::GraphDef* result);

}  // namespace stash_tf
