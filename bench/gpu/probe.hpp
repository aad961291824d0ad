// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A kernel that does nothing: what it needs to run, all kernels of the program need.

#include <cuda_runtime.h>

namespace stash::gpu {

/// cudaSuccess if the program has a form of the kernel that the device can run.
cudaError_t find_probe();

}  // namespace stash::gpu
