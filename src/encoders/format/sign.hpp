// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The framework rules on single values. Everything looks at the bits: a comparison of floats would depend
/// on the processor's "denormals are zero" mode.

#include <bit>
#include <cstdint>

#include "encoders/format/convert.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

constexpr bool is_nan(float value) noexcept {
  return (std::bit_cast<std::int32_t>(value) & f32_magnitude_mask) > f32_infinity;
}

/// Totally ordered like the numbers, both zeros being one; NaN lies outside the infinities.
constexpr std::int32_t ordered(float value) noexcept {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & f32_magnitude_mask;
  return choose(bits < 0, -magnitude, magnitude);
}

/// a < b; false for NaN.
constexpr bool is_below(float a, float b) noexcept {
  return !is_nan(a) && !is_nan(b) && ordered(a) < ordered(b);
}

/// True if ReLU's gradient passes where its output is `value`.
template <framework_rule Rule>
constexpr bool passes(float value) noexcept {
  const bool positive = std::bit_cast<std::int32_t>(value) > 0;
  if constexpr (Rule == framework_rule::pytorch) {
    return positive | is_nan(value);
  } else {
    return positive & !is_nan(value);
  }
}

/// flags[i] = test(values[i]).
template <class T, class Test>
void fill_flags(const T* __restrict values, std::int64_t count, std::uint8_t* __restrict flags,
                const Test& test) {
  for (std::int64_t i = 0; i < count; ++i)
    flags[i] = test(values[i]) ? 1 : 0;
}

}  // namespace stash::encoders
