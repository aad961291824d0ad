// SPDX-License-Identifier: Apache-2.0
// The one device that the CUDA runtime finds, and versions.

#include <cstring>

#include "ptx/machine/device_memory.hpp"
#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/environment.hpp"

namespace stash::ptx {
namespace {

cudaDeviceProp properties() {
  cudaDeviceProp p{};
  std::strcpy(p.name, "PTX machine (no GPU)");
  p.totalGlobalMem = device_memory_in_use().total_bytes;
  p.sharedMemPerBlock = p.sharedMemPerBlockOptin = most_shared_bytes;
  p.sharedMemPerMultiprocessor = std::size_t{228} << 10;
  p.reservedSharedMemPerBlock = std::size_t{1} << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 1 << 16;
  p.warpSize = 32;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 0xffff;
  p.major = compute_capability / 10;
  p.minor = compute_capability % 10;
  p.multiProcessorCount = multiprocessors();
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.concurrentKernels = p.canMapHostMemory = p.unifiedAddressing = p.memoryPoolsSupported = 1;
  // Small: what is measured empties it first, which takes time here.
  p.l2CacheSize = 1 << 20;
  p.hostNumaId = -1;
  return p;
}

cudaError_t attribute(int& value, cudaDeviceAttr requested) {
  const cudaDeviceProp p = properties();
  switch (requested) {
    case cudaDevAttrMaxThreadsPerBlock:
      value = p.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxGridDimX:
      value = p.maxGridSize[0];
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      value = static_cast<int>(p.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      value = p.warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      value = p.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrUnifiedAddressing:
      value = p.unifiedAddressing;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      value = p.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      value = p.minor;
      return cudaSuccess;
    case cudaDevAttrHostNumaId:
      value = p.hostNumaId;
      return cudaSuccess;
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  return call([&] {
    *device = 0;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call([&] { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  return call([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    *found = properties();
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr requested, int device) {
  return call([&] { return device == 0 ? attribute(*value, requested) : cudaErrorInvalidDevice; });
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"

}  // namespace stash::ptx
