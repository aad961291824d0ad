// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// 16-bit elements two to a word, the first in the low half. What is found out of them stands in the highest
/// bits of the halves: flags, whose other bits mean nothing.

#include <cstdint>

#include "common/packed.hpp"

namespace stash::kernels {

inline constexpr std::uint32_t pair_magnitudes = 0x7fff7fffU, pair_signs = 0x80008000U;

/// A word of two halves that are alike.
constexpr std::uint32_t both(std::uint32_t half) {
  return half * 0x10001U;
}

/// Words of 16-bit elements as f32, exact but for NaN, whose sign may be lost.
template <unsigned Words>
STASH_DEVICE void floats_of_pairs(const std::uint32_t (&words)[Words], const element_type& type,
                                  float* values) {
  if (type.bf16) {
    STASH_UNROLL
    for (unsigned w = 0; w < Words; ++w) {
      values[2 * w] = as_float(words[w] << 16);
      values[2 * w + 1] = as_float(words[w] & 0xffff0000U);
    }
  } else {
    STASH_UNROLL
    for (unsigned w = 0; w < Words; ++w)
      halves_to_floats(words[w], values + 2 * w);
  }
}
/// The same of words of any type.
template <class Bits, unsigned Words>
STASH_DEVICE void floats_of_words(const std::uint32_t (&words)[Words], const element_type& type,
                                  float* values) {
  if constexpr (sizeof(Bits) == 4) {
    STASH_UNROLL
    for (unsigned i = 0; i < Words; ++i)
      values[i] = as_float(words[i]);
  } else {
    floats_of_pairs(words, type, values);
  }
}
template <class Bits>
STASH_DEVICE void floats_of_vec16(const vector16& vec16, const element_type& type, float* values) {
  floats_of_words<Bits>(vec16.word, type, values);
}
/// The same of one element.
template <class Bits>
STASH_DEVICE float float_of(Bits value, const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return as_float(value);
  } else {
    return type.bf16 ? as_float(std::uint32_t{value} << 16) : half_to_float(value);
  }
}
/// The same of a group's vec16s.
template <class Bits>
STASH_DEVICE void floats_of_vec16s(const vector16 (&vec16s)[group_vectors<Bits>], const element_type& type,
                                   float (&values)[group_elements]) {
  STASH_UNROLL
  for (unsigned v = 0; v < group_vectors<Bits>; ++v)
    floats_of_vec16<Bits>(vec16s[v], type, values + 16 / sizeof(Bits) * v);
}
/// Results of arithmetic, none of which is NaN, as the vec16s of a group.
template <class Bits>
STASH_DEVICE void vec16s_of_floats(const float (&values)[group_elements], const element_type& type,
                                   vector16 (&vec16s)[group_vectors<Bits>]) {
  if constexpr (sizeof(Bits) == 4) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      vec16s[i / 4].word[i % 4] = as_bits(values[i]);
  } else if (type.bf16) {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      vec16s[0].word[w] = floats_to_bfloats(values[2 * w], values[2 * w + 1]);
  } else {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      vec16s[0].word[w] = floats_to_halves(values[2 * w], values[2 * w + 1]);
  }
}

/// Flags of the magnitudes above a limit.
STASH_DEVICE std::uint32_t flags_above(std::uint32_t pair, std::uint32_t limit) {
  return (pair & pair_magnitudes) + both(0x7fff - limit);
}
STASH_DEVICE std::uint32_t nan_flags(std::uint32_t pair, const element_type& type) {
  return flags_above(pair, type.infinity);
}
/// Flags of numbers above zero, not to be looked at for NaN.
STASH_DEVICE std::uint32_t positive_flags(std::uint32_t pair) {
  return flags_above(pair, 0) & ~pair;
}
/// What passes: where there is a NaN, by the rule.
STASH_DEVICE std::uint32_t ruled_flags(std::uint32_t flags, std::uint32_t pair, const element_type& type,
                                       bool nan_passes) {
  return select_bits(nan_flags(pair, type), nan_passes ? pair_signs : 0, flags);
}
/// A bit for each element of a group from the flags of its words.
STASH_DEVICE std::uint32_t bits_of_flags(const std::uint32_t (&flags)[4]) {
  const std::uint32_t first = pick_bytes(flags[0], flags[1], 0x7531);
  const std::uint32_t second = pick_bytes(flags[2], flags[3], 0x7531);
  return bits_of_bytes(first >> 7 & 0x01010101U, second >> 7 & 0x01010101U);
}

/// A number that elements are compared with: on which side it is looked for, and the least magnitude there.
/// Above 3 are positive numbers of more than its magnitude, above -3 all but the negative numbers of at least
/// its magnitude. Flags are not to be looked at for NaN.
struct pair_bound {
  std::uint32_t reach = 0, signs = 0, inverted = 0;

  STASH_DEVICE std::uint32_t flags(std::uint32_t pair) const {
    return (((pair & pair_magnitudes) + reach) & (pair ^ signs)) ^ inverted;
  }
};
/// Of numbers above, or below, the one that has these 16 bits. Zeros are equal.
inline pair_bound pair_bound_of(std::uint32_t bits, bool above) {
  const std::uint32_t magnitude = bits & 0x7fff;
  const bool negative = magnitude != 0 && bits >> 15 != 0, positive = magnitude != 0 && !negative;
  // Seen from zero, what is looked for lies above the bound, or it is what does not lie from the bound on.
  const bool inverted = above ? negative : positive;
  const std::uint32_t limit = inverted ? magnitude - 1 : magnitude;
  return {both(0x7fff - limit), above != inverted ? pair_signs : 0, inverted ? pair_signs : 0};
}

/// The elements of `pair` whose bits in `mask` are set, the others times a slope; every NaN becomes the one
/// that rounding writes, with its sign.
template <bool Bf16>
STASH_DEVICE std::uint32_t leaked_pair(std::uint32_t pair, std::uint32_t mask, float slope,
                                       const element_type& type) {
  const float low = Bf16 ? as_float(pair << 16) : half_to_float(static_cast<std::uint16_t>(pair));
  const float high =
      Bf16 ? as_float(pair & 0xffff0000U) : half_to_float(static_cast<std::uint16_t>(pair >> 16));
  const float products[2] = {slope * low, slope * high};
  const std::uint32_t rounded =
      Bf16 ? floats_to_bfloats(products[0], products[1]) : floats_to_halves(products[0], products[1]);
  const std::uint32_t result = select_bits(mask, pair, rounded);
  // Rounding forgets the sign of NaN, widening may. A product of numbers can be one, too.
  const std::uint32_t upper = pick_bytes(as_bits(products[0]), as_bits(products[1]), 0x7632);
  const std::uint32_t signs = select_bits(sign_masks(nan_flags(pair, type)), pair, upper);
  const std::uint32_t nan = (signs & pair_signs) | both(type.nan);
  return select_bits(sign_masks(nan_flags(result, type)), nan, result);
}
/// The same of a group.
STASH_DEVICE packed_group<std::uint16_t> leaked(const packed_group<std::uint16_t>& g,
                                                const packed_group<std::uint16_t>& masks, float slope,
                                                const element_type& type) {
  packed_group<std::uint16_t> out;
  if (type.bf16) {
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<std::uint16_t>; ++w)
      out.word[w] = leaked_pair<true>(g.word[w], masks.word[w], slope, type);
  } else {
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<std::uint16_t>; ++w)
      out.word[w] = leaked_pair<false>(g.word[w], masks.word[w], slope, type);
  }
  return out;
}

}  // namespace stash::kernels
