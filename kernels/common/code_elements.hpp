// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From codes to elements by way of f16, two to a word: what codes of up to ten bits stand for are f16, too.

#include <cstdint>
#include <type_traits>

#include "common/stored_values.hpp"

namespace stash::kernels {

/// Four codes as two words of f16, which is exact. NaN becomes anything.
template <bool E5m2, bool Instructions = has_fp8_instructions>
STASH_DEVICE void halves_of_fp8(std::uint32_t codes, std::uint32_t (&halves)[2]) {
  if constexpr (Instructions) {
    fp8_to_halves(codes, E5m2, halves);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      halves[i] = pick_bytes(codes, 0, i == 0 ? 0x1404 : 0x3424);
      // e5m2 is f16 without its last eight bits. Of e4m3 this is not yet the number, but an f16 in whose
      // position it lies differs from it by 2^(15 - 7), also where it is subnormal.
      if constexpr (!E5m2) {
        constexpr std::uint32_t factor = (15 + 15 - 7) << 10;
        const std::uint32_t numbers = multiply_halves((halves[i] & pair_magnitudes) >> 1, both(factor));
        halves[i] = select_bits(pair_signs, halves[i], numbers);
      }
    }
  }
}

/// True if there is a code among eight that is no finite number.
STASH_DEVICE bool any_special_fp8(const std::uint32_t* words, const value_conversion& c) {
  const std::uint32_t step = c.e5m2 ? 0x04040404U : 0x01010101U;
  return ((((words[0] & 0x7f7f7f7fU) + step) | ((words[1] & 0x7f7f7f7fU) + step)) & 0x80808080U) != 0;
}

/// Groups of f32 from any codes, two words each.
template <unsigned Groups>
STASH_DEVICE void fp8_elements_of(const std::uint32_t (&words)[Groups][2], const element_type&,
                                  const value_conversion& c, packed_group<std::uint32_t> (&out)[Groups]) {
  const auto convert = [&](auto e5m2, unsigned g) {
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t halves[2];
      halves_of_fp8<e5m2>(words[g][w], halves);
      float numbers[4];
      halves_to_floats(halves[0], numbers);
      halves_to_floats(halves[1], numbers + 2);
      STASH_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        out[g].word[4 * w + i] = as_bits(numbers[i]);
    }
  };
  STASH_UNROLL
  for (unsigned g = 0; g < Groups; ++g) {
    if (any_special_fp8(words[g], c)) {
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        out[g].word[i] = as_bits(value_of<8>(words[g][i / 4] >> (8 * (i % 4)) & 0xff, c));
    } else if (c.e5m2) {
      convert(std::true_type{}, g);
    } else {
      convert(std::false_type{}, g);
    }
  }
}

/// Two f16 that have no more mantissa bits than bf16, which are in the upper half of an f32.
STASH_DEVICE std::uint32_t bfloats_of_halves(std::uint32_t halves) {
  float numbers[2];
  halves_to_floats(halves, numbers);
  return pick_bytes(as_bits(numbers[0]), as_bits(numbers[1]), 0x7632);
}

/// Groups of 16-bit elements from any codes.
template <unsigned Groups>
STASH_DEVICE void fp8_elements_of(const std::uint32_t (&words)[Groups][2], const element_type& type,
                                  const value_conversion& c, packed_group<std::uint16_t> (&out)[Groups]) {
  const auto convert = [&](auto bf16, auto e5m2) {
    STASH_UNROLL
    for (unsigned w = 0; w < 2 * Groups; ++w) {
      std::uint32_t halves[2];
      halves_of_fp8<e5m2>(words[w / 2][w % 2], halves);
      STASH_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        if constexpr (bf16) halves[i] = bfloats_of_halves(halves[i]);
        out[w / 2].word[w % 2 * 2 + i] = halves[i];
      }
    }
  };
  for_kinds(type, c, convert);
  // Of codes that are NaN, which lie above all others, the highest bits are set.
  const std::uint32_t step = (0x7f - c.last_ordered) * 0x01010101U;
  std::uint32_t nan[2 * Groups];
  std::uint32_t any = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 2 * Groups; ++w) {
    nan[w] = (words[w / 2][w % 2] & 0x7f7f7f7fU) + step;
    any |= nan[w];
  }
  if ((any & 0x80808080U) == 0) return;
  STASH_UNROLL
  for (unsigned w = 0; w < 2 * Groups; ++w) {
    const std::uint32_t codes = words[w / 2][w % 2];
    std::uint32_t* const pairs = out[w / 2].word + w % 2 * 2;
    const std::uint32_t lower = select_bits(pair_signs, pick_bytes(codes, 0, 0x1404), both(type.nan));
    const std::uint32_t upper = select_bits(pair_signs, pick_bytes(codes, 0, 0x3424), both(type.nan));
    pairs[0] = select_bits(sign_masks_of_lower(nan[w]), lower, pairs[0]);
    pairs[1] = select_bits(sign_masks_of_upper(nan[w]), upper, pairs[1]);
  }
}

