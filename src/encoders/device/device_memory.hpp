// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What owning objects need of a device besides kernels: memory, copies, streams and events. Streams are
/// those of execution contexts, or made here. A back end registers an object of memory_calls (backend.hpp);
/// the functions below it call the registered one.
///
/// Calls throw error(device_failure) with what the driver says; those that are noexcept keep it to
/// themselves, since the next call will say it. Without a back end, what owning objects begin with
/// (allocate(), allocate_pinned(), create_stream()) throws error(unsupported), and nothing else is reached.

#include <cstddef>
#include <string_view>

#include "encoders/device/backend.hpp"

namespace stash::encoders::device {

/// A position in a stream.
using event = void*;

class memory_calls {
 public:
  /// Throws error(unsupported) or error(device_failure) if the device cannot be used.
  virtual void check_available(std::string_view function) const = 0;

  /// Stream-ordered device memory, aligned to 256 bytes; null if there is none.
  virtual void* allocate(std::size_t bytes, void* stream) const = 0;
  virtual void deallocate(void* data, void* stream) const noexcept = 0;

  /// Host memory that is mapped into the device, aligned to 256 bytes at least; null if there is none. May
  /// wait for the device.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void deallocate_pinned(void* data) const noexcept = 0;

  /// Zeroes, or copies between host and device or on the device, after the work of the stream.
  virtual void clear(void* data, std::size_t bytes, void* stream) const = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) const = 0;
  /// Waits for all work of the stream.
  virtual void wait_for_stream(void* stream) const = 0;

  /// A stream whose work waits for no other stream's, the default stream included. Work that it still has
  /// when it is destroyed is done all the same.
  virtual void* create_stream() const = 0;
  virtual void destroy_stream(void* stream) const noexcept = 0;

  virtual event record_event(void* stream) const = 0;
  virtual bool reached(event e) const = 0;
  virtual void wait_for_event(event e) const = 0;
  /// Work that is enqueued in the stream after this waits for the event; the host does not. The event may be
  /// destroyed at once.
  virtual void wait_in_stream(void* stream, event e) const = 0;
  virtual void destroy_event(event e) const noexcept = 0;

 protected:
  ~memory_calls() = default;
};

/// Throws error(unsupported) without a back end.
const memory_calls& memory_for(std::string_view function);
/// Of a back end that has been asked before.
inline const memory_calls& memory() noexcept {
  return *registered_backend()->memory;
}

inline void* allocate(std::size_t bytes, void* stream) {
  return memory_for("device_memory").allocate(bytes, stream);
}
inline void deallocate(void* data, void* stream) noexcept {
  if (registered_backend() != nullptr) memory().deallocate(data, stream);
}
inline void* allocate_pinned(std::size_t bytes) {
  return memory_for("pinned_memory").allocate_pinned(bytes);
}
inline void deallocate_pinned(void* data) noexcept {
  if (registered_backend() != nullptr) memory().deallocate_pinned(data);
}
inline void clear(void* data, std::size_t bytes, void* stream) {
  memory().clear(data, bytes, stream);
}
inline void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  memory().copy(to, from, bytes, stream);
}
inline void wait_for_stream(void* stream) {
  memory().wait_for_stream(stream);
}
inline void* create_stream() {
  return memory_for("stream").create_stream();
}
inline void destroy_stream(void* stream) noexcept {
  memory().destroy_stream(stream);
}
inline event record_event(void* stream) {
  return memory().record_event(stream);
}
inline bool reached(event e) {
  return memory().reached(e);
}
inline void wait_for_event(event e) {
  memory().wait_for_event(e);
}
inline void wait_in_stream(void* stream, event e) {
  memory().wait_in_stream(stream, e);
}
inline void destroy_event(event e) noexcept {
  memory().destroy_event(e);
}

}  // namespace stash::encoders::device
