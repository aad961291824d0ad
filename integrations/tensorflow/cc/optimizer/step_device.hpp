// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The device that a step runs on, and what of the user's wishes has a meaning there.

#include <cstdint>
#include <string>

#include "optimizer/driver/settings.hpp"
#include "tensorflow/core/grappler/clusters/cluster.h"

namespace stash_tf {

struct step_device {
  std::int64_t bytes = 0;  ///< what TensorFlow may take of it; 0: not known
  std::string model;       ///< as its driver names it; empty: not known
};

/// `name`: as nodes have it. Null clusters know nothing.
step_device device_of(const tensorflow::grappler::Cluster* cluster, const std::string& name,
                      const settings& request);

/// Threads within an op on the CPU; 1 where that is not known.
int threads_of(const tensorflow::grappler::Cluster* cluster);

/// Moves to the host only where the tensors lie in another memory, planned for the machine that is nearest to
/// the device if the user names none.
settings wishes_on(const step_device& device, bool in_another_memory, settings request);

}  // namespace stash_tf
