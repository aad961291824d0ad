// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What owning objects need of a device besides kernels: memory, copies, streams and events. Implemented like
/// device.hpp: with CUDA, by the emulator of the tests, and by no_device.cpp. Streams are those of execution
/// contexts, or made here.
///
/// Calls throw error(device_failure) with what the driver says; those that are noexcept keep it to
/// themselves, since the next call will say it.

#include <cstddef>

namespace stash::detail::device {

/// Stream-ordered device memory, aligned to 256 bytes; null if there is none.
void* allocate(std::size_t bytes, void* stream);
void deallocate(void* data, void* stream) noexcept;

/// Host memory that is mapped into the device, aligned to 256 bytes at least; null if there is none. May wait
/// for the device.
void* allocate_pinned(std::size_t bytes);
void deallocate_pinned(void* data) noexcept;

/// Zeroes, or copies between host and device or on the device, after the work of the stream.
void clear(void* data, std::size_t bytes, void* stream);
void copy(void* to, const void* from, std::size_t bytes, void* stream);
/// Waits for all work of the stream.
void wait_for_stream(void* stream);

/// A stream whose work waits for no other stream's, the default stream included. Work that it still has when
/// it is destroyed is done all the same.
void* create_stream();
void destroy_stream(void* stream) noexcept;

/// A position in a stream.
using event = void*;
event record_event(void* stream);
bool reached(event e);
void wait_for_event(event e);
/// Work that is enqueued in the stream after this waits for the event; the host does not. The event may be
/// destroyed at once.
void wait_in_stream(void* stream, event e);
void destroy_event(event e) noexcept;

}  // namespace stash::detail::device
