// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How the values of a cast, bitmap or csr are stored: sizes, and runs of f32 to bytes and back.

#include "encoders/format/run_loops.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

constexpr bool is_mx(value_format format) noexcept {
  return has_row(format) && info_of(format)->scaled;
}

/// Values that share a scale in the MX formats.
inline constexpr std::int64_t mx_group = 32;

/// Bits of one stored value, 0 for unknown formats; MX scales not counted.
constexpr int value_bits(value_format format, dtype source) noexcept {
  if (format == value_format::source) return static_cast<int>(8 * size_of(source));
  return has_row(format) ? info_of(format)->bits : 0;
}

/// Whether three values share a word.
constexpr bool in_words(value_format format) noexcept {
  return has_row(format) && info_of(format)->packing == code_packing::three_to_word;
}

struct value_codec {
  value_format format = value_format::source;
  underflow_rule underflow = underflow_rule::to_zero;
  dtype source = dtype::f32;

  constexpr std::size_t scale_bytes(std::int64_t count) const noexcept {
    return is_mx(format) ? static_cast<std::size_t>((count + mx_group - 1) / mx_group) : 0;
  }
  /// Without the scales.
  constexpr std::size_t element_bytes(std::int64_t count) const noexcept {
    const auto n = static_cast<std::size_t>(count);
    if (in_words(format)) return (n + 2) / 3 * 4;
    return (n * static_cast<std::size_t>(value_bits(format, source)) + 7) / 8;
  }
  /// Bytes of `count` values in a row.
  constexpr std::size_t bytes(std::int64_t count) const noexcept {
    return scale_bytes(count) + element_bytes(count);
  }

  /// Stores `count` <= run_elements values in a row; `stored` is 4-byte aligned and does not overlap
  /// `values`. 16-bit source values are given as their exact f32.
  void store(const float* values, std::int64_t count, std::uint8_t* stored) const noexcept {
    store(values, count, stored, stored + scale_bytes(count));
  }
  void load(const std::uint8_t* stored, std::int64_t count, float* values) const noexcept {
    load(stored, stored + scale_bytes(count), count, values);
  }
  /// The same with scales (MX formats only) and elements separate.
  void store(const float* values, std::int64_t count, std::uint8_t* scales, std::uint8_t* elements,
             destination to = destination::caches) const noexcept;
  void load(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count, float* values,
            destination to = destination::caches) const noexcept;
};

}  // namespace stash::encoders
