#pragma once
/// \file
/// Exact conversions between f32 and the narrow formats of docs/format.md, "Narrow values".
///
/// The scalar forms are written without branches and without per-element shift counts, so that loops over
/// them vectorise on every instruction set; hardware conversions are not used, because they differ in NaN
/// and overflow. No step has a denormal operand that matters, so "denormals are zero" modes change nothing;
/// the rounding mode must be the default one.

#include <bit>
#include <cstdint>

#include "stash/encoding.hpp"

namespace stash::detail {

struct fp16_format {
  using storage = std::uint16_t;
  static constexpr int mantissa_bits = 10;
  static constexpr int bias = 15;
  static constexpr std::int32_t magnitude_mask = 0x7fff;
  static constexpr std::int32_t largest_finite = 0x7bff;
  static constexpr std::int32_t infinity = 0x7c00;
  static constexpr std::int32_t nan = 0x7e00;
};

struct fp8_e4m3_format {
  using storage = std::uint8_t;
  static constexpr int mantissa_bits = 3;
  static constexpr int bias = 7;
  static constexpr std::int32_t magnitude_mask = 0x7f;
  static constexpr std::int32_t largest_finite = 0x7e;
  static constexpr std::int32_t infinity = largest_finite;  // the format has none
  static constexpr std::int32_t nan = 0x7f;
};

inline constexpr std::int32_t f32_magnitude_mask = 0x7fffffff;
inline constexpr std::int32_t f32_infinity = 0x7f800000;

/// condition ? a : b by masks: with a plain conditional compilers move the floating-point step into a branch,
/// and the loop around it does not vectorise.
constexpr std::int32_t choose(bool condition, std::int32_t a, std::int32_t b) noexcept {
  const std::int32_t mask = -static_cast<std::int32_t>(condition);
  return (a & mask) | (b & ~mask);
}

/// A power of two whose last mantissa bit is worth one subnormal step of Format: adding it to a small value
/// leaves the count of steps, correctly rounded, in the low bits.
template <class Format>
inline constexpr std::int32_t subnormal_anchor = (127 + 23 + 1 - Format::bias - Format::mantissa_bits) << 23;

template <class Format, underflow_rule Underflow>
constexpr typename Format::storage narrow(float value) noexcept {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << Format::mantissa_bits;
  constexpr std::int32_t smallest_normal = (127 - Format::bias + 1) << 23;
  constexpr std::uint32_t below_half = (1u << (shift - 1)) - 1;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);

  const std::uint32_t odd = (bits >> shift) & 1;
  const std::int32_t normal =
      static_cast<std::int32_t>((static_cast<std::uint32_t>(magnitude) + below_half + odd) >> shift) - rebias;
  const float anchored = std::bit_cast<float>(magnitude) + std::bit_cast<float>(subnormal_anchor<Format>);
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(anchored) - subnormal_anchor<Format>;

  std::int32_t result = choose(normal > Format::largest_finite, Format::largest_finite, normal);
  result = choose(magnitude < smallest_normal, subnormal, result);
  if constexpr (Underflow == underflow_rule::keep_nonzero) {
    result |= static_cast<std::int32_t>((result == 0) & (magnitude != 0));
  }
  if constexpr (Format::infinity != Format::largest_finite) {
    result = choose(magnitude == f32_infinity, Format::infinity, result);
  }
  result = choose(magnitude > f32_infinity, Format::nan, result);
  const auto sign = (bits >> 31) * (static_cast<std::uint32_t>(Format::magnitude_mask) + 1);
  return static_cast<typename Format::storage>(static_cast<std::uint32_t>(result) | sign);
}

template <class Format>
constexpr float widen(typename Format::storage stored) noexcept {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << 23;
  const std::int32_t magnitude = stored & Format::magnitude_mask;
  const auto sign = static_cast<std::uint32_t>(stored & (Format::magnitude_mask + 1))
                    << (31 - 8 * sizeof(stored) + 1);

  const float steps = std::bit_cast<float>(magnitude + subnormal_anchor<Format>) -
                      std::bit_cast<float>(subnormal_anchor<Format>);
  std::int32_t result = (magnitude << shift) + rebias;
  result = choose(magnitude < (1 << Format::mantissa_bits), std::bit_cast<std::int32_t>(steps), result);
  if constexpr (Format::infinity != Format::largest_finite) {
    result = choose(magnitude >= Format::infinity, (magnitude << shift) | f32_infinity, result);
  } else {
    result = choose(magnitude == Format::nan, 0x7fc00000, result);
  }
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | sign);
}

/// Bytes of one stored value of an f32 source.
constexpr std::size_t value_bytes(value_format format) noexcept {
  switch (format) {
    case value_format::source:
      return 4;
    case value_format::fp16:
      return 2;
    case value_format::fp8_e4m3:
      return 1;
  }
  return 0;
}

/// Packs `count` values in `format`; `stored` is aligned to the stored type and does not overlap `values`.
void store_values(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                  std::uint8_t* stored) noexcept;

/// Inverse of store_values.
void load_values(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) noexcept;

}  // namespace stash::detail
