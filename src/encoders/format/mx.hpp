// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The MX formats of docs/format.md: groups of up to 32 values with a shared power-of-two scale. Scaling is
/// done on the bits, so neither "denormals are zero" modes nor a quotient that f32 cannot hold matter; groups
/// with common exponents, where products and sums are normal numbers, are scaled by multiplication.
/// Always inlined, so that a caller compiled for a newer instruction set gets its own version.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "encoders/format/convert.hpp"
#include "encoders/format/value_codec.hpp"

namespace stash::encoders {

inline constexpr int mx_smallest_exponent = -127;
inline constexpr std::uint8_t mx_nan_scale = 255;

// Exponent fields of f32 between which no step of a conversion leaves the normal numbers: scales, and largest
// values of groups.
inline constexpr std::int32_t lowest_exponent = 48;
inline constexpr std::int32_t highest_exponent = 208;

/// What the scale depends on: the largest finite magnitude (as bits), and whether there is a NaN.
struct mx_extremes {
  std::int32_t largest;
  bool any_nan;
};

[[gnu::always_inline]] inline mx_extremes find_extremes(const float* values, std::int64_t count) noexcept {
  std::int32_t largest = 0;
  std::int32_t nan = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(values[i]) & f32_magnitude_mask;
    largest = std::max(largest, choose(magnitude < f32_infinity, magnitude, 0));
    nan |= static_cast<std::int32_t>(magnitude > f32_infinity);
  }
  return {largest, nan != 0};
}

/// Exponent of the scale of a group.
template <class Elements>
[[gnu::always_inline]] inline int scale_exponent(std::int32_t largest) noexcept {
  if (largest == 0) return mx_smallest_exponent;
  const int exponent = largest >= (1 << 23)
                           ? (largest >> 23) - 127
                           : 31 - std::countl_zero(static_cast<std::uint32_t>(largest)) - 149;
  return std::max(exponent - Elements::emax, mx_smallest_exponent);
}

/// value / 2^exponent for a value whose quotient is below 2^17. Quotients below the normal numbers, which
/// are too small for every element format, become the smallest normal one; infinity and NaN stay.
[[gnu::always_inline]] constexpr float scaled_down(float value, int exponent) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);
  // A denormal is its count of steps of 2^-149, which is a normal number.
  const auto steps = std::bit_cast<std::int32_t>(static_cast<float>(magnitude & 0x7fffff));
  const bool denormal = magnitude < (1 << 23);
  const std::int32_t normal = choose(denormal, steps, magnitude);
  const std::int32_t down = exponent + choose(denormal, 149, 0);
  auto result = static_cast<std::int32_t>(static_cast<std::uint32_t>(normal) -
                                          static_cast<std::uint32_t>(down) * (1U << 23));
  result = choose((normal >> 23) - down < 1, 1 << 23, result);
  result = choose(magnitude >= f32_infinity, magnitude, result);
  result = choose(magnitude == 0, 0, result);
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | (bits & 0x80000000U));
}

/// value * 2^exponent, exact where f32 has the number, saturating; infinity and NaN stay. `value` is an
/// element: zero, or a normal f32.
[[gnu::always_inline]] constexpr float scaled_up(float value, int exponent) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);
  const std::int32_t target = (magnitude >> 23) + exponent;
  auto result = static_cast<std::int32_t>(static_cast<std::uint32_t>(magnitude) +
                                          static_cast<std::uint32_t>(exponent) * (1U << 23));
  // Below the normal numbers: an element has so few mantissa bits that none is shifted out.
  const std::int32_t shift = std::clamp(1 - target, 0, 31);
  result = choose(target < 1, ((magnitude & 0x7fffff) | 0x800000) >> shift, result);
  result = choose(target > 254, f32_infinity - 1, result);
  result = choose((magnitude == 0) | (magnitude >= f32_infinity), magnitude, result);
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | (bits & 0x80000000U));
}

/// Packs up to 32 codes of Bits bits; the bytes past the last code are not touched.
template <int Bits, class Code>
[[gnu::always_inline]] inline void pack_codes(const Code* codes, std::int64_t count,
                                              std::uint8_t* out) noexcept {
  if constexpr (Bits == 8) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = static_cast<std::uint8_t>(codes[i]);
  } else {
    // Groups of four codes are two or three whole bytes.
    for (std::int64_t i = 0; i < count; i += 4) {
      std::uint32_t word = 0;
      for (std::int64_t j = 0; j < std::min<std::int64_t>(4, count - i); ++j)
        word |= static_cast<std::uint32_t>(codes[i + j]) << (Bits * j);
      const std::int64_t bytes = (std::min<std::int64_t>(4, count - i) * Bits + 7) / 8;
      for (std::int64_t b = 0; b < bytes; ++b)
        out[i * Bits / 8 + b] = static_cast<std::uint8_t>(word >> (8 * b));
    }
  }
}

template <int Bits>
[[gnu::always_inline]] inline void unpack_codes(const std::uint8_t* in, std::int64_t count,
                                                std::uint8_t* codes) noexcept {
  if constexpr (Bits == 8) {
    for (std::int64_t i = 0; i < count; ++i)
      codes[i] = in[i];
  } else {
    for (std::int64_t i = 0; i < count; i += 4) {
      const std::int64_t some = std::min<std::int64_t>(4, count - i);
      const std::int64_t bytes = (some * Bits + 7) / 8;
      std::uint32_t word = 0;
      for (std::int64_t b = 0; b < bytes; ++b)
        word |= static_cast<std::uint32_t>(in[i * Bits / 8 + b]) << (8 * b);
      for (std::int64_t j = 0; j < some; ++j)
        codes[i + j] = static_cast<std::uint8_t>((word >> (Bits * j)) & ((1U << Bits) - 1));
    }
  }
}

