// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Numbers of few bits, as IEEE 754 and the formats of 8 bits have them; NaN as instructions give it, without
/// sign and payload.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace stash::ptx {

/// `infinite`: the largest exponent is that of infinity and NaN, as in IEEE 754. Otherwise only a code of all
/// ones is NaN.
struct number_format {
  unsigned exponent_bits, fraction_bits;
  bool infinite;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t nan() const { return (1U << (exponent_bits + fraction_bits)) - 1; }
  /// Codes of numbers, without sign, are below.
  constexpr std::uint32_t beyond() const {
    return infinite ? ((1U << exponent_bits) - 1) << fraction_bits : nan();
  }
};
inline constexpr number_format f16_format{5, 10, true}, bf16_format{8, 7, true}, e5m2_format{5, 2, true},
    e4m3_format{4, 3, false};

inline constexpr std::uint32_t canonical_nan = 0x7fffffffU;

inline float as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t as_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
/// What arithmetic of f32 gives.
inline float canonical(float value) {
  return value == value ? value : as_float(canonical_nan);
}

/// Exact: every number of these formats is one of f64.
inline double number_of(std::uint32_t code, number_format f) {
  const std::uint32_t fraction = code & ((1U << f.fraction_bits) - 1);
  const auto exponent = static_cast<int>(code >> f.fraction_bits & ((1U << f.exponent_bits) - 1));
  const bool negative = (code >> (f.exponent_bits + f.fraction_bits) & 1) != 0;
  const std::uint32_t magnitude = code & f.nan();
  double number;
  if (magnitude >= f.beyond()) {
    number = f.infinite && magnitude == f.beyond() ? HUGE_VAL : std::nan("");
  } else {
    const int scale = (exponent == 0 ? 1 : exponent) - f.bias() - static_cast<int>(f.fraction_bits);
    number = std::ldexp(exponent == 0 ? fraction : fraction + double(1U << f.fraction_bits), scale);
  }
  return negative ? -number : number;
}

/// The same of all codes of f16, which are asked for often.
inline double half_number(std::uint32_t code) {
  static const std::array<float, 65536>& all = []() -> const std::array<float, 65536>& {
    static std::array<float, 65536> numbers;
    for (std::uint32_t c = 0; c < numbers.size(); ++c)
      numbers[c] = static_cast<float>(number_of(c, f16_format));
    return numbers;
  }();
  return all[code & 0xffff];
}
inline double bfloat_number(std::uint32_t code) {
  return as_float(code << 16);
}

/// To the nearest number, ties to even. Beyond the largest one infinity or, if `saturate`, the largest.
inline std::uint32_t code_of(double number, number_format f, bool saturate) {
  if (number != number) return f.nan();
  const std::uint32_t sign = std::signbit(number) ? f.nan() + 1 : 0;
  const double magnitude = std::fabs(number);
  std::uint32_t code;
  if (std::isinf(magnitude)) {
    code = f.beyond();
  } else {
    const int least = 1 - f.bias();
    const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
    // In steps of numbers with this exponent, the first bit of a fraction, which is not stored, being one
    // more in the exponent. Rounding may reach the next exponent, whose codes come next.
    const double steps = std::nearbyint(std::ldexp(magnitude, static_cast<int>(f.fraction_bits) - exponent));
    code =
        static_cast<std::uint32_t>(steps) + (static_cast<std::uint32_t>(exponent - least) << f.fraction_bits);
  }
  if (code >= f.beyond()) code = saturate ? f.beyond() - 1 : f.beyond();
  return sign | code;
}

/// a * b + c of numbers of f16 or bf16, rounded once.
inline std::uint32_t fused_code(double a, double b, double added, number_format f) {
  const double product = a * b;
  double sum = product + added;
  if (std::isfinite(sum)) {
    // Rounded to odd, so that rounding to the few bits of the format sees on which side of a tie it was.
    const double part = sum - product;
    const double lost = (product - (sum - part)) + (added - part);
    if (lost != 0 && (std::bit_cast<std::uint64_t>(sum) & 1) == 0)
      sum = std::nextafter(sum, lost > 0 ? HUGE_VAL : -HUGE_VAL);
  }
  return code_of(sum, f, false);
}

}  // namespace stash::ptx
