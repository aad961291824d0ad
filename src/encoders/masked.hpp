#pragma once
/// \file
/// Values kept or dropped without a branch: flags are random, and compilers do not turn a conditional load
/// into a vector select by themselves.

#include <bit>
#include <cstdint>

namespace stash::detail {

/// `value` if `flag` is 1, +0 if it is 0.
inline float masked(float value, std::uint8_t flag) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0U - flag));
}

}  // namespace stash::detail
