// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the emulated yardsticks tell about their use.

#include <cstdint>

namespace stash::gpu {

/// Bytes that read_by_kernel() has read so far.
std::uint64_t bytes_read_by_kernel();

}  // namespace stash::gpu
