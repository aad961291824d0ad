// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The kernels that the program registered. Call with the runtime's lock.

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "ptx/machine/machine.hpp"

namespace stash::ptx {
struct module;
}  // namespace stash::ptx

struct CUkern_st {
  stash::ptx::module* from;
  std::string name;  ///< in its PTX
  const stash::ptx::kernel* found = nullptr;
};

namespace stash::ptx {

/// Runs body(kernel) if the host's function stands for one that the machine can run.
cudaError_t with_kernel(const void* host_function, const std::function<cudaError_t(const kernel&)>& body);
cudaError_t with_kernel(cudaKernel_t handle, const std::function<cudaError_t(const kernel&)>& body);

}  // namespace stash::ptx
