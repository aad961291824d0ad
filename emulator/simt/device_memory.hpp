// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Device memory, streams and events of the emulator. Kernels run when they are launched; what a copy brings
/// arrives only when somebody waits for it, so that a missing wait shows. In streams of create_stream(),
/// which run no kernels, nothing at all happens before that: copies read late, too, and memory is freed late,
/// so that a source that is reused too early shows as well.

#include <cstddef>

namespace simt {

/// Allocations from now on: how many succeed until one gives null, or so many in a row. Negative: all do.
void set_allocations_left(long count, int failures = 1);

/// Since the start of the program, for tests that count what a call does.
struct device_calls {
  std::size_t allocations, copies, waits, launches;
};
device_calls calls_so_far();
/// Calls from now on that enqueue a copy: how many succeed until one is refused. Negative: all do.
void set_copies_left(long count);
/// Blocks that were allocated and not freed.
std::size_t blocks_in_use();
/// Streams and events that were made and not destroyed.
std::size_t streams_and_events();

}  // namespace simt