/// Eight codes of fp10, three to a word, as f16: fp10 is f16 without its last six bits.
STASH_DEVICE void halves_of_fp10(const std::uint32_t* words, std::uint32_t (&halves)[4]) {
  constexpr std::uint32_t lower = 0xffc0U, upper = lower << 16;
  halves[0] = select_bits(upper, words[0] << 12, words[0] << 6 & lower);
  halves[1] = select_bits(upper, words[1] << 22, words[0] >> 14 & lower);
  halves[2] = select_bits(upper, words[1] << 2, words[1] >> 4 & lower);
  halves[3] = select_bits(upper, words[2] << 12, words[2] << 6 & lower);
}
/// Flags of those that are NaN.
STASH_DEVICE std::uint32_t nan_flags_of_halves(std::uint32_t halves) {
  return flags_above(halves, 0x7c00);
}

/// Eight elements from any codes of 16 bits.
STASH_DEVICE void half_elements_of(const packed_group<std::uint16_t>& codes, const element_type& type,
                                   const value_conversion& c, packed_group<std::uint16_t>& out) {
  half_words_of(codes.word, c.bf16, type.bf16, 0, out.word);
}
STASH_DEVICE void half_elements_of(const packed_group<std::uint16_t>& codes, const element_type&,
                                   const value_conversion& c, packed_group<std::uint32_t>& out) {
  std::uint32_t any = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    float numbers[2] = {as_float(codes.word[w] << 16), as_float(codes.word[w] & 0xffff0000U)};
    if (!c.bf16) {
      halves_to_floats(codes.word[w], numbers);
      any |= nan_flags_of_halves(codes.word[w]);
    }
    out.word[2 * w] = as_bits(numbers[0]);
    out.word[2 * w + 1] = as_bits(numbers[1]);
  }
  if ((any & pair_signs) == 0) return;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i)
    out.word[i] = as_bits(value_of<16>(codes.value(i), c));
}

/// Eight f32 from any codes of fp10.
STASH_DEVICE void fp10_elements_of(const code_group& codes, const element_type&, const value_conversion& c,
                                   packed_group<std::uint32_t>& out) {
  std::uint32_t halves[4];
  halves_of_fp10(codes.words, halves);
  std::uint32_t any = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    any |= nan_flags_of_halves(halves[w]);
    float numbers[2];
    halves_to_floats(halves[w], numbers);
    out.word[2 * w] = as_bits(numbers[0]);
    out.word[2 * w + 1] = as_bits(numbers[1]);
  }
  if ((any & pair_signs) == 0) return;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i)
    out.word[i] = as_bits(value_of<10>(codes.code[i], c));
}
/// Eight 16-bit elements from any codes of fp10.
STASH_DEVICE void fp10_elements_of(const code_group& codes, const element_type& type, const value_conversion&,
                                   packed_group<std::uint16_t>& out) {
  std::uint32_t halves[4];
  halves_of_fp10(codes.words, halves);
  std::uint32_t any = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    any |= nan_flags_of_halves(halves[w]);
    out.word[w] = type.bf16 ? bfloats_of_halves(halves[w]) : halves[w];
  }
  if ((any & pair_signs) == 0) return;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    const std::uint32_t nan = select_bits(pair_signs, halves[w], both(type.nan));
    out.word[w] = select_bits(sign_masks(nan_flags_of_halves(halves[w])), nan, out.word[w]);
  }
}

