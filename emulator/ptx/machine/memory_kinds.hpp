// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Whose memory the pointers are that calls of the CUDA runtime are given.

#include <cstdint>

#include "ptx/machine/device_memory.hpp"

namespace stash::ptx {

inline std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

enum class memory_kind { device, pinned, host };

inline memory_kind kind_of(const void* pointer) {
  if (is_device_address(address_of(pointer))) return memory_kind::device;
  return region_of(address_of(pointer)).host == nullptr ? memory_kind::host : memory_kind::pinned;
}

}  // namespace stash::ptx
