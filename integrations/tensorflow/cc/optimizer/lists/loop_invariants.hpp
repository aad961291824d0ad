// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a loop puts into a list in each iteration though it is the same in all of them: parts of a weight, as
/// Keras' cells cut them out again for each time step.

#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"

namespace stash_tf {

struct loop_invariant {
  int list = -1;           ///< of step::lists
  int forward = 0;         ///< the loop that fills it
  std::vector<int> nodes;  ///< of the loop's body, to copy to where it begins; each after those that it reads
};

/// Elements made of constants, of what the loop is given and leaves as it is, and of variables that it does
/// not write, by deterministic ops without state. Both loops begin outside of all others.
std::vector<loop_invariant> loop_invariants(const graph_view& graph, const loops& all, const step& analysis);

}  // namespace stash_tf
