// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A device of which only time and memory exist, for tests of what calls enqueue: streams have clocks, copies
/// take as long as a link makes them, and the host is ahead of all of them until it waits. Memory comes from
/// a pool, which grows unless it can use again what was given back; pool_rule says when it can.

#include <cstddef>

namespace stash::modelled_device {

/// Which memory that was given back a pool uses again.
enum class pool_rule {
  /// What was given back in the same stream: all that CUDA promises, and what has been seen of a pool while
  /// the stream in which memory was given back had other work, whatever had been reached.
  same_stream,
  /// Also what the work is ordered after, and what the host has seen reached: the policies of
  /// cudaMallocAsync.
  ordered,
};

/// Forgets all streams and memory. What was made before must not be used again.
void reset(pool_rule rule = pool_rule::ordered);

constexpr double link_bytes_per_ms = 50e6;

/// A stream of the caller's.
void* make_stream();
/// Work of so long in a stream.
void work(void* stream, double ms);
/// The host comes back when everything has ended, as it may when it has made pinned memory.
void host_waits();
/// The host waits for all streams: for any pool, what was given back is as good as never used.
void synchronise();
/// When the work that a stream has now ends.
double end_of(void* stream);
/// The most that the pool has taken from the device.
std::size_t pool_bytes();

}  // namespace stash::modelled_device
