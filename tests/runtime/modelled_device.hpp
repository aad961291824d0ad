#pragma once
/// \file
/// A device of which only time and memory exist, for tests of what calls enqueue: streams have clocks, copies
/// take as long as a link makes them, and the host is ahead of all of them until it waits. Memory comes from
/// a pool with the rules of cudaMallocAsync: what was given back is used again by work that is ordered behind
/// that, or once it has been reached; else the pool grows.

#include <cstddef>

namespace stash::modelled_device {

/// Forgets all streams and memory. What was made before must not be used again.
void reset();

constexpr double link_bytes_per_ms = 50e6;

/// A stream of the caller's.
void* make_stream();
/// Work of so long in a stream.
void work(void* stream, double ms);
/// When the work that a stream has now ends.
double end_of(void* stream);
/// The most that the pool has taken from the device.
std::size_t pool_bytes();

}  // namespace stash::modelled_device
