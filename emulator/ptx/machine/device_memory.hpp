// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory of the machine that runs PTX. Addresses of the device are no addresses of the host: a host that
/// follows one dies. Pinned host memory has the same address for both.
///
/// All functions may be called from several threads.

#include <cstddef>
#include <cstdint>

namespace stash::ptx {

/// Live memory: `bytes` bytes that the device finds at `address`, the host at `host`.
struct region {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::byte* host = nullptr;
  bool holds(std::uint64_t at, std::size_t count) const noexcept {
    return at >= address && count <= bytes && at - address <= bytes - count;
  }
};

/// Memory of the device, at a multiple of 256, filled with a pattern. Null when there is no space for it.
void* allocate_device(std::size_t bytes);
/// Pinned memory of the host, at a multiple of 4096.
void* allocate_pinned(std::size_t bytes);
/// Memory of the device gets the pattern again, if it is live.
void fill_with_pattern(void* begin) noexcept;
/// Gives either back. False if no live memory begins there.
bool release(void* begin) noexcept;

/// The live memory that holds `address`; one of no bytes if there is none.
region region_of(std::uint64_t address) noexcept;

/// Whether an address is one of the device and not of the host, whether or not memory lives there.
bool is_device_address(std::uint64_t address) noexcept;

struct memory_in_use {
  std::size_t free_bytes, total_bytes;
};
memory_in_use device_memory_in_use() noexcept;

}  // namespace stash::ptx
