// SPDX-License-Identifier: Apache-2.0
// Copies of the CUDA runtime, and bytes that are set.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "ptx/machine/memory_kinds.hpp"
#include "ptx/runtime/captures.hpp"
#include "ptx/runtime/cuda_runtime.hpp"

namespace stash::ptx {
namespace {

/// Bytes that a call names.
struct span_of_memory {
  span_of_memory(const void* begin, std::size_t count)
      : pointer(begin), bytes(count), where(kind_of(begin)) {}

  /// Where the host finds them. Null if they are not all there.
  std::byte* on_host() const {
    const std::uint64_t address = address_of(pointer);
    if (where == memory_kind::host) return static_cast<std::byte*>(const_cast<void*>(pointer));
    const region r = region_of(address);
    return r.holds(address, bytes) ? r.host + (address - r.address) : nullptr;
  }

  const void* pointer;
  std::size_t bytes;
  memory_kind where;  ///< when it was named
};

bool is_direction(cudaMemcpyKind kind, memory_kind to, memory_kind from) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Pinned memory is either's.
  return to != (to_device ? memory_kind::host : memory_kind::device) &&
         from != (from_device ? memory_kind::host : memory_kind::device);
}

/// Memory that was there in the call is not, now that the device comes to it.
cudaError_t lose_device_for(const char* what, const span_of_memory& missing) {
  char address[2 + 16 + 1];
  std::snprintf(address, sizeof address, "0x%llx",
                static_cast<unsigned long long>(address_of(missing.pointer)));
  return lose_device(std::string(what) + " " + std::to_string(missing.bytes) + " bytes at " + address +
                     ", where no live memory is");
}

cudaError_t copy(const span_of_memory& to, const span_of_memory& from) {
  std::byte* const target = to.on_host();
  const std::byte* const source = from.on_host();
  if (target == nullptr) return lose_device_for("a copy writes", to);
  if (source == nullptr) return lose_device_for("a copy reads", from);
  std::memmove(target, source, to.bytes);
  return cudaSuccess;
}

/// Of memory that only the host has, the bytes as they are now.
cudaError_t enqueue_content(const span_of_memory& to, const span_of_memory& from, cudaStream_t stream) {
  const std::byte* const begin = from.on_host();
  return enqueue(stream, [to, content = std::vector<std::byte>(begin, begin + from.bytes)] {
    return copy(to, {content.data(), content.size()});
  });
}

cudaError_t finish_stream(cudaStream_t stream) {
  return finish({end_of(stream->to_do)});
}

/// What has happened when the call returns, of copies with and without "Async", is in CUDA's "API
/// synchronization behavior". Where a copy "might be synchronous" it is, else as little has happened as may.
cudaError_t enqueue_copy(const span_of_memory& to, const span_of_memory& from, cudaMemcpyKind kind,
                         cudaStream_t handle, bool is_async) {
  if (to.bytes == 0) return cudaSuccess;
  if (kind > cudaMemcpyDefault || !is_direction(kind, to.where, from.where)) return cudaErrorInvalidValue;
  if (to.on_host() == nullptr || from.on_host() == nullptr) return cudaErrorInvalidValue;
  const cudaStream_t stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const bool to_device = to.where == memory_kind::device, from_device = from.where == memory_kind::device;
  const bool content_is_read = to_device && from.where == memory_kind::host;
  // Copies from device memory to device memory return early even without "Async".
  const bool is_finished =
      to.where == memory_kind::host || (is_async ? !to_device && !from_device : !to_device || !from_device);
  if (stream->captured != nullptr) return enqueue(stream, [=] { return copy(to, from); });
  cudaError_t result = cudaSuccess;
  if (content_is_read) {
    // Without "Async" after all that the stream has; but the bytes may arrive later than the call returns.
    if (!is_async) result = enqueue(stream, nullptr);
    if (!is_async && result == cudaSuccess) result = finish_stream(stream);
    return result == cudaSuccess ? enqueue_content(to, from, stream) : result;
  }
  result = enqueue(stream, [=] { return copy(to, from); });
  return result == cudaSuccess && is_finished ? finish_stream(stream) : result;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return unsafe_call([&] { return enqueue_copy({to, bytes}, {from, bytes}, kind, nullptr, false); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return enqueue_copy({to, bytes}, {from, bytes}, kind, stream, true); });
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&] {
    if (bytes == 0) return cudaSuccess;
    const span_of_memory to(data, bytes);
    if (to.where == memory_kind::host || to.on_host() == nullptr) return cudaErrorInvalidValue;
    return enqueue(stream, [=] {
      std::byte* const target = to.on_host();
      if (target == nullptr) return lose_device_for("cudaMemsetAsync writes", to);
      std::memset(target, value, bytes);
      return cudaSuccess;
    });
  });
}

}  // extern "C"

}  // namespace stash::ptx
