// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// For the files that call the CUDA runtime themselves.

#include <cuda_runtime.h>

#include "bench/gpu/device.hpp"

namespace stash::gpu {

/// Throws failure unless the call went well.
inline void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next launch would report it again
  throw failure(std::string(call) + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result));
}

inline cudaStream_t cuda_stream(void* handle) {
  return static_cast<cudaStream_t>(handle);
}

}  // namespace stash::gpu
