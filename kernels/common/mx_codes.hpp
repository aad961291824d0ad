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

/// The same for e2m1, in one word. `Wide`: values have more bits than an f16.
template <bool Wide, bool KeepNonzero>
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale) {
  // A code is the sum of its count of steps, and two for each power of two from 1 on. What both numbers have
  // too much, in four places that are multiplied by a power of 16 each, is taken away at once.
  constexpr std::uint32_t least_exponent = 15 << 10, anchor = 9 << 10;
  constexpr std::uint32_t excess = least_exponent + anchor - (least_exponent >> 9) * 511;
  std::uint32_t word = 0U - both(excess) * 0x1111U;
  std::uint32_t signs = 0;
  STASH_UNROLL
  for (unsigned p = 0; p < 4; ++p) {
    // An element and the fourth one behind it, whose codes are half a word apart.
    const float v[2] = {values[p], values[p + 4]};
    const float low = v[0] * scale.factor, high = v[1] * scale.factor;
    const std::uint32_t pair =
        Wide ? floats_to_halves(with_half_bits(low), with_half_bits(high)) : floats_to_halves(low, high);
    // The largest number is 6.
    const std::uint32_t magnitudes = smaller_halves(pair & pair_magnitudes, both(0x4600));
    // 2^9 times the power of two below, or 1: one step of the code is its last bit, so adding it rounds.
    const std::uint32_t exponents = larger_halves(magnitudes & both(0x7c00), both(least_exponent));
    std::uint32_t sums = add_halves(magnitudes, exponents + both(anchor));
    if constexpr (KeepNonzero) {
      const std::uint32_t least[2] = {as_bits(v[0]) & 0x7fffffffU, as_bits(v[1]) & 0x7fffffffU};
      sums = larger_halves(
          sums, both(least_exponent + anchor) | (least[0] != 0 ? 1U : 0U) | (least[1] != 0 ? 0x10000U : 0U));
    }
    word += sums << (4 * p);
    word -= (exponents >> 9) * (511U << (4 * p));
    signs = select_bits(both(8) << (4 * p), pair >> (12 - 4 * p), signs);
  }
  return word | signs;
}
template <bool Wide>
STASH_DEVICE std::uint32_t fp4_codes_of(const float (&values)[group_elements], const group_scale& scale,
                                        const value_conversion& c) {
  return c.keep != 0 ? fp4_codes_of<Wide, true>(values, scale) : fp4_codes_of<Wide, false>(values, scale);
}

}  // namespace stash::kernels
