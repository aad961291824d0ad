// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How much memory TensorFlow's executor will take for a step: a simulation of one worker thread that takes
/// nodes as the executor does, allocates outputs, forwards buffers that nobody else reads, and frees what all
/// have read. Loops run as often as the graph says, with as many iterations at a time as TensorFlow allows,
/// and what they put into lists stays there. Copies to the host and back end as late as they can: when
/// nothing else is left to run.

#include <cstdint>
#include <string>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/simulate/ready_order.hpp"
#include "optimizer/simulate/simulated_memory.hpp"

namespace stash_tf {

struct footprint {
  std::int64_t peak_bytes = 0;
  std::int64_t host_bytes = 0;  ///< the most that lies on the host at a time, not in peak_bytes
  /// Whether there are loops with lists whose size the graph does not say; of these only a part counts.
  bool unknown_lists = false;
  /// Tensors whose encoded values are there at the peak though all of their decoders have run: their last
  /// readers want bits alone.
  std::vector<std::string> kept_for_bits;
};

/// What the caller holds (weights, arguments) does not count. `graph` is the original,
/// whose sizes these are, or what rewrite() made of it. `ran`, if not null, gets the nodes in their order,
/// those of loops once, as they run in first iterations.
footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& analysis, const choices& chosen, run_order order = {},
                              std::vector<simulated_op>* ran = nullptr);

}  // namespace stash_tf
