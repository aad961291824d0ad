// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/probe.hpp"

namespace stash::gpu {
namespace {

__global__ void probe() {}

}  // namespace

cudaError_t find_probe() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe);
}

}  // namespace stash::gpu
