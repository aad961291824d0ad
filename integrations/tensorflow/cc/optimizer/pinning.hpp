// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Keeps the order that the predicted peak belongs to.

#include <cstdint>
#include <limits>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/simulate/footprint.hpp"

namespace stash_tf {

/// From how many bytes on ops keep their order.
struct smallest_pinned {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::int64_t backward = none;
  std::int64_t forward = none;
};

/// Adds control edges to `rewritten`, of which `ran` is the simulated order: an op that takes `smallest`
/// bytes of its pass or more of new memory waits until those before it in that order have ended that hold as
/// much. Otherwise several of them could become ready together, and which goes first would depend on threads
/// and on what TensorFlow makes of the graph later; all of their results could lie in memory at a time.
/// Nothing else changes its position: small ops, ops on different devices or in different loops or branches.
/// As in ordering.hpp, no path leads from a bias gradient to a weight gradient; where oneDNN will join the
/// two, an Identity in front of the weight gradient waits instead of it. An order that was pinned may be
/// pinned again. `original` is the graph that `analysis` and `flow` are about; its nodes come first in
/// `rewritten`.
void pin_order(const graph_view& original, const step& analysis, const control_flow& flow,
               const std::vector<simulated_op>& ran, const smallest_pinned& smallest,
               tensorflow::GraphDef* rewritten);

}  // namespace stash_tf