template <class Elements, underflow_rule Underflow>
[[gnu::always_inline]] inline std::uint8_t narrow_group(const float* values, std::int64_t count,
                                                        std::uint8_t* out) noexcept {
  std::uint8_t codes[32] = {};
  const mx_extremes extremes = find_extremes(values, count);
  std::uint8_t scale = mx_nan_scale;
  if (Elements::nan != 0 || !extremes.any_nan) {
    const int exponent = scale_exponent<Elements>(extremes.largest);
    for (std::int64_t i = 0; i < count; ++i)
      codes[i] = narrow<Elements, Underflow>(scaled_down(values[i], exponent));
    scale = static_cast<std::uint8_t>(exponent + 127);
  }
  pack_codes<Elements::bits>(codes, count, out);
  return scale;
}

template <class Elements>
[[gnu::always_inline]] inline void widen_group(std::uint8_t scale, const std::uint8_t* in, std::int64_t count,
                                               float* values) noexcept {
  if (scale == mx_nan_scale) {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = std::bit_cast<float>(0x7fc00000);
    return;
  }
  std::uint8_t codes[32];
  unpack_codes<Elements::bits>(in, count, codes);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = scaled_up(widen<Elements>(codes[i]), scale - 127);
}

// Whole groups whose exponents are common ones, for compilers to vectorise.

/// Bits of the largest magnitude of `count` values, infinity and NaN included.
[[gnu::always_inline]] inline std::int32_t largest_of_group(const float* values,
                                                            std::int64_t count) noexcept {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & f32_magnitude_mask);
  return largest;
}

constexpr bool is_common_magnitude(std::int32_t largest) noexcept {
  return largest >= lowest_exponent << 23 && largest < (highest_exponent + 1) << 23;
}
constexpr bool is_common_scale(std::uint8_t scale) noexcept {
  return scale >= lowest_exponent && scale <= highest_exponent;
}

/// narrow_group() for such a group. What moves is where the element's subnormal numbers end. A magnitude plus
/// the power of two below it, so many bits up, is rounded to the element's precision: the sum's mantissa
/// counts last bits of the code, its exponent belongs in front of them.
template <class Elements, underflow_rule Underflow>
[[gnu::always_inline]] inline std::uint8_t narrow_common_group(const float* values, std::int32_t largest,
                                                               std::uint8_t* out) noexcept {
  constexpr int mantissa_bits = Elements::mantissa_bits, height = 23 - mantissa_bits;
  const std::int32_t exponent = (largest >> 23) - 127 - Elements::emax;
  const std::int32_t smallest_normal = (exponent + 128 - Elements::bias) * (1 << 23);
  const std::int32_t origin = (exponent + 128 - Elements::bias + height) << mantissa_bits;
  std::uint32_t codes[mx_group];
  for (std::int64_t i = 0; i < mx_group; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);
    const std::int32_t power = std::max(magnitude & f32_infinity, smallest_normal);
    const auto sum = std::bit_cast<std::int32_t>(std::bit_cast<float>(power) * (1 << height) +
                                                 std::bit_cast<float>(magnitude));
    std::int32_t code = (sum >> height) + (sum & 0x7fffff) - origin;
    code = std::min(code, Elements::largest_finite);
    if constexpr (Underflow == underflow_rule::keep_nonzero)
      code |= static_cast<std::int32_t>((code == 0) & (magnitude != 0));
    codes[i] = static_cast<std::uint32_t>(code) | (bits >> 31) << (Elements::bits - 1);
  }
  pack_codes<Elements::bits>(codes, mx_group, out);
  return static_cast<std::uint8_t>(exponent + 127);
}

/// Values of all codes.
template <class Elements>
inline constexpr auto element_values = [] {
  std::array<float, std::size_t{1} << Elements::bits> values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = widen<Elements>(static_cast<typename Elements::storage>(code));
  return values;
}();

/// widen_group() for a group with such a scale.
template <class Elements>
[[gnu::always_inline]] inline void widen_common_group(std::uint8_t scale, const std::uint8_t* in,
                                                      float* values) noexcept {
  const auto factor = std::bit_cast<float>(scale * (1 << 23));
  std::uint8_t codes[mx_group];
  unpack_codes<Elements::bits>(in, mx_group, codes);
  if constexpr (Elements::nan != 0) {
    // No NaN goes through a multiplication: a signalling one would become quiet, whatever is done with the
    // product, for compilers take one NaN for another.
    std::int32_t largest = 0;
    for (const std::uint8_t code : codes)
      largest = std::max(largest, code & magnitude_mask<Elements>);
    if (largest > largest_code<Elements>) return widen_group<Elements>(scale, in, mx_group, values);
  }
  for (std::int64_t i = 0; i < mx_group; ++i)
    values[i] = element_values<Elements>[codes[i]] * factor;
}

/// Calls body(stored_format) for an MX format.
template <class Body>
[[gnu::always_inline]] inline void with_mx_elements(value_format format, const Body& body) {
  with_stored_format(
      format, [&](auto form) __attribute__((always_inline)) {
        if constexpr (decltype(form)::scaled) body(form);
      });
}

}  // namespace stash::encoders
