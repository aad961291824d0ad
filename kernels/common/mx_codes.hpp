// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Elements of the MX formats on a device, several at once: those of 6 bits by the instructions that there
/// are for fp8; of 16 bits to e2m3, and of any to e2m1, by the ones for f16 and bf16, two to a word.

#include <cstdint>
#include <type_traits>

#include "common/stored_values.hpp"

namespace stash::kernels {

/// The codes of eight values of a group in two words; the upper half of the second one may be anything. They
/// mean nothing where the scale is that of NaN.
///
/// e2m3 is the lower end of e4m3, and e3m2 that of e5m2, once the smallest normal number of one is moved to
/// that of the other: codes are the same then, and what is larger has a code of more than five bits.
template <bool E5m2, bool KeepNonzero>
STASH_DEVICE void fp6_codes_of(const float (&values)[group_elements], float factor, std::uint32_t* words) {
  std::uint32_t rows[2];
  STASH_UNROLL
  for (unsigned w = 0; w < 2; ++w) {
    const float* v = values + 4 * w;
    const std::uint32_t codes = floats_to_fp8(v[0] * factor, v[1] * factor, E5m2) |
                                floats_to_fp8(v[2] * factor, v[3] * factor, E5m2) << 16;
    std::uint32_t magnitudes = codes & 0x7f7f7f7fU;
    magnitudes = select_bits(sign_masks_of_bytes(magnitudes + 0x60606060U), 0x1f1f1f1fU, magnitudes);
    if constexpr (KeepNonzero) {
      const std::uint32_t zeros = ~(magnitudes + 0x7f7f7f7fU);
      magnitudes |= (zeros & nonzero_bytes(v)) >> 7;
    }
    const std::uint32_t bytes = select_bits(0x1f1f1f1fU, magnitudes, codes >> 2 & 0x20202020U);
    const std::uint32_t pairs = select_bits(0x003f003fU, bytes, bytes >> 2);
    rows[w] = select_bits(0xfffU, pairs, pairs >> 4);
  }
  words[0] = select_bits(0xffffffU, rows[0], rows[1] << 24);
  words[1] = rows[1] >> 8;
}
STASH_DEVICE void fp6_codes_of(const float (&values)[group_elements], const group_scale& scale,
                               const value_conversion& c, std::uint32_t* words) {
  for_rules(c, [&](auto e5m2, auto keep_nonzero) {
    fp6_codes_of<e5m2, keep_nonzero>(values, scale.factor * c.unit, words);
  });
}

/// The f32 whose bits after those of an f16 are zero, and the last one of which is set if any of them was not
/// (rounding to odd): rounding it once more to fewer bits is as rounding `value`.
STASH_DEVICE float with_half_bits(float value) {
  constexpr std::uint32_t dropped = 0x1fff;
  const std::uint32_t bits = as_bits(value);
  return as_float((bits | ((bits & dropped) + dropped)) & ~dropped);
}

/// Codes of e2m1 and e2m3, two to a word, from magnitudes of 16 bits.
///
/// The code of a magnitude v, with n = 2^Mantissa codes for a power of two, is the least of n v, n v / 2 + n,
/// n v / 4 + 2 n and the last code, rounded: each is right between two powers of two and above the others
/// elsewhere. A sum with a number whose last mantissa bit counts one is rounded so, and once.
template <bool Bf16, unsigned Mantissa>
struct stepped_codes {
  /// That number. Factors of n v and n v / 4 are numbers of the type then, but for a few that are too large
  /// for f16 (stepped_codes_of()).
  static constexpr std::uint32_t anchor = both(Bf16 ? (127 + 7 - Mantissa) << 7 : (15 + 1 - Mantissa) << 10);
  static constexpr std::uint32_t step = both(1U << Mantissa);
  std::uint32_t first, second, third;

  /// `factor`: what magnitudes are multiplied by, of f16 divided by 512.
  STASH_DEVICE explicit stepped_codes(std::uint32_t factor) : first(factor) {
    second = product(factor, both(Bf16 ? 0x3f00 : 0x3800));
    third = product(factor, both(Bf16 ? 0x3e80 : 0x3400));
  }
  /// The codes, and the anchor.
  STASH_DEVICE std::uint32_t codes_of(std::uint32_t magnitudes) const {
    const std::uint32_t least =
        smaller_halves(smaller_halves(sum(magnitudes, first, anchor), sum(magnitudes, second, anchor + step)),
                       sum(magnitudes, third, anchor + 2 * step));
    return smaller_halves(least, anchor + 4 * step - both(1));
  }

