#pragma once
/// \file
/// Tells addresses of the device from those of the host, whether or not memory lives there.

#include <cstdint>

namespace stash::ptx {

bool is_device_address(std::uint64_t address) noexcept;

}  // namespace stash::ptx
