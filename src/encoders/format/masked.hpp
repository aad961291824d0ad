// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Values kept or dropped without a branch: flags are random, and compilers do not turn a conditional load
/// into a vector select by themselves.

#include <bit>
#include <cstdint>

#include "encoders/format/convert.hpp"
#include "encoders/format/sign.hpp"

namespace stash::encoders {

/// `value` if `flag` is 1, +0 if it is 0.
inline float masked(float value, std::uint8_t flag) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0U - flag));
}

/// `value` if it is `kept` or NaN, else slope * value. A NaN keeps its bits.
inline float kept_or_scaled(float value, bool kept, float slope) noexcept {
  auto scaled = std::bit_cast<std::int32_t>(slope * value);
#if defined(__clang__)
  // Clang makes value * (kept ? 1 : slope) of it otherwise, and a multiplication makes signalling NaNs quiet.
  asm("" : "+r"(scaled));
#endif
  return std::bit_cast<float>(choose(kept | is_nan(value), std::bit_cast<std::int32_t>(value), scaled));
}

}  // namespace stash::encoders
