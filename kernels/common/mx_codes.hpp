#pragma once
/// \file
/// Elements of the MX formats on a device, several at once: those of 6 bits by the instructions that there
/// are for fp8, those of 4 bits by the ones for f16, two to a word.

#include <cstdint>
#include <type_traits>

#include "common/stored_values.hpp"

namespace stash::kernels {

/// The codes of eight values of a group in two words; the upper half of the second one may be anything. They
/// mean nothing where the scale is that of NaN.
///
/// e2m3 is the lower end of e4m3, and e3m2 that of e5m2, once the smallest normal number of one is moved to
/// that of the other: codes are the same then, and what is larger has a code of more than five bits.
STASH_DEVICE void fp6_codes_of(const float (&values)[group_elements], const group_scale& scale,
                               const value_conversion& c, std::uint32_t* words) {
  const float factor = scale.factor * c.place;
  std::uint32_t rows[2];
  const auto convert = [&](auto e5m2, auto keep_nonzero) {
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      const float* v = values + 4 * w;
      const std::uint32_t codes = floats_to_fp8(v[0] * factor, v[1] * factor, e5m2) |
                                  floats_to_fp8(v[2] * factor, v[3] * factor, e5m2) << 16;
      std::uint32_t magnitudes = codes & 0x7f7f7f7fU;
      magnitudes = select_bits(sign_masks_of_bytes(magnitudes + 0x60606060U), 0x1f1f1f1fU, magnitudes);
      if constexpr (keep_nonzero) {
        const std::uint32_t zeros = ~(magnitudes + 0x7f7f7f7fU);
        magnitudes |= (zeros & nonzero_bytes(v)) >> 7;
      }
      const std::uint32_t bytes = select_bits(0x1f1f1f1fU, magnitudes, codes >> 2 & 0x20202020U);
      const std::uint32_t pairs = select_bits(0x003f003fU, bytes, bytes >> 2);
      rows[w] = select_bits(0xfffU, pairs, pairs >> 4);
    }
  };
  for_rules(c, convert);
  words[0] = select_bits(0xffffffU, rows[0], rows[1] << 24);
  words[1] = rows[1] >> 8;
}

/// The f32 whose bits behind those of an f16 are zero, and the last one of which is set if any of them was
/// not (rounding to odd): rounding it once more to fewer bits is as rounding `value`.
STASH_DEVICE float with_half_bits(float value) {
  constexpr std::uint32_t behind = 0x1fff;
  const std::uint32_t bits = as_bits(value);
  return as_float((bits | ((bits & behind) + behind)) & ~behind);
}

/// Numbers of 16 bits, two to a word: what becomes of them depends on their mantissa's bits and their bias.
template <bool Bf16>
struct half_numbers {
  static constexpr unsigned mantissa = Bf16 ? 7 : 10;
  static constexpr std::uint32_t bias = Bf16 ? 127 : 15;
  static constexpr std::uint32_t infinity = (2 * bias + 1) << mantissa, one = bias << mantissa;
  static constexpr std::uint32_t six = (bias + 2) << mantissa | 1U << (mantissa - 1);

  STASH_DEVICE static std::uint32_t product(std::uint32_t a, std::uint32_t b) {
    return Bf16 ? multiply_bfloats(a, b) : multiply_halves(a, b);
  }
  STASH_DEVICE static std::uint32_t sum(std::uint32_t a, std::uint32_t b) {
    return Bf16 ? add_bfloats(a, b) : add_halves(a, b);
  }
};

/// Codes of e2m1, in one word. scaled(p): the scaled values p and p + 4, whose codes are half a word apart;
/// kept(p): 1 in each half whose code may not become zero.
template <class Numbers, bool KeepNonzero, class Scaled, class Kept>
STASH_DEVICE std::uint32_t fp4_word_of(const Scaled& scaled, const Kept& kept) {
  constexpr unsigned mantissa = Numbers::mantissa;
  constexpr std::uint32_t anchor = (mantissa - 1) << mantissa;
  // A code is the sum of its count of steps, and two for each power of two from 1 on. What both numbers have
  // too much, in four places that are multiplied by a power of 16 each, is taken away at once.
  constexpr std::uint32_t doubles = (1U << (mantissa - 1)) - 1;
  constexpr std::uint32_t excess = anchor + 2 * Numbers::bias;
  std::uint32_t word = 0U - both(excess) * 0x1111U;
  std::uint32_t signs = 0;
  STASH_UNROLL
  for (unsigned p = 0; p < 4; ++p) {
    const std::uint32_t pair = scaled(p);
    // The largest number is 6.
    const std::uint32_t magnitudes = smaller_halves(pair & pair_magnitudes, both(Numbers::six));
    // One step of the code is the last bit of what is added, so adding it rounds: the power of two below, or
    // 1, times two to the count of a mantissa's bits but one.
    const std::uint32_t exponents = larger_halves(magnitudes & both(Numbers::infinity), both(Numbers::one));
    std::uint32_t sums = Numbers::sum(magnitudes, exponents + both(anchor));
    if constexpr (KeepNonzero) sums = larger_halves(sums, both(Numbers::one + anchor) | kept(p));
    word += sums << (4 * p);
    word -= (exponents >> (mantissa - 1)) * (doubles << (4 * p));
    signs = select_bits(both(8) << (4 * p), pair >> (12 - 4 * p), signs);
  }
  return word | signs;
}

