// SPDX-License-Identifier: Apache-2.0
// How nvcc's code makes its kernels known to the CUDA runtime, before main().

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "ptx/machine/kernels.hpp"
#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/fat_binary.hpp"
#include "ptx/runtime/queues.hpp"

namespace stash::ptx {

/// A fat binary. It is read when the first of its kernels is needed.
struct module {
  const void* registered;
  std::optional<program> code;
};

namespace {

/// By the functions of the host that stand for them.
std::map<const void*, std::unique_ptr<CUkern_st>>& kernels() {
  static auto& all = *new std::map<const void*, std::unique_ptr<CUkern_st>>;
  return all;
}

cudaError_t refused(const CUkern_st& k, const std::exception& problem, cudaError_t result) {
  std::fprintf(stderr, "PTX machine: %s: %s\n", k.name.c_str(), problem.what());
  return result;
}

cudaError_t find(CUkern_st& k) {
  try {
    if (!k.from->code) {
      std::string text = ptx_of(fat_binary_of(k.from->registered), compute_capability);
      if (text.empty()) return cudaErrorNoKernelImageForDevice;
      k.from->code.emplace(std::move(text));
    }
    k.found = k.from->code->find(k.name);
    return k.found == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
  } catch (const violation& problem) {
    return refused(k, problem, cudaErrorInvalidPtx);
  } catch (const std::runtime_error& problem) {
    return refused(k, problem, cudaErrorInvalidKernelImage);
  }
}

}  // namespace

cudaError_t with_kernel(cudaKernel_t handle, const std::function<cudaError_t(const kernel&)>& body) {
  if (handle == nullptr) return cudaErrorInvalidResourceHandle;
  if (handle->found == nullptr) {
    const cudaError_t result = find(*handle);
    if (result != cudaSuccess) return result;
  }
  return body(*handle->found);
}

cudaError_t with_kernel(const void* host_function, const std::function<cudaError_t(const kernel&)>& body) {
  const auto at = kernels().find(host_function);
  return at == kernels().end() ? cudaErrorInvalidDeviceFunction : with_kernel(at->second.get(), body);
}

extern "C" {

void** __cudaRegisterFatBinary(void* registered) {
  return reinterpret_cast<void**>(new module{registered, {}});
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** handle) {
  const std::lock_guard lock(runtime_lock());
  auto* const gone = reinterpret_cast<module*>(handle);
  // Its kernels may still have to run.
  finish_everything();
  std::erase_if(kernels(), [&](const auto& known) { return known.second->from == gone; });
  delete gone;
}
void __cudaRegisterFunction(void** handle, const char* host_function, char* /*device_function*/,
                            const char* name, int /*thread_limit*/, uint3* /*thread*/, uint3* /*block*/,
                            dim3* /*block_size*/, dim3* /*grid_size*/, int* /*warp_size*/) {
  const std::lock_guard lock(runtime_lock());
  kernels()[host_function] = std::make_unique<CUkern_st>(CUkern_st{reinterpret_cast<module*>(handle), name});
}
/// Variables are the machine's own business: nobody here copies to or from one by its name.
void __cudaRegisterVar(void** /*handle*/, char* /*host_variable*/, char* /*device_address*/,
                       const char* /*name*/, int /*is_external*/, std::size_t /*bytes*/, int /*is_constant*/,
                       int /*is_global*/) {}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* host_function) {
  return call([&] {
    const auto at = kernels().find(host_function);
    if (at == kernels().end()) return cudaErrorInvalidDeviceFunction;
    *handle = at->second.get();
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host_function) {
  // Where code is loaded late, this loads it.
  return unsafe_call([&] {
    return with_kernel(host_function, [&](const kernel& k) {
      const kernel_facts& facts = facts_of(k);
      *attributes = {};
      attributes->sharedSizeBytes = facts.shared_bytes;
      attributes->maxThreadsPerBlock = static_cast<int>(facts.most_threads);
      attributes->ptxVersion = facts.architecture;
      attributes->binaryVersion = compute_capability;
      attributes->maxDynamicSharedSizeBytes = static_cast<int>(most_shared_bytes - facts.shared_bytes);
      return cudaSuccess;
    });
  });
}

}  // extern "C"

}  // namespace stash::ptx
