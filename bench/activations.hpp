// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Feature maps of trained networks, as `stash train --dump-activations` writes them.

#include <optional>
#include <string>
#include <vector>

#include "bench/cases/tensors.hpp"

namespace stash::bench {

struct activation {
  std::string name;  ///< of the op that made it
  std::vector<std::int64_t> dims;
  tensor values;
  /// What the plan that it was trained with keeps of it; none if that is no encoding: it is computed again.
  std::optional<encoding> kept;
  /// If that is what pooling writes: the pooling, and the shape of what it puts out.
  pool_window pooling;
  std::vector<std::int64_t> pooled_dims;
};

struct network_activations {
  std::string network;
  std::vector<activation> maps;
};

/// Reads every folder with an activations.json in it: `folder` itself, or those directly below it, by name.
/// Throws error(io_failure / bad_format) naming the file, and if there is none.
std::vector<network_activations> read_activations(const std::string& folder);

}  // namespace stash::bench
