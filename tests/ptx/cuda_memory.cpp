// Memory and copies of the CUDA runtime.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

#include "ptx/captures.hpp"
#include "ptx/cuda_runtime.hpp"
#include "ptx/device_addresses.hpp"
#include "ptx/device_memory.hpp"

namespace stash::ptx {
namespace {

/// The one pool: what cudaMallocAsync gave out. It keeps nothing that was given back.
struct memory_pool {
  std::map<void*, std::size_t> blocks;
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

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

enum class place { device, pinned, host };

place place_of(const void* pointer) {
  if (is_device_address(address_of(pointer))) return place::device;
  return region_of(address_of(pointer)).host == nullptr ? place::host : place::pinned;
}

/// Where the host finds bytes that a call names. Null if they are not all there.
std::byte* on_host(const void* pointer, std::size_t bytes) {
  const std::uint64_t address = address_of(pointer);
  if (place_of(pointer) == place::host) return static_cast<std::byte*>(const_cast<void*>(pointer));
  const region r = region_of(address);
  return r.holds(address, bytes) ? r.host + (address - r.address) : nullptr;
}

bool is_direction(cudaMemcpyKind kind, const void* to, const void* from) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Pinned memory is either's.
  return place_of(to) != (to_device ? place::host : place::device) &&
         place_of(from) != (from_device ? place::host : place::device);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes) {
  std::byte* const target = on_host(to, bytes);
  const std::byte* const source = on_host(from, bytes);
  if (target == nullptr || source == nullptr) return cudaErrorInvalidValue;
  std::memmove(target, source, bytes);
  return cudaSuccess;
}

cudaError_t enqueue_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (kind > cudaMemcpyDefault || !is_direction(kind, to, from)) return cudaErrorInvalidValue;
  if (on_host(to, bytes) == nullptr || on_host(from, bytes) == nullptr) return cudaErrorInvalidValue;
  return enqueue(stream, [=] { return copy(to, from, bytes); });
}

cudaError_t give_back(void* data, place where) {
  if (data == nullptr) return cudaSuccess;
  if (place_of(data) != where || !release(data)) return cudaErrorInvalidValue;
  pool().remove(data);
  return cudaSuccess;
}

cudaError_t take(void** data, std::size_t bytes, void* (*allocate)(std::size_t)) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = bytes == 0 ? nullptr : allocate(bytes);
  return bytes == 0 || *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
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
  return releasing_call([&] { return give_back(data, place::device); });
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  return unsafe_call([&] {
    cudaError_t result = unless_recorded(stream);
    if (result == cudaSuccess) result = take(data, bytes, allocate_device);
    if (result == cudaSuccess && *data != nullptr) pool().add(*data, bytes);
    return result;
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return releasing_call([&] {
    const cudaError_t result = unless_recorded(stream);
    return result == cudaSuccess ? give_back(data, place::device) : result;
  });
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  return unsafe_call([&] { return take(data, bytes, allocate_pinned); });
}
cudaError_t cudaFreeHost(void* data) {
  return releasing_call([&] { return give_back(data, place::pinned); });
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  return call([&] {
    const memory_in_use in_use = device_memory_in_use();
    *available = in_use.free_bytes;
    *total = in_use.total_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return unsafe_call([&] { return enqueue_copy(to, from, bytes, kind, nullptr); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return enqueue_copy(to, from, bytes, kind, stream); });
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&] {
    if (bytes == 0) return cudaSuccess;
    if (place_of(data) == place::host || on_host(data, bytes) == nullptr) return cudaErrorInvalidValue;
    return enqueue(stream, [=] {
      std::byte* const target = on_host(data, bytes);
      if (target == nullptr) return cudaErrorInvalidValue;
      std::memset(target, value, bytes);
      return cudaSuccess;
    });
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
    std::uint64_t wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    // The most that was used can be forgotten; all else is as it is.
    if (handle != handle_of_pool() || known == nullptr || known == &p.used || wanted != 0)
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
