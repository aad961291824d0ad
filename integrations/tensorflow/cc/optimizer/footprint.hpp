#pragma once
/// \file
/// How much memory TensorFlow's executor will take for a step: a simulation of one worker thread that takes
/// nodes as the executor does, allocates outputs, forwards buffers that nobody else reads, and frees what all
/// have read. Copies to the host and back end as late as they can: when nothing else is left to run.

#include <cstdint>
#include <string>
#include <vector>

#include "optimizer/choices.hpp"
#include "optimizer/graph_view.hpp"
#include "optimizer/shapes.hpp"
#include "optimizer/step.hpp"

namespace stash_tf {

struct footprint {
  std::int64_t peak_bytes = 0;
  std::int64_t host_bytes = 0;  ///< the most that lies on the host at a time, not in peak_bytes
  /// Tensors whose encoded values are there at the peak though all of their decoders have run: their last
  /// readers want bits alone.
  std::vector<std::string> kept_for_bits;
};

/// What the caller holds (weights, arguments) does not count. `graph` is the original,
/// whose sizes these are, or what rewrite() made of it.
footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& of, const choices& chosen);

/// Scratch memory of convolutions' gradients in TensorFlow's own kernels for CPUs; 0 where oneDNN's take
/// their place.
std::int64_t scratch_bytes(const graph_view& graph, int node, const tensor_sizes& sizes);

}  // namespace stash_tf
