// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Exact conversions between f32 and the narrow formats of docs/format.md, "Narrow values".
///
/// The scalar forms are written without branches and without per-element shift counts, so that loops over
/// them vectorise on every instruction set; hardware conversions are not used, because they differ in NaN
/// and overflow. No step has a denormal operand that matters, so "denormals are zero" modes change nothing;
/// the rounding mode must be the default one (in_default_rounding() of public_call.hpp).

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "stash/encoding.hpp"

// The project's own targets take back such flags; nothing else compiles these sources without a word.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "Stash: NaN and infinities are values here: compile without -ffast-math and its parts"
#endif
#if defined(__FLT_EVAL_METHOD__) && \
    (__FLT_EVAL_METHOD__ < 0 || __FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "Stash: float has to be computed as float: on x86 compile with -mfpmath=sse"
#endif

namespace stash::encoders {

/// A row of value_formats as constants for the templates below.
template <value_format Format>
struct stored_format {
  static_assert(has_row(Format));
  /// A copy: nvcc takes no member of a reference as a constant.
  static constexpr value_format_info row = value_formats[static_cast<std::size_t>(Format) - 1];
  static constexpr value_format format = Format;
  static constexpr int bits = row.bits;
  using storage = std::conditional_t<(bits > 8), std::uint16_t, std::uint8_t>;
  static constexpr int mantissa_bits = row.mantissa_bits, bias = row.bias;
  static constexpr bool ieee = row.ieee, scaled = row.scaled;
  static constexpr std::int32_t largest_finite = row.largest_finite, written_infinity = row.written_infinity,
                                nan = row.nan;
  /// Exponent of the largest number.
  static constexpr int emax = row.largest_exponent();
};

using fp16_format = stored_format<value_format::fp16>;
using bf16_format = stored_format<value_format::bf16>;
using fp10_format = stored_format<value_format::fp10>;
using fp8_e4m3_format = stored_format<value_format::fp8_e4m3>;
using fp8_e5m2_format = stored_format<value_format::fp8_e5m2>;

/// Calls body(stored_format) with the format's constants; does nothing for one without a row.
template <class Body>
[[gnu::always_inline]] constexpr void with_stored_format(value_format format, const Body& body) {
  const auto call = [&]<std::size_t... Index>(std::index_sequence<Index...>) __attribute__((always_inline)) {
    const bool known = ((format == value_formats[Index].format &&
                         (body(stored_format<value_formats[Index].format>{}), true)) ||
                        ...);
    static_cast<void>(known);
  };
  call(std::make_index_sequence<value_formats.size()>{});
}

inline constexpr std::int32_t f32_magnitude_mask = 0x7fffffff;
inline constexpr std::int32_t f32_infinity = 0x7f800000;

// Always inlined, so that a caller compiled for a newer instruction set gets its own version.

/// condition ? a : b by masks: with a plain conditional compilers move the floating-point step into a branch,
/// and the loop around it does not vectorise.
[[gnu::always_inline]] constexpr std::int32_t choose(bool condition, std::int32_t a,
                                                     std::int32_t b) noexcept {
  const std::int32_t mask = -static_cast<std::int32_t>(condition);
  return (a & mask) | (b & ~mask);
}

template <class Format>
inline constexpr std::int32_t magnitude_mask = (1 << (Format::bits - 1)) - 1;

/// The largest magnitude of a code that is not NaN, of a format that has NaN.
template <class Format>
inline constexpr std::int32_t largest_code = Format::ieee ? Format::largest_finite + 1 : Format::nan - 1;

/// A power of two whose last mantissa bit is worth one subnormal step of Format: adding it to a small value
/// leaves the count of steps, correctly rounded, in the low bits.
template <class Format>
inline constexpr std::int32_t subnormal_anchor = (127 + 23 + 1 - Format::bias - Format::mantissa_bits) << 23;

/// The code of a value, in the low bits.
template <class Format, underflow_rule Underflow>
[[gnu::always_inline]] constexpr std::uint32_t narrow_bits(float value) noexcept {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << Format::mantissa_bits;
  constexpr std::int32_t smallest_normal = (127 - Format::bias + 1) << 23;
  constexpr std::uint32_t below_half = (1u << (shift - 1)) - 1;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);

  const std::uint32_t odd = (bits >> shift) & 1;
  const std::int32_t normal =
      static_cast<std::int32_t>((static_cast<std::uint32_t>(magnitude) + below_half + odd) >> shift) - rebias;
  std::int32_t result = choose(normal > Format::largest_finite, Format::largest_finite, normal);
  // With f32's own exponents the subnormals round like the rest.
  if constexpr (Format::bias != 127) {
    const float anchored = std::bit_cast<float>(magnitude) + std::bit_cast<float>(subnormal_anchor<Format>);
    const std::int32_t subnormal = std::bit_cast<std::int32_t>(anchored) - subnormal_anchor<Format>;
    result = choose(magnitude < smallest_normal, subnormal, result);
  }
  if constexpr (Underflow == underflow_rule::keep_nonzero) {
    result |= static_cast<std::int32_t>((result == 0) & (magnitude != 0));
  }
  if constexpr (Format::written_infinity != Format::largest_finite) {
    result = choose(magnitude == f32_infinity, Format::written_infinity, result);
  }
  result = choose(magnitude > f32_infinity, Format::nan, result);
  return static_cast<std::uint32_t>(result) | (bits >> 31) << (Format::bits - 1);
}

template <class Format, underflow_rule Underflow>
[[gnu::always_inline]] constexpr typename Format::storage narrow(float value) noexcept {
  return static_cast<typename Format::storage>(narrow_bits<Format, Underflow>(value));
}

template <class Format>
[[gnu::always_inline]] constexpr float widen(typename Format::storage stored) noexcept {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << 23;
  const std::int32_t magnitude = stored & magnitude_mask<Format>;
  const std::uint32_t sign = static_cast<std::uint32_t>(stored >> (Format::bits - 1)) << 31;

  std::int32_t result = (magnitude << shift) + rebias;
  if constexpr (Format::bias != 127) {
    const float steps = std::bit_cast<float>(magnitude + subnormal_anchor<Format>) -
                        std::bit_cast<float>(subnormal_anchor<Format>);
    result = choose(magnitude < (1 << Format::mantissa_bits), std::bit_cast<std::int32_t>(steps), result);
  }
  if constexpr (Format::ieee) {
    result = choose(magnitude > Format::largest_finite, (magnitude << shift) | f32_infinity, result);
  } else if constexpr (Format::nan != 0) {
    result = choose(magnitude == Format::nan, 0x7fc00000, result);
  }
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | sign);
}

