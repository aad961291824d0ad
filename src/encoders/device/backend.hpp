// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which device back end this process has. A back end is two objects of functions, and registers itself
/// before main(); a process without one has no device, which check_available() says.
///
/// Thread safety: all functions may run at the same time.

#include <string_view>

#include "encoders/device/device.hpp"

namespace stash::encoders::device {

class memory_calls;

struct backend {
  const memory_calls* memory;   ///< memory, copies, streams, events (device_memory.hpp)
  const kernel_calls* kernels;  ///< null: a model of a device in tests, which runs none
};

/// Makes `back_end`, which lives as long as the process, the one that is used; null: none is.
void register_backend(const backend* back_end) noexcept;
/// Null: none.
const backend* registered_backend() noexcept;

/// Throws error(unsupported) if no back end is registered, and what the back end says where its device cannot
/// be used.
void check_available(std::string_view function);

/// The kernels that this program was built with, for nvcc or for the emulator. Defined with them.
const kernel_calls& built_kernels() noexcept;

/// Of the back end that check_available() has found.
inline const kernel_calls& kernels() noexcept {
  return *registered_backend()->kernels;
}

}  // namespace stash::encoders::device
