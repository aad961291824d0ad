// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Work that is recorded once and launched on several inputs, so that a call that waits, allocates or looks
/// at the data cannot be part of it. Knows nothing of what the work is.

#include "gpu/device_buffer.hpp"

namespace stash::gpu {

/// `work` has set(generator), which changes its inputs; enqueue(stream), which is recorded; and verify(),
/// which compares what the device made of them with the host.
template <class Work>
void replay(Work& work, std::uint32_t seed) {
  test::generator random(seed);
  wait_for_device();
  const stream in;
  graph recorded(in, [&] { work.enqueue(in.handle()); });
  for (int launch = 0; launch < 3; ++launch) {
    work.set(random);
    recorded.launch();
    in.wait();
    work.verify();
  }
}

}  // namespace stash::gpu