/// Inverse of widen() that keeps the payload of a NaN; for values that widen() gave.
template <class Format>
[[gnu::always_inline]] constexpr typename Format::storage narrow_exactly(float value) noexcept {
  static_assert(Format::ieee);
  constexpr int shift = 23 - Format::mantissa_bits;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & f32_magnitude_mask);
  const std::int32_t special = (Format::largest_finite + 1) | ((magnitude & 0x7fffff) >> shift);
  const std::int32_t result =
      choose(magnitude >= f32_infinity, special,
             narrow<Format, underflow_rule::to_zero>(std::bit_cast<float>(magnitude)));
  return static_cast<typename Format::storage>(static_cast<std::uint32_t>(result) |
                                               ((bits >> 31) << (Format::bits - 1)));
}

/// What maps of a type are compared with in place of a bound: a clipped value is one that the type has, and
/// has to lie outside like the value that was clipped.
constexpr float rounded_to(dtype type, float bound) noexcept {
  constexpr auto to_zero = underflow_rule::to_zero;
  if (type == dtype::f16) return widen<fp16_format>(narrow<fp16_format, to_zero>(bound));
  if (type == dtype::bf16) return widen<bf16_format>(narrow<bf16_format, to_zero>(bound));
  return bound;
}

}  // namespace stash::encoders
