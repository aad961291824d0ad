// SPDX-License-Identifier: Apache-2.0
// Memory of the CUDA runtime.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "ptx/machine/device_memory.hpp"
#include "ptx/machine/memory_kinds.hpp"
#include "ptx/runtime/captures.hpp"
#include "ptx/runtime/cuda_runtime.hpp"

namespace stash::ptx {
namespace {

/// The one pool: what cudaMallocAsync gave out. It keeps nothing that was freed.
struct memory_pool {
  std::map<void*, std::size_t> blocks;
  std::set<void*> leaving;  ///< freed in streams that have not come to it
  std::uint64_t used = 0, most_used = 0, most_reserved = 0;

  void add(void* block, std::size_t bytes) {
    blocks.emplace(block, bytes);
    used += bytes;
    most_used = std::max(most_used, used);
    most_reserved = std::max(most_reserved, used);
  }
  void remove(void* block) {
    const auto at = blocks.find(block);
    if (at == blocks.end()) return;
    used -= at->second;
    blocks.erase(at);
  }
};

memory_pool& pool() {
  static auto& made = *new memory_pool;
  return made;
}

bool is_live(void* data, memory_kind where) {
  return kind_of(data) == where && region_of(address_of(data)).address == address_of(data) &&
         !pool().leaving.contains(data);
}

/// Waits for the device, which uses the memory no more then.
cudaError_t give_back(void* data, memory_kind where) {
  if (data == nullptr) return cudaSuccess;
  if (!is_live(data, where)) return cudaErrorInvalidValue;
  // CUDA takes for granted that all work with memory from its pool is done, and does not wait for it.
  const cudaError_t result = pool().blocks.contains(data) ? cudaSuccess : finish_everything();
  pool().remove(data);
  release(data);
  return result;
}

cudaError_t give_back_in(void* data, cudaStream_t stream) {
  if (data == nullptr) return cudaSuccess;
  if (!is_live(data, memory_kind::device)) return cudaErrorInvalidValue;
  pool().leaving.insert(data);
  const cudaError_t result = enqueue(stream, [data] {
    release(data);
    pool().leaving.erase(data);
    return cudaSuccess;
  });
  if (result != cudaSuccess) {
    pool().leaving.erase(data);
  } else {
    // After that the stream may take it again, so for the pool it is free.
    pool().remove(data);
  }
  return result;
}

cudaError_t take(void** data, std::size_t bytes, void* (*allocate)(std::size_t)) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = bytes == 0 ? nullptr : allocate(bytes);
  if (bytes == 0 || *data != nullptr) return cudaSuccess;
  // Streams may have to give back what is missing.
  const cudaError_t result = finish_everything();
  if (result == cudaSuccess) *data = allocate(bytes);
  return result != cudaSuccess || *data != nullptr ? result : cudaErrorMemoryAllocation;
}

/// The address is known at once; the memory is there when the stream has come to this. Who writes to it
/// earlier loses what he wrote.
cudaError_t take_in(void** data, std::size_t bytes, cudaStream_t stream) {
  cudaError_t result = take(data, bytes, allocate_device);
  if (result != cudaSuccess || *data == nullptr) return result;
  void* const taken = *data;
  result = enqueue(stream, [taken] {
    fill_with_pattern(taken);
    return cudaSuccess;
  });
  if (result == cudaSuccess) {
    pool().add(taken, bytes);
  } else {
    release(taken);
    *data = nullptr;
  }
  return result;
}

/// Of a stream that is recorded, CUDA would make memory of the graph.
cudaError_t unless_recorded(cudaStream_t handle) {
  const cudaStream_t stream = stream_of(handle);
  return stream == nullptr ? cudaErrorInvalidResourceHandle : refused_if_captured(stream);
}

std::uint64_t* attribute_of(memory_pool& p, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
      return &p.used;
    case cudaMemPoolAttrReservedMemHigh:
      return &p.most_reserved;
    case cudaMemPoolAttrUsedMemHigh:
      return &p.most_used;
    default:
      return nullptr;
  }
}

cudaMemPool_t handle_of_pool() {
  return reinterpret_cast<cudaMemPool_t>(&pool());
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return unsafe_call([&] { return take(data, bytes, allocate_device); });
}
cudaError_t cudaFree(void* data) {
  return releasing_call([&] { return give_back(data, memory_kind::device); });
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  return unsafe_call([&] {
    const cudaError_t result = unless_recorded(stream);
    return result == cudaSuccess ? take_in(data, bytes, stream) : result;
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return releasing_call([&] {
    const cudaError_t result = unless_recorded(stream);
    return result == cudaSuccess ? give_back_in(data, stream) : result;
  });
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  return unsafe_call([&] { return take(data, bytes, allocate_pinned); });
}
cudaError_t cudaFreeHost(void* data) {
  return releasing_call([&] { return give_back(data, memory_kind::pinned); });
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  return call([&] {
    const memory_in_use in_use = device_memory_in_use();
    *available = in_use.free_bytes;
    *total = in_use.total_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* found, int device) {
  return call([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    *found = handle_of_pool();
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    const std::uint64_t* const known = attribute_of(pool(), attribute);
    if (handle != handle_of_pool() || known == nullptr) return cudaErrorInvalidValue;
    std::memcpy(value, known, sizeof *known);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    memory_pool& p = pool();
    std::uint64_t* const known = attribute_of(p, attribute);
    std::uint64_t requested = 0;
    std::memcpy(&requested, value, sizeof requested);
    // The most that was used can be forgotten; all else is as it is.
    if (handle != handle_of_pool() || known == nullptr || known == &p.used || requested != 0)
      return cudaErrorInvalidValue;
    *known = p.used;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t /*bytes*/) {
  return unsafe_call([&] { return handle == handle_of_pool() ? cudaSuccess : cudaErrorInvalidValue; });
}

}  // extern "C"

}  // namespace stash::ptx
