// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The value formats: ways to write one number in fewer bits. Everything that handles them reads this table:
/// names, sizes, conversions on the CPU and on devices, the planner, the C API and the lists of tests and
/// benchmarks. docs/format.md, "Narrow values", is the specification; docs/add_an_encoding.md says how to add
/// one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stash {

/// Format of stored values of `cast`, `bitmap` and `csr`. Numbers are part of the format and never reused.
enum class value_format : std::uint8_t {
  source = 0,    ///< as in the source tensor: lossless
  fp16 = 1,      ///< IEEE binary16
  fp8_e4m3 = 2,  ///< OCP FP8 E4M3: no infinity, largest value 448, subnormals down to 2^-9
  bf16 = 3,      ///< the upper half of f32
  fp10 = 4,      ///< 1 sign, 5 exponent, 4 mantissa bits; three to a 32-bit word
  fp8_e5m2 = 5,  ///< OCP FP8 E5M2, infinities saturate
  // OCP microscaling: groups of 32 values share a power-of-two scale.
  mxfp8_e4m3 = 6,
  mxfp8_e5m2 = 7,
  mxfp6_e2m3 = 8,
  mxfp6_e3m2 = 9,
  mxfp4_e2m1 = 10,
};

/// How the codes of a row of values lie in memory.
enum class code_packing : std::uint8_t {
  bit_string,     ///< one after the other, the lowest bit first
  three_to_word,  ///< code i in bits 10 (i mod 3) and up of the 32-bit word i div 3
};

/// What there is to know of a format. A code has a sign bit, then the exponent, then the mantissa. Codes
/// below are without sign. Up to `largest_finite` they are numbers. If `ieee`, codes with all exponent bits
/// set are infinity and NaN; else only `nan` is not a number.
struct value_format_info {
  value_format format;
  std::string_view name;        ///< in to_string(encoding), alone or after "bitmap_" and "csr_"
  std::string_view enumerator;  ///< in plans and graphs as JSON
  int bits;                     ///< of a code, sign included
  int mantissa_bits;
  int bias;  ///< of the exponent
  bool ieee;
  std::int32_t largest_finite;
  std::int32_t written_infinity;  ///< what infinity is stored as
  std::int32_t nan;               ///< what NaN is stored as; 0: the format has none
  bool scaled;                    ///< an MX format
  code_packing packing = code_packing::bit_string;

  /// The largest finite number; of a scaled format, before the scale.
  constexpr double largest() const noexcept {
    double value = 1.0 + static_cast<double>(largest_finite & ((1 << mantissa_bits) - 1)) /
                             static_cast<double>(1 << mantissa_bits);
    for (int e = largest_exponent(); e > 0; --e)
      value *= 2.0;
    return value;
  }
  /// Exponent of the largest finite number, which is not negative in any format.
  constexpr int largest_exponent() const noexcept { return (largest_finite >> mantissa_bits) - bias; }
};

/// All formats but `source`, each at the index that is its number less one.
inline constexpr std::array value_formats{
    value_format_info{value_format::fp16, "fp16", "fp16", 16, 10, 15, true, 0x7bff, 0x7c00, 0x7e00, false},
    value_format_info{value_format::fp8_e4m3, "fp8", "fp8_e4m3", 8, 3, 7, false, 0x7e, 0x7e, 0x7f, false},
    value_format_info{value_format::bf16, "bf16", "bf16", 16, 7, 127, true, 0x7f7f, 0x7f80, 0x7fc0, false},
    value_format_info{value_format::fp10, "fp10", "fp10", 10, 4, 15, true, 0x1ef, 0x1f0, 0x1f8, false,
                      code_packing::three_to_word},
    value_format_info{value_format::fp8_e5m2, "fp8_e5m2", "fp8_e5m2", 8, 2, 15, true, 0x7b, 0x7b, 0x7e,
                      false},
    value_format_info{value_format::mxfp8_e4m3, "mxfp8_e4m3", "mxfp8_e4m3", 8, 3, 7, false, 0x7e, 0x7e, 0x7f,
                      true},
    value_format_info{value_format::mxfp8_e5m2, "mxfp8_e5m2", "mxfp8_e5m2", 8, 2, 15, true, 0x7b, 0x7b, 0x7e,
                      true},
    value_format_info{value_format::mxfp6_e2m3, "mxfp6_e2m3", "mxfp6_e2m3", 6, 3, 1, false, 0x1f, 0x1f, 0,
                      true},
    value_format_info{value_format::mxfp6_e3m2, "mxfp6_e3m2", "mxfp6_e3m2", 6, 2, 3, false, 0x1f, 0x1f, 0,
                      true},
    value_format_info{value_format::mxfp4_e2m1, "mxfp4_e2m1", "mxfp4_e2m1", 4, 1, 1, false, 0x7, 0x7, 0,
                      true},
};

/// Whether the number is a format's, and not that of `source`.
constexpr bool has_row(value_format format) noexcept {
  const auto number = static_cast<std::size_t>(format);
  return number != 0 && number <= value_formats.size();
}

/// The row of a format; null for `source` and for numbers that are no format.
constexpr const value_format_info* info_of(value_format format) noexcept {
  return has_row(format) ? &value_formats[static_cast<std::size_t>(format) - 1] : nullptr;
}

static_assert(
    [] {
      for (std::size_t i = 0; i < value_formats.size(); ++i)
        if (static_cast<std::size_t>(value_formats[i].format) != i + 1) return false;
      return true;
    }(),
    "a row of value_formats is not at the index of its number");

}  // namespace stash
