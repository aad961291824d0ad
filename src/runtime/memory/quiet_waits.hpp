// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Waiting for the device where nothing may throw. Whoever asks the device next hears of errors, whose texts
/// may have found no memory.

#include <exception>

#include "encoders/device/device_memory.hpp"

namespace stash::runtime {

namespace device = encoders::device;

inline void wait_quietly(void* stream) noexcept {
  try {
    device::wait_for_stream(stream);
  } catch (const std::exception&) {
  }
}

inline void wait_quietly_for(device::event e) noexcept {
  try {
    device::wait_for_event(e);
  } catch (const std::exception&) {
  }
}

/// False as well where the device does not say it.
inline bool has_been_reached(device::event e) noexcept {
  try {
    return device::reached(e);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace stash::runtime