  STASH_DEVICE static std::uint32_t product(std::uint32_t a, std::uint32_t b) {
    return Bf16 ? multiply_bfloats(a, b) : multiply_halves(a, b);
  }
  STASH_DEVICE static std::uint32_t sum(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return Bf16 ? multiply_add_bfloats(a, b, c) : multiply_add_halves(a, b, c);
  }
};

/// The codes of eight values, two to a word: pair(w) have their signs, and magnitudes that become codes;
/// kept(w): 1 in each half whose code may not become zero.
template <unsigned Bits, bool KeepNonzero, class Codes, class Pair, class Kept>
STASH_DEVICE void stepped_words_of(const Codes& codes, const Pair& pair, const Kept& kept,
                                   std::uint32_t* words) {
  // One product leaves the two codes of a word next to each other, at the upper end: their positions, of the
  // first code and its sign, of the second one, and of that one's sign. No two of them meet.
  constexpr std::uint32_t shifts = Bits == 4 ? 1U << 24 | 1U << 12 | 1U : 1U << 20 | 1U << 10;
  std::uint32_t rows[4];
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    const std::uint32_t values = pair(w), signs = values & pair_signs;
    std::uint32_t found = codes.codes_of(values & pair_magnitudes);
    if constexpr (KeepNonzero) found = larger_halves(found, Codes::anchor + kept(w));
    if constexpr (Bits == 4) {
      rows[w] = (found | signs) * shifts - Codes::anchor * shifts;
    } else {
      rows[w] = found * shifts - Codes::anchor * shifts + signs * (1U << 10 | 1U);
    }
  }
  if constexpr (Bits == 4) {
    words[0] = pick_bytes(pick_bytes(rows[0], rows[1], 0x0073), pick_bytes(rows[2], rows[3], 0x0073), 0x5410);
  } else {
    words[0] = funnel_right(rows[0], funnel_right(rows[1], rows[2] >> 20, 20), 20);
    words[1] = funnel_right(rows[2], rows[3] >> 20, 28);
  }
}

/// The codes of e2m1 of eight f32.
template <bool KeepNonzero>
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale) {
  constexpr std::uint32_t one_512th = 0x1800;
  std::uint32_t word;
  stepped_words_of<4, KeepNonzero>(
      stepped_codes<false, 1>(both(one_512th)),
      [&](unsigned w) {
        return floats_to_halves(with_half_bits(values[2 * w] * scale.factor),
                                with_half_bits(values[2 * w + 1] * scale.factor));
      },
      [&](unsigned w) {
        const std::uint32_t least[2] = {as_bits(values[2 * w]) & 0x7fffffffU,
                                        as_bits(values[2 * w + 1]) & 0x7fffffffU};
        return (least[0] != 0 ? 1U : 0U) | (least[1] != 0 ? 0x10000U : 0U);
      },
      &word);
  return word;
}
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale,
                                        const value_conversion& c) {
  return c.keep != 0 ? fp4_codes_of<true>(values, scale) : fp4_codes_of<false>(values, scale);
}

/// Eight 16-bit elements of a group and their codes, two words.
struct short_codes {
  packed_group<std::uint16_t> in;
  std::uint32_t words[2];
};

template <unsigned Bits, bool Bf16, bool KeepNonzero, unsigned Count>
STASH_DEVICE void stepped_codes_of(short_codes (&parts)[Count], std::uint32_t factor) {
  const stepped_codes<Bf16, Bits == 4 ? 1 : 3> codes{factor};
  STASH_UNROLL
  for (short_codes& part : parts) {
    const auto& words = part.in.word;
    stepped_words_of<Bits, KeepNonzero>(
        codes, [&](unsigned w) { return words[w]; },
        [&](unsigned w) { return smaller_halves(words[w] & pair_magnitudes, both(1)); }, part.words);
  }
}
/// The codes of e2m1 and e2m3.
template <unsigned Bits, unsigned Count>
STASH_DEVICE void stepped_codes_of(short_codes (&parts)[Count], const element_type& type, float scale,
                                   const value_conversion& c) {
  if (type.bf16) {
    const std::uint32_t factor = both(as_bits(scale) >> 16);
    return c.keep != 0 ? stepped_codes_of<Bits, true, true>(parts, factor)
                       : stepped_codes_of<Bits, true, false>(parts, factor);
  }
  // Too large for an f16. The elements are zeros or below four steps of the smallest numbers that there are.
  if (scale > 0x1p24F) {
    constexpr std::uint32_t four = 0x4400;
    STASH_UNROLL
    for (short_codes& part : parts) {
      STASH_UNROLL
      for (std::uint32_t& pair : part.in.word)
        pair = multiply_halves(pair, both(four));
    }
    scale *= 0.25F;
  }
  // Of zeros it may still be too large.
  const float first = clamped(scale * 0x1p-9F, 0x1p15F);
  const std::uint32_t factor = floats_to_halves(first, first);
  c.keep != 0 ? stepped_codes_of<Bits, false, true>(parts, factor)
              : stepped_codes_of<Bits, false, false>(parts, factor);
}