/// The codes of eight f32.
template <bool KeepNonzero>
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale) {
  return fp4_word_of<half_numbers<false>, KeepNonzero>(
      [&](unsigned p) {
        return floats_to_halves(with_half_bits(values[p] * scale.factor),
                                with_half_bits(values[p + 4] * scale.factor));
      },
      [&](unsigned p) {
        const std::uint32_t least[2] = {as_bits(values[p]) & 0x7fffffffU,
                                        as_bits(values[p + 4]) & 0x7fffffffU};
        return (least[0] != 0 ? 1U : 0U) | (least[1] != 0 ? 0x10000U : 0U);
      });
}
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale,
                                        const value_conversion& c) {
  return c.keep != 0 ? fp4_codes_of<true>(values, scale) : fp4_codes_of<false>(values, scale);
}

/// Whether the factor of a group of f16 is too large for one of them. A group of zeros may have any.
STASH_DEVICE bool is_beyond_f16(const group_scale& scale) {
  return scale.byte != 0 && as_bits(scale.factor) >> 23 > 127 + 15;
}
/// The codes of eight 16-bit elements. `Twice`: f16 are multiplied by two factors, which is right for every
/// scale. bf16 need but one.
template <bool Bf16, bool Twice, bool KeepNonzero>
STASH_DEVICE std::uint32_t fp4_codes_of(const packed_group<std::uint16_t>& g, const group_scale& scale) {
  using numbers = half_numbers<Bf16>;
  static_assert(!Bf16 || !Twice);
  // f32 has the exponents of bf16; of f16 the largest is 30.
  const auto factor_of = [](std::uint32_t exponent) {
    const std::uint32_t own = Bf16 ? exponent : exponent - (127 - 15);
    return both(Bf16 || own < 30 ? own << numbers::mantissa : 30U << numbers::mantissa);
  };
  const std::uint32_t exponent = as_bits(scale.factor) >> 23;
  const std::uint32_t factor = factor_of(exponent);
  const std::uint32_t second = factor_of(exponent > 127 + 15 ? exponent - 15 : 127);
  const auto elements = [&](unsigned p) {
    return pick_bytes(g.word[p / 2], g.word[p / 2 + 2], p % 2 == 0 ? 0x5410 : 0x7632);
  };
  return fp4_word_of<numbers, KeepNonzero>(
      [&](unsigned p) {
        const std::uint32_t pair = numbers::product(elements(p), factor);
        return Twice ? numbers::product(pair, second) : pair;
      },
      [&](unsigned p) { return nonzero_masks(elements(p)) & both(1); });
}
template <bool Bf16, bool Twice>
STASH_DEVICE std::uint32_t fp4_codes_of(const packed_group<std::uint16_t>& g, const group_scale& scale,
                                        const value_conversion& c) {
  return c.keep != 0 ? fp4_codes_of<Bf16, Twice, true>(g, scale) : fp4_codes_of<Bf16, Twice, false>(g, scale);
}
/// The same of either type. All lanes of a warp come.
STASH_DEVICE std::uint32_t fp4_codes_of(const packed_group<std::uint16_t>& g, const element_type& type,
                                        const group_scale& scale, const value_conversion& c) {
  if (type.bf16) return fp4_codes_of<true, false>(g, scale, c);
  return ballot(all_lanes, is_beyond_f16(scale)) != 0 ? fp4_codes_of<false, true>(g, scale, c)
                                                      : fp4_codes_of<false, false>(g, scale, c);
}

/// The codes and the scale of eight elements of a group, whose others are in lanes nearby, `Step` apart. All
/// lanes of a warp come.
template <unsigned Bits, unsigned Step, class Element>
STASH_DEVICE void scaled_codes_of(const packed_group<Element>& elements, const element_type& type,
                                  const value_conversion& c, code_group& g) {
  constexpr lane_set lanes = {scaled_group / group_elements, Step};
  float values[group_elements];
  group_extremes extremes;
  if constexpr (sizeof(Element) == 4) {
    to_f32s(unpacked(elements), type, values);
    extremes = extremes_of(values, lanes);
  } else {
    extremes = extremes_of(elements, type, lanes, values);
  }
  const group_scale scale = scale_of(extremes, c);
  g.scale = scale.byte;
  if constexpr (Bits == 8 && has_fp8_instructions) {
    float scaled[group_elements];
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      scaled[i] = values[i] * scale.factor;
    if constexpr (sizeof(Element) == 4) fp8_codes_of(scaled, values, c, g.words);
    if constexpr (sizeof(Element) == 2) fp8_codes_of(scaled, elements, c, g.words);
  } else if constexpr (Bits == 4 || (Bits == 6 && has_fp8_instructions)) {
    if constexpr (Bits == 4 && sizeof(Element) == 4) g.words[0] = fp4_codes_of(values, scale, c);
    if constexpr (Bits == 4 && sizeof(Element) == 2) g.words[0] = fp4_codes_of(elements, type, scale, c);
    if constexpr (Bits == 6) fp6_codes_of(values, scale, c, g.words);
    // Elements without a NaN of their own are zero where the scale says it.
    const std::uint32_t there = scale.byte == detail::mx_nan_scale ? 0 : ~0U;
    g.words[0] &= there;
    g.words[1] &= there;
  } else {
    // Here the sign of a NaN counts.
    to_f32s(unpacked(elements), type, values);
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.code[i] = scaled_code_of<Bits>(values[i], scale, c);
    pack_codes<Bits>(g);
  }
}

}  // namespace stash::kernels
