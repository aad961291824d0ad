#pragma once
/// \file
/// Device memory, streams and events of the emulator. Kernels run when they are launched; what a copy brings
/// to the host arrives only when somebody waits for it, so that a missing wait shows.

#include <cstddef>

namespace simt {

/// Allocations from now on: how many succeed until one gives null. Negative: all do.
void set_allocations_left(long count);

/// Since the start of the program, for tests that count what a call does.
struct device_calls {
  std::size_t allocations, copies, waits, launches;
};
device_calls calls_so_far();
/// Blocks that were allocated and not given back.
std::size_t blocks_in_use();

}  // namespace simt
