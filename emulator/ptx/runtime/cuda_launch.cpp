// SPDX-License-Identifier: Apache-2.0
// Launches of the CUDA runtime.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "ptx/machine/kernels.hpp"
#include "ptx/runtime/captures.hpp"
#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/environment.hpp"

namespace stash::ptx {
namespace {

/// What <<<>>> says, until the kernel's stub asks for it.
struct configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<configuration> pushed;

cudaError_t check(const configuration& c, const kernel_facts& facts) {
  if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0 || c.block.x == 0 || c.block.y == 0 || c.block.z == 0)
    return cudaErrorInvalidConfiguration;
  if (c.grid.x > INT32_MAX || c.grid.y > UINT16_MAX || c.grid.z > UINT16_MAX)
    return cudaErrorInvalidConfiguration;
  if (c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64) return cudaErrorInvalidConfiguration;
  const std::uint64_t threads = std::uint64_t{c.block.x} * c.block.y * c.block.z;
  if (threads > 1024) return cudaErrorInvalidConfiguration;
  if (threads > facts.most_threads) return cudaErrorLaunchOutOfResources;
  if (c.shared_bytes > most_shared_bytes || facts.shared_bytes + c.shared_bytes > most_shared_bytes)
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

extent extent_of(const dim3& d) {
  return {d.x, d.y, d.z};
}

cudaError_t launch(const configuration& c, const kernel& k, void** arguments) {
  const kernel_facts& facts = facts_of(k);
  const cudaError_t result = check(c, facts);
  if (result != cudaSuccess) return result;
  std::vector<std::byte> parameters(facts.parameter_bytes);
  for (std::size_t p = 0; p < facts.parameters.size(); ++p) {
    const auto [offset, bytes] = facts.parameters[p];
    std::memcpy(parameters.data() + offset, arguments[p], bytes);
  }
  return enqueue(c.stream, [c, &k, parameters = std::move(parameters)] {
    prepare_machine();
    try {
      run(k, extent_of(c.grid), extent_of(c.block), c.shared_bytes, parameters.data());
    } catch (const violation& problem) {
      return lose_device(problem.what());
    }
    return cudaSuccess;
  });
}

/// Programmatic serialization only allows more than what happens here: one kernel after the other.
bool is_known(const cudaLaunchAttribute& a) {
  return a.id == cudaLaunchAttributeIgnore || a.id == cudaLaunchAttributeProgrammaticStreamSerialization;
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st* stream) {
  pushed.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  if (pushed.empty()) return remembered(cudaErrorMissingConfiguration);
  const configuration& c = pushed.back();
  *grid = c.grid;
  *block = c.block;
  *shared_bytes = c.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  pushed.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel_handle, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return call([&] {
    return with_kernel(kernel_handle, [&](const kernel& k) {
      return launch({grid, block, shared_bytes, stream}, k, arguments);
    });
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host_function,
                                void** arguments) {
  return call([&] {
    for (unsigned a = 0; a < config->numAttrs; ++a)
      if (!is_known(config->attrs[a])) return cudaErrorNotSupported;
    return with_kernel(host_function, [&](const kernel& k) {
      return launch({config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream}, k,
                    arguments);
    });
  });
}

}  // extern "C"

}  // namespace stash::ptx
