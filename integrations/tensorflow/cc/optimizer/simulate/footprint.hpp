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

/// Which node of the backward pass goes first where several could.
enum class backward_order {
  as_executor,  ///< as TensorFlow does it
  frees_first,  ///< what lets memory fall, the most first; else as it is
  /// What lets memory grow the least; of equal ones, what is read first. So terms of a sum come in the order
  /// of their additions: those of later ones would lie there until the earlier ones are done.
  least_growth,
  least_growth_read_last,  ///< the same, but what is read last: what it is read with may take more memory
  below_bound,  ///< what keeps memory below a bound while it runs, or else takes the least; else as it is
};

/// Which node of the forward pass does.
enum class forward_order {
  as_executor,   ///< as TensorFlow does it: of branches, one layer of each after the other
  least_growth,  ///< what lets memory grow the least: one branch after the other, where their maps are
                 ///< encoded
  least_growth_with_backward,  ///< the same, but what is ready of the backward pass need not wait
  /// As least_growth, but what the backward pass reads waits for what it does not: of a network that is
  /// trained and one that tells it what to say, the second one goes first, since little stays in memory after
  /// it.
  least_growth_kept_last,
  most_growth,  ///< the worst that threads, or the order in which TensorFlow finds who is ready, could make
                ///< of it
};

struct run_order {
  backward_order backward = backward_order::as_executor;
  forward_order forward = forward_order::as_executor;
  std::int64_t bound = 0;  ///< bytes, for backward_order::below_bound
};

/// A node in the order of the simulation.
struct simulated_op {
  int node = -1;
  /// Bytes of new memory, with workspace; also where only this order lets it write over an input.
  std::int64_t takes = 0;
  std::int64_t holds = 0;  ///< the largest of its inputs and outputs
  std::int64_t live = 0;   ///< all that is there while it runs, with workspace
};

/// What the caller holds (weights, arguments) does not count. `graph` is the original,
/// whose sizes these are, or what rewrite() made of it. `ran`, if not null, gets the nodes in their order,
/// those of loops once, as they run in first iterations.
footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& analysis, const choices& chosen, run_order order = {},
                              std::vector<simulated_op>* ran = nullptr);

}  // namespace stash_tf