/// Eight codes of an MX format as f16, without their scale. NaN becomes anything.
template <unsigned Bits>
STASH_DEVICE void halves_of_mx(const code_group& codes, const value_conversion& c,
                               std::uint32_t (&halves)[4]) {
  if constexpr (Bits == 8) {
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t two[2];
      c.e5m2 ? halves_of_fp8<true>(codes.words[w], two) : halves_of_fp8<false>(codes.words[w], two);
      halves[2 * w] = two[0];
      halves[2 * w + 1] = two[1];
    }
  } else if constexpr (Bits == 4) {
    // The upper bytes of 0, 0.5, 1, 1.5, 2, 3, 4 and 6; the lower ones are 0.
    constexpr std::uint32_t small = 0x3e3c3800U, large = 0x46444240U, minus = 0x8000U;
    const std::uint32_t magnitudes = codes.words[0] & 0x77777777U, signs = codes.words[0] >> 3 & 0x11111111U;
    STASH_UNROLL
    for (unsigned four = 0; four < 2; ++four) {
      const std::uint32_t bytes = pick_bytes_at(small, large, magnitudes >> (16 * four)) |
                                  pick_bytes_at(minus, 0, signs >> (16 * four));
      halves[2 * four] = pick_bytes(bytes, 0, 0x1404);
      halves[2 * four + 1] = pick_bytes(bytes, 0, 0x3424);
    }
  } else {
    // As e4m3 by arithmetic: 2^15 less the format's bias.
    const std::uint32_t factor = both(((as_bits(c.rebias) >> 23) + 15 - 127 - 112) << 10);
    const unsigned mantissa = 23 - c.shift;
    STASH_UNROLL
    for (unsigned p = 0; p < 4; ++p) {
      const std::uint32_t pair = codes.code[2 * p] << 10 | codes.code[2 * p + 1] << 26;
      const std::uint32_t numbers = multiply_halves((pair & pair_magnitudes) >> mantissa, factor);
      halves[p] = select_bits(pair_signs, pair, numbers);
    }
  }
}

/// The largest scale of which scaled_elements_of() knows. That of NaN lies above it.
template <class Element>
STASH_DEVICE std::uint32_t largest_plain_scale(const value_conversion& c) {
  static_assert(encoders::mx_nan_scale == 255);
  // No f32 becomes infinity.
  return sizeof(Element) == 4 ? 254 - static_cast<std::uint32_t>(c.emax) : 254;
}

/// Eight elements from finite codes with a scale up to that.
template <unsigned Bits, class Element>
STASH_DEVICE packed_group<Element> scaled_elements_of(const code_group& codes, const element_type& type,
                                                      const value_conversion& c) {
  std::uint32_t halves[4];
  halves_of_mx<Bits>(codes, c, halves);
  const float factor = scale_factor(codes.scale);
  packed_group<Element> g;
  if constexpr (sizeof(Element) == 2) {
    // Scales of f16 that neither are too small for one nor make anything too large; of bf16, that keep all
    // exponents.
    const std::uint32_t least = type.bf16 ? 32 : 127 - 24;
    const std::uint32_t most = type.bf16 ? 222 : 127 + 14 - static_cast<std::uint32_t>(c.emax);
    if (codes.scale - least <= most - least) {
      if (type.bf16) {
        const std::uint32_t factors = both(as_bits(factor) >> 16);
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w)
          g.word[w] = multiply_bfloats(bfloats_of_halves(halves[w]), factors);
      } else {
        const std::uint32_t factors = floats_to_halves(factor, factor);
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w)
          g.word[w] = multiply_halves(halves[w], factors);
      }
      return g;
    }
  }
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    float pair[2];
    halves_to_floats(halves[w], pair);
    const float first = pair[0] * factor, second = pair[1] * factor;
    if constexpr (sizeof(Element) == 4) {
      g.word[2 * w] = as_bits(first);
      g.word[2 * w + 1] = as_bits(second);
    } else {
      // No number may become infinity.
      const float largest = as_float(type.largest);
      const float one = clamped(first, largest), two = clamped(second, largest);
      g.word[w] = type.bf16 ? floats_to_bfloats(one, two) : floats_to_halves(one, two);
    }
  }
  return g;
}

}  // namespace stash::kernels