/// The codes of parts of a group of 16-bit elements, of 4 or 6 bits, as fp6_codes_of() leaves them.
template <unsigned Bits, unsigned Count>
STASH_DEVICE void short_codes_of(short_codes (&parts)[Count], const element_type& type,
                                 const group_scale& scale, const value_conversion& c) {
  static_assert(Bits == 4 || Bits == 6);
  if (Bits == 4 || !c.e5m2) return stepped_codes_of<Bits>(parts, type, scale.factor, c);
  const auto convert = [&](const auto& codes_of) {
    STASH_UNROLL
    for (short_codes& part : parts) {
      float values[group_elements];
      floats_of_pairs(part.in.word, type, values);
      codes_of(values, part.words);
    }
  };
  if constexpr (has_fp8_instructions) {
    const float factor = scale.factor * c.unit;
    if (c.keep != 0) {
      convert([&](const auto& values, auto* words) { fp6_codes_of<true, true>(values, factor, words); });
    } else {
      convert([&](const auto& values, auto* words) { fp6_codes_of<true, false>(values, factor, words); });
    }
  } else {
    convert([&](const auto& values, auto* words) {
      code_group g{};
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        g.code[i] = code_of<Bits>(values[i] * scale.factor, values[i], c);
      pack_codes<Bits>(g);
      words[0] = g.words[0];
      words[1] = g.words[1];
    });
  }
}

/// The extremes of a whole group of 16-bit elements, which a thread has.
template <unsigned Count>
STASH_DEVICE group_extremes extremes_of(const short_codes (&parts)[Count], const element_type& type) {
  const auto largest_of = [&](const auto& magnitudes) {
    std::uint32_t pair = 0;
    STASH_UNROLL
    for (const short_codes& part : parts) {
      STASH_UNROLL
      for (const std::uint32_t word : part.in.word)
        pair = larger_halves(pair, magnitudes(word & pair_magnitudes));
    }
    const std::uint32_t lower = pair & 0xffff, upper = pair >> 16;
    return lower > upper ? lower : upper;
  };
  std::uint32_t largest = largest_of([](std::uint32_t pair) { return pair; });
  const bool nan = largest > type.infinity;
  if (largest >= type.infinity) {
    largest = largest_of(
        [&](std::uint32_t pair) { return pair & ~sign_masks(flags_above(pair, type.infinity - 1)); });
  }
  return {bits_of_magnitude(largest, type), nan};
}

/// The codes of a whole group of 16-bit elements, which a thread has, in as many words as a code has bits,
/// and the scale.
template <unsigned Bits>
STASH_DEVICE std::uint8_t codes_of_group(short_codes (&parts)[scaled_group / group_elements],
                                         const element_type& type, const value_conversion& c,
                                         std::uint32_t (&words)[Bits]) {
  const group_scale scale = scale_of(extremes_of(parts, type), c);
  short_codes_of<Bits>(parts, type, scale, c);
  if constexpr (Bits == 4) {
    STASH_UNROLL
    for (unsigned p = 0; p < 4; ++p)
      words[p] = parts[p].words[0];
  } else {
    STASH_UNROLL
    for (unsigned p = 0; p < 4; p += 2) {
      const std::uint32_t *const one = parts[p].words, *const two = parts[p + 1].words;
      words[p / 2 * 3] = one[0];
      words[p / 2 * 3 + 1] = pick_bytes(one[1], two[0], 0x5410);
      words[p / 2 * 3 + 2] = pick_bytes(two[0], two[1], 0x5432);
    }
  }
  if (scale.byte == encoders::mx_nan_scale) {
    STASH_UNROLL
    for (std::uint32_t& word : words)
      word = 0;
  }
  return scale.byte;
}

/// The codes and the scale of eight elements of a group, whose others are in lanes nearby, at a distance of
/// `Step`. All lanes of a warp come.
template <unsigned Bits, unsigned Step, class Element>
STASH_DEVICE void scaled_codes_of(const packed_group<Element>& elements, const element_type& type,
                                  const value_conversion& c, code_group& g) {
  constexpr lane_set lanes = {scaled_group / group_elements, Step};
  constexpr bool halves = sizeof(Element) == 2;
  float values[group_elements];
  group_extremes extremes;
  if constexpr (halves) {
    extremes = extremes_of(elements, type, lanes);
    if constexpr (Bits == 8 && has_fp8_instructions) floats_of_pairs(elements.word, type, values);
  } else {
    to_f32s(unpacked(elements), type, values);
    extremes = extremes_of(values, lanes);
  }
  const group_scale scale = scale_of(extremes, c);
  g.scale = scale.byte;
  if constexpr (Bits == 8 && has_fp8_instructions) {
    float scaled[group_elements];
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      scaled[i] = values[i] * scale.factor;
    if constexpr (!halves) fp8_codes_of(scaled, values, c, g.words);
    if constexpr (halves) fp8_codes_of(scaled, elements, c, g.words);
  } else if constexpr (Bits == 4 || (Bits == 6 && (halves || has_fp8_instructions))) {
    if constexpr (halves) {
      short_codes part[1] = {{elements, {}}};
      short_codes_of<Bits>(part, type, scale, c);
      g.words[0] = part[0].words[0];
      if constexpr (Bits == 6) g.words[1] = part[0].words[1];
    } else if constexpr (Bits == 4) {
      g.words[0] = fp4_codes_of(values, scale, c);
    } else {
      fp6_codes_of(values, scale, c, g.words);
    }
    // Elements without a NaN of their own are zero where the scale says it.
    const std::uint32_t there = scale.byte == encoders::mx_nan_scale ? 0 : ~0U;
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
