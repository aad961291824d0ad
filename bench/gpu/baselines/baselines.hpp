// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The baselines by where they come from, as baselines.cpp puts them together.

#include <vector>

#include "bench/gpu/cases.hpp"

namespace stash::gpu {

/// Copying, and the obvious kernels with one element per thread.
std::vector<measured_case> kernel_baselines();
/// cub::DeviceSelect.
std::vector<measured_case> cub_baselines();
/// cuSPARSE: dense to CSR.
std::vector<measured_case> cusparse_baselines();
/// cuDNN: ReLU.
std::vector<measured_case> cudnn_relu_baselines();
/// cuDNN: max-pooling.
std::vector<measured_case> cudnn_pool_baselines();
/// cuDNN's graphs: max-pooling with an index.
std::vector<measured_case> cudnn_graph_baselines();
/// Host to device and back over pinned memory.
std::vector<measured_case> link_baselines();

/// What libraries leave when they are measured: nothing to reset, nothing to verify.
inline prepared_case unchecked(std::function<void(void*)> run, std::uint64_t moved_bytes,
                               std::uint64_t dense_bytes, std::uint64_t encoded_bytes = 0) {
  return {[](void*) {}, std::move(run), [] {}, moved_bytes, encoded_bytes, dense_bytes};
}

}  // namespace stash::gpu
