// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Narrow values on a device: from f32 to codes and back (docs/format.md, "Narrow values"), and groups of
/// eight consecutive codes in memory.
///
/// Formats of one size are served by one kernel: what distinguishes them is a handful of constants, which
/// cost the same from a kernel's parameters as from its instructions. Denormals count: nvcc's -ftz=false, the
/// default, must stay.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/elements.hpp"
#include "common/pairs.hpp"
#include "encoders/format/mx.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

/// The constants of a format.
struct value_conversion {
  unsigned shift;                  ///< f32 mantissa bits that are rounded away
  std::uint32_t largest_value;     ///< f32 bits of the largest finite number
  std::uint32_t smallest_normal;   ///< f32 bits of the smallest normal number
  std::uint32_t code_offset;       ///< what code_of() takes away in the end
  float rebias;                    ///< what a code read as an f32 is multiplied by
  std::uint32_t infinity, nan;     ///< codes without sign that are written
  std::uint32_t last_number;       ///< codes above are no finite numbers: their f32 is
  std::uint32_t last_ordered;      ///< codes above are NaN
  std::uint32_t special, payload;  ///< `special`, and of the code's mantissa these bits
  unsigned sign_bit;
  std::uint32_t keep;  ///< 1: what is not zero does not become zero
  bool bf16;           ///< as many exponents as f32
  bool e5m2;           ///< the instructions for e5m2 serve it, else those for e4m3 if any
  int emax;            ///< MX elements: exponent of the largest number
  float unit;          ///< MX elements of 6 bits: what moves them to the lower end of an 8-bit format
};

/// The constants of a format of encoders/format/convert.hpp.
template <class Format>
constexpr value_conversion conversion_of(bool keep_nonzero) {
  value_conversion c{};
  constexpr int mantissa = Format::mantissa_bits;
  c.shift = static_cast<unsigned>(23 - mantissa);
  const auto largest = encoders::widen<Format>(static_cast<typename Format::storage>(Format::largest_finite));
  c.largest_value = std::bit_cast<std::uint32_t>(largest);
  c.smallest_normal = static_cast<std::uint32_t>(127 - Format::bias + 1) << 23;
  c.code_offset = (c.smallest_normal >> c.shift) + (c.shift << 23);
  c.rebias = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 127 - Format::bias) << 23);
  c.infinity = static_cast<std::uint32_t>(Format::written_infinity);
  c.nan = static_cast<std::uint32_t>(Format::nan);
  // Without NaN every code is a number.
  c.last_number = Format::nan == 0 ? 0xffffffffU : static_cast<std::uint32_t>(Format::largest_finite);
  c.last_ordered = Format::nan == 0
                       ? (1U << (Format::bits - 1)) - 1
                       : static_cast<std::uint32_t>(Format::largest_finite) + (Format::ieee ? 1 : 0);
  c.special = Format::ieee ? 0x7f800000U : 0x7fc00000U;
  c.payload = Format::ieee ? 0xffffffffU : 0;
  c.sign_bit = Format::bits - 1;
  c.keep = keep_nonzero ? 1 : 0;
  c.bf16 = Format::bias == 127;
  c.e5m2 = mantissa == 2;
  c.emax = Format::scaled ? Format::emax : 0;
  constexpr int eight_bits =
      mantissa == 2 ? encoders::fp8_e5m2_format::bias : encoders::fp8_e4m3_format::bias;
  c.unit = Format::bits == 6
               ? std::bit_cast<float>(static_cast<std::uint32_t>(127 + Format::bias - eight_bits) << 23)
               : 1.0F;
  return c;
}

// Below, Bits is the size of a code where it is known, or 0: it says which special cases there are.

/// The code of `value`, which stands for a number with the sign of `original` that is zero where `original`
/// is.
template <unsigned Bits>
STASH_DEVICE std::uint32_t code_of(float value, float original, const value_conversion& c) {
  const std::uint32_t word = as_bits(original);
  const std::uint32_t magnitude = word & 0x7fffffffU;
  const std::uint32_t scaled = as_bits(value) & 0x7fffffffU;
  const std::uint32_t finite = scaled < c.largest_value ? scaled : c.largest_value;
  std::uint32_t code;
  if ((Bits == 0 || Bits == 16) && c.bf16) {
    code = float_to_bfloat(as_float(finite));
  } else {
    // A power of two whose last mantissa bit is worth one step of the code at this magnitude: adding it
    // leaves the count of steps, correctly rounded, in the low bits.
    const std::uint32_t own = finite & 0x7f800000U;
    const std::uint32_t exponent = own > c.smallest_normal ? own : c.smallest_normal;
    const float anchor = as_float(exponent + (c.shift << 23));
    code = as_bits(as_float(finite) + anchor) - exponent + (exponent >> c.shift) - c.code_offset;
  }
  const std::uint32_t least = magnitude < c.keep ? magnitude : c.keep;
  code = code > least ? code : least;
  if constexpr (Bits == 8) {
    code = magnitude > 0x7f800000U ? c.nan : code;
  } else if constexpr (Bits != 4 && Bits != 6) {
    const std::uint32_t special = magnitude > 0x7f800000U ? c.nan : c.infinity;
    code = magnitude >= 0x7f800000U ? special : code;
  }
  return code | word >> 31 << c.sign_bit;
}
/// The code of a value, sign included.
template <unsigned Bits = 0>
STASH_DEVICE std::uint32_t code_of(float value, const value_conversion& c) {
  return code_of<Bits>(value, value, c);
}

/// The exact value of a code times a power of two, saturating; what is no number ignores the factor.
template <unsigned Bits>
STASH_DEVICE float value_of(std::uint32_t code, const value_conversion& c, bool by_factor, float factor) {
  const std::uint32_t magnitude = code & ((1U << c.sign_bit) - 1);
  const std::uint32_t moved = magnitude << c.shift;
  // Exact: a subnormal code is a subnormal f32 before, and none after.
  float value = as_float(moved) * c.rebias;
  if (by_factor) value = value * factor;
  std::uint32_t bits = as_bits(value);
  if (by_factor) bits = bits < 0x7f7fffffU ? bits : 0x7f7fffffU;
  if constexpr (Bits != 4 && Bits != 6) {
    bits = magnitude > c.last_number ? ((moved & c.payload) | c.special) : bits;
  }
  return as_float(bits | code >> c.sign_bit << 31);
}
/// The exact value of a code.
template <unsigned Bits = 0>
STASH_DEVICE float value_of(std::uint32_t code, const value_conversion& c) {
  return value_of<Bits>(code, c, false, 1.0F);
}

/// x > 0, for `nan_passes` also NaN.
STASH_DEVICE bool code_passes(std::uint32_t code, const value_conversion& c, bool nan_passes) {
  const std::uint32_t magnitudes = (1U << c.sign_bit) - 1;
  return code - 1 < c.last_ordered || (nan_passes && (code & magnitudes) > c.last_ordered);
}

/// Values that share a scale in the MX formats.
inline constexpr unsigned scaled_group = 32;

/// What the scale of a group depends on.
struct group_extremes {
  std::uint32_t largest;  ///< the largest finite magnitude, as bits of an f32
  bool any_nan;
};

/// Lanes that have a group together: so many, each so far from the next one, both powers of two.
struct lane_set {
  unsigned count, step;
};
/// The largest of a set's lanes; all lanes of the warp must come.
STASH_DEVICE std::uint32_t largest_of_lanes(std::uint32_t value, lane_set lanes) {
  for (unsigned bit = lanes.step; bit < lanes.count * lanes.step; bit *= 2) {
    const std::uint32_t other = shuffle_xor(all_lanes, value, bit);
    value = other > value ? other : value;
  }
  return value;
}
/// The same of each half of a word.
STASH_DEVICE std::uint32_t largest_halves_of_lanes(std::uint32_t pair, lane_set lanes) {
  for (unsigned bit = lanes.step; bit < lanes.count * lanes.step; bit *= 2)
    pair = larger_halves(pair, shuffle_xor(all_lanes, pair, bit));
  return pair;
}

/// Extremes of a group whose values are in `lanes`; all lanes of the warp must come.
/// `largest`: the largest magnitude of them all; magnitude(i): that of the lane's value i of `Count`; all as
/// bits of the type whose infinity is `infinity`. Only `any_nan` is an answer to all; `largest` comes back in
/// bits of that type.
template <unsigned Count, class Magnitude>
STASH_DEVICE group_extremes finite_extremes(std::uint32_t largest, std::uint32_t infinity, lane_set lanes,
                                            const Magnitude& magnitude) {
  const bool nan = largest > infinity;
  // Rare. The warp decides as one, because its lanes have to come together.
  if (ballot(all_lanes, largest >= infinity) != 0) {
    largest = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      const std::uint32_t own = magnitude(i);
      largest = own < infinity && own > largest ? own : largest;
    }
    largest = largest_of_lanes(largest, lanes);
  }
  return {largest, nan};
}
/// Of f32.
template <unsigned Count>
STASH_DEVICE group_extremes extremes_of(const float (&values)[Count], lane_set lanes) {
  const auto magnitude = [&](unsigned i) { return as_bits(values[i]) & 0x7fffffffU; };
  std::uint32_t largest = 0;
  STASH_UNROLL
  for (unsigned i = 0; i < Count; ++i)
    largest = magnitude(i) > largest ? magnitude(i) : largest;
  return finite_extremes<Count>(largest_of_lanes(largest, lanes), 0x7f800000U, lanes, magnitude);
}
/// The f32 bits of a 16-bit number without sign.
STASH_DEVICE std::uint32_t bits_of_magnitude(std::uint32_t half, const element_type& type) {
  return type.bf16 ? half << 16 : as_bits(half_to_float(static_cast<std::uint16_t>(half)));
}
/// Of a group of 16-bit elements.
STASH_DEVICE group_extremes extremes_of(const packed_group<std::uint16_t>& g, const element_type& type,
                                        lane_set lanes) {
  std::uint32_t pair = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < group_words<std::uint16_t>; ++w)
    pair = larger_halves(pair, g.word[w] & pair_magnitudes);
  pair = largest_halves_of_lanes(pair, lanes);
  const std::uint32_t lower = pair & 0xffff, upper = pair >> 16;
  group_extremes e =
      finite_extremes<group_elements>(lower > upper ? lower : upper, type.infinity, lanes,
                                      [&](unsigned i) { return g.value(i) & std::uint32_t{0x7fff}; });
  e.largest = bits_of_magnitude(e.largest, type);
  return e;
}

/// A group's scale: the byte, and what its elements are multiplied by, a power of two that is a normal
/// number.
struct group_scale {
  std::uint8_t byte;
  float factor;
};
STASH_DEVICE group_scale scale_of(const group_extremes& e, const value_conversion& c) {
  // The smallest scale is the one whose byte is 0. Zero and denormals of f32 have it in any format, because
  // emax is above 0: their own exponents need not be found.
  static_assert(encoders::mx_smallest_exponent == -127);
  const int below = static_cast<int>(e.largest >> 23) - c.emax;
  const int byte = below > 0 ? below : 0;
  // Elements without a NaN of their own take it from the scale.
  const bool nan = c.nan == 0 && e.any_nan;
  return {nan ? encoders::mx_nan_scale : static_cast<std::uint8_t>(byte),
          as_float(static_cast<std::uint32_t>(254 - byte) << 23)};
}

template <unsigned Bits = 0>
STASH_DEVICE std::uint32_t scaled_code_of(float value, const group_scale& scale, const value_conversion& c) {
  // What is lost where the product is no normal number is far below the smallest code.
  const std::uint32_t code = code_of<Bits>(value * scale.factor, value, c);
  return Bits != 8 && scale.byte == encoders::mx_nan_scale ? 0 : code;
}
/// What a scale byte stands for, which is not that of NaN.
STASH_DEVICE float scale_factor(std::uint8_t scale) {
  // 2^-127 is no normal number.
  return as_float(scale == 0 ? 0x400000U : std::uint32_t{scale} << 23);
}
template <unsigned Bits = 0>
STASH_DEVICE float scaled_value_of(std::uint32_t code, std::uint8_t scale, const value_conversion& c) {
  const float scaled = value_of<Bits>(code, c, true, scale_factor(scale));
  return scale == encoders::mx_nan_scale ? as_float(0x7fc00000U) : scaled;
}

/// The planes of a cast. `bytes` is the size of the elements' plane, a multiple of 16; scales only where the
/// format has them, padded to `scale_bytes`.
struct device_cast {
  std::uint8_t* scales;
  std::uint8_t* codes;
  std::uint64_t scale_bytes, bytes;
  value_conversion conversion;
};

/// Eight consecutive codes, each in the low bits, and as they lie in memory; of 10 bits three to a word, the
/// first one in the lowest bits of the first, and above 30 bits of a word may be anything.
struct code_group {
  std::uint32_t code[group_elements];
  std::uint32_t words[4];
  std::uint8_t scale;
};

/// Completes a group that has its words.
template <unsigned Bits>
STASH_DEVICE void take_codes(code_group& g) {
  if constexpr (Bits == 10) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.code[i] = g.words[i / 3] >> (10 * (i % 3)) & 0x3ff;
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      const unsigned bit = Bits * i;
      std::uint32_t code = g.words[bit / 32] >> (bit % 32);
      if (bit % 32 + Bits > 32) code |= g.words[bit / 32 + 1] << (32 - bit % 32);
      g.code[i] = code & ((1U << Bits) - 1);
    }
  }
}

/// The words of group `index`, which take_codes() splits where they are looked at: codes of other groups
/// are not held meanwhile. Reads nothing after the plane; codes after it are zero. `Whole`: it is known that
/// all eight are there.
template <unsigned Bits, bool Scaled, bool Whole = false>
STASH_DEVICE code_group load_codes(const device_cast& from, std::uint64_t index) {
  code_group g{};
  if constexpr (Bits == 10) {
    const std::uint64_t first = index * group_elements;
    const std::uint64_t word = first / 3;
    const auto skipped = static_cast<unsigned>(first - word * 3);
    std::uint32_t words[4];
    STASH_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      words[i] =
          (word + i) * 4 < from.bytes ? reinterpret_cast<const std::uint32_t*>(from.codes)[word + i] : 0;
    }
    // Words of 30 bits become one row, from which those of the group are taken.
    STASH_UNROLL
    for (unsigned i = 0; i < 3; ++i)
      g.words[i] = funnel_right(words[i] << 2, words[i + 1], 2 + 10 * skipped);
  } else {
    std::uint32_t words[4] = {};
    const std::uint8_t* at = from.codes + index * Bits;  // eight codes are as many bytes as a code has bits
    const bool inside = Whole || index * Bits < from.bytes;
    if constexpr (Bits == 16) {
      if (inside) {
        const vector16 v = load_once(reinterpret_cast<const vector16*>(at));
        STASH_UNROLL
        for (unsigned i = 0; i < 4; ++i)
          words[i] = v.word[i];
      }
    } else if constexpr (Bits == 8) {
      if (inside) {
        const std::uint64_t v = *reinterpret_cast<const std::uint64_t*>(at);
        words[0] = static_cast<std::uint32_t>(v);
        words[1] = static_cast<std::uint32_t>(v >> 32);
      }
    } else if constexpr (Bits == 4) {
      if (inside) words[0] = *reinterpret_cast<const std::uint32_t*>(at);
    } else if constexpr (Bits == 6 && Whole) {
      // Every other group begins in the middle of a word.
      const unsigned skipped = index % 2 * 2;
      const auto* const pair = reinterpret_cast<const std::uint32_t*>(at - skipped);
      const std::uint32_t low = pair[0], high = pair[1];
      words[0] = funnel_right(low, high, 8 * skipped);
      words[1] = high >> 8 * skipped;
    } else {
      STASH_UNROLL
      for (unsigned i = 0; i < Bits / 2; ++i) {
        if (index * Bits + 2 * i < from.bytes) {
          words[i / 2] |= std::uint32_t{reinterpret_cast<const std::uint16_t*>(at)[i]} << (16 * (i % 2));
        }
      }
    }
    STASH_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      g.words[i] = words[i];
    if constexpr (Scaled)
      g.scale = Whole || index / 4 < from.scale_bytes ? from.scales[index / 4] : std::uint8_t{0};
  }
  return g;
}

template <unsigned Bits, bool Scaled>
STASH_DEVICE float value_at(const code_group& g, unsigned i, const value_conversion& c) {
  if constexpr (Scaled) return scaled_value_of<Bits>(g.code[i], g.scale, c);
  return value_of<Bits>(g.code[i], c);
}

/// Eight codes, in words.
template <unsigned Bits>
STASH_DEVICE void pack_codes(code_group& g) {
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i)
    g.words[i] = 0;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    const unsigned bit = Bits * i;
    g.words[bit / 32] |= g.code[i] << (bit % 32);
    if (bit % 32 + Bits > 32) g.words[bit / 32 + 1] |= g.code[i] >> (32 - bit % 32);
  }
}

/// Stores the words of a group, but for Bits = 10. Of the four lanes that share a scale the first stores it.
/// `Whole`: it is known that all eight are there.
template <unsigned Bits, bool Scaled, bool Whole = false>
STASH_DEVICE void store_codes(const device_cast& to, std::uint64_t index, const code_group& g) {
  static_assert(Bits != 10);
  const auto& words = g.words;
  std::uint8_t* at = to.codes + index * Bits;
  const bool inside = Whole || index * Bits < to.bytes;
  if constexpr (Bits == 16) {
    if (inside) store_once(reinterpret_cast<vector16*>(at), {{words[0], words[1], words[2], words[3]}});
  } else if constexpr (Bits == 8) {
    if (inside) *reinterpret_cast<std::uint64_t*>(at) = words[0] | std::uint64_t{words[1]} << 32;
  } else if constexpr (Bits == 4) {
    if (inside) *reinterpret_cast<std::uint32_t*>(at) = words[0];
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < Bits / 2; ++i) {
      if (Whole || index * Bits + 2 * i < to.bytes) {
        reinterpret_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
      }
    }
  }
  if constexpr (Scaled) {
    if (index % 4 == 0 && (Whole || index / 4 < to.scale_bytes)) to.scales[index / 4] = g.scale;
  }
}

// 8-bit formats, four codes to a word, by the instructions that there are for them.

/// Completes four codes that the instructions gave: what they forget of NaN; a sign bit in `kept` for each
/// value that must not become zero; the sign bits of `signs`.
template <bool E5m2>
STASH_DEVICE std::uint32_t completed_fp8(std::uint32_t codes, std::uint32_t kept, std::uint32_t signs) {
  constexpr std::uint32_t sign_bits = 0x80808080U, others = 0x7f7f7f7fU;
  const std::uint32_t magnitudes = codes & others;
  codes |= (kept & ~(magnitudes + others)) >> 7;
  if constexpr (E5m2) {
    // There is no infinity among them, so what lies above the numbers is NaN.
    codes = select_bits(sign_masks_of_bytes(magnitudes + 0x04040404U), 0x7e7e7e7eU, codes);
  }
  return select_bits(sign_bits, signs, codes);
}

/// The highest bit of a byte for each of four values that is not zero.
STASH_DEVICE std::uint32_t nonzero_bytes(const float* values) {
  std::uint32_t bytes = 0;
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i)
    bytes |= (as_bits(values[i]) & 0x7fffffffU) != 0 ? 0x80U << (8 * i) : 0;
  return bytes;
}

/// Calls convert(e5m2, keep_nonzero), whose arguments are constants: asked once for all words.
template <class Convert>
STASH_DEVICE void for_rules(const value_conversion& c, const Convert& convert) {
  constexpr std::true_type yes;
  constexpr std::false_type no;
  if (c.keep != 0) {
    c.e5m2 ? convert(yes, yes) : convert(no, yes);
  } else {
    c.e5m2 ? convert(yes, no) : convert(no, no);
  }
}

/// Calls convert(bf16, e5m2), whose arguments are constants: asked once for all words.
template <class Convert>
STASH_DEVICE void for_kinds(const element_type& type, const value_conversion& c, const Convert& convert) {
  constexpr std::true_type yes;
  constexpr std::false_type no;
  if (type.bf16) {
    c.e5m2 ? convert(yes, yes) : convert(yes, no);
  } else {
    c.e5m2 ? convert(no, yes) : convert(no, no);
  }
}

/// Words of the codes of 16-bit elements, from two words of elements each, to `words`.
template <unsigned Words>
STASH_DEVICE void fp8_words_of(const std::uint32_t (&pairs)[2 * Words], const element_type& type,
                               const value_conversion& c, std::uint32_t* words) {
  const auto convert = [&](auto bf16, auto e5m2) {
    const std::uint32_t keep = c.keep * 0x80808080U;
    STASH_UNROLL
    for (unsigned w = 0; w < Words; ++w) {
      const std::uint32_t one = pairs[2 * w], two = pairs[2 * w + 1];
      std::uint32_t codes;
      if constexpr (bf16) {
        codes = floats_to_fp8(as_float(one << 16), as_float(one & 0xffff0000U), e5m2) |
                floats_to_fp8(as_float(two << 16), as_float(two & 0xffff0000U), e5m2) << 16;
      } else {
        codes = halves_to_fp8(one, e5m2) | halves_to_fp8(two, e5m2) << 16;
      }
      const std::uint32_t kept = pick_bytes(nonzero_masks(one), nonzero_masks(two), 0x7531) & keep;
      words[w] = completed_fp8<e5m2>(codes, kept, pick_bytes(one, two, 0x7531));
    }
  };
  for_kinds(type, c, convert);
}

/// The codes of eight 16-bit elements, two words.
STASH_DEVICE void fp8_codes_of(const group<std::uint16_t>& g, const element_type& type,
                               const value_conversion& c, std::uint32_t* words) {
  std::uint32_t pairs[group_elements / 2];
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements / 2; ++i)
    pairs[i] = g.value[2 * i] | std::uint32_t{g.value[2 * i + 1]} << 16;
  fp8_words_of<2>(pairs, type, c, words);
}

/// The codes of eight values: the sign of each, and with keep_nonzero that it must not become zero, come from
/// sign bits of bytes, signs(w) and kept(w) of four values, because what is given may be rounded already.
template <class Signs, class Kept>
STASH_DEVICE void fp8_codes_of(const float (&values)[group_elements], const value_conversion& c,
                               const Signs& signs, const Kept& kept, std::uint32_t* words) {
  const auto convert = [&](auto e5m2, auto keep_nonzero) {
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      const float* v = values + 4 * w;
      const std::uint32_t codes = floats_to_fp8(v[0], v[1], e5m2) | floats_to_fp8(v[2], v[3], e5m2) << 16;
      words[w] = completed_fp8<e5m2>(codes, keep_nonzero ? kept(w) : 0, signs(w));
    }
  };
  for_rules(c, convert);
}
/// The same, standing for eight f32.
STASH_DEVICE void fp8_codes_of(const float (&values)[group_elements],
                               const float (&originals)[group_elements], const value_conversion& c,
                               std::uint32_t* words) {
  const auto signs = [&](unsigned w) {
    const float* o = originals + 4 * w;
    return pick_bytes(pick_bytes(as_bits(o[0]), as_bits(o[1]), 0x0073),
                      pick_bytes(as_bits(o[2]), as_bits(o[3]), 0x0073), 0x5410);
  };
  fp8_codes_of(
      values, c, signs, [&](unsigned w) { return nonzero_bytes(originals + 4 * w); }, words);
}
/// The same, standing for eight 16-bit elements.
STASH_DEVICE void fp8_codes_of(const float (&values)[group_elements],
                               const packed_group<std::uint16_t>& originals, const value_conversion& c,
                               std::uint32_t* words) {
  const auto of_upper_bytes = [](std::uint32_t one, std::uint32_t two) {
    return pick_bytes(one, two, 0x7531);
  };
  const auto* const o = originals.word;
  fp8_codes_of(
      values, c, [&](unsigned w) { return of_upper_bytes(o[2 * w], o[2 * w + 1]); },
      [&](unsigned w) {
        return of_upper_bytes(nonzero_masks(o[2 * w]), nonzero_masks(o[2 * w + 1])) & 0x80808080U;
      },
      words);
}

/// The codes of eight f32.
STASH_DEVICE void fp8_codes_of(const group<std::uint32_t>& g, const element_type& type,
                               const value_conversion& c, std::uint32_t* words) {
  float values[group_elements];
  to_f32s(g, type, values);
  fp8_codes_of(values, values, c, words);
}

// 16-bit formats, two codes to a word.

/// Two numbers of one 16-bit type as those of a type, the same or the other. `keep`: 1 if what is not zero
/// does not become zero. Infinity remains, NaN becomes the one that rounding writes.
template <bool FromBf16, bool ToBf16>
STASH_DEVICE std::uint32_t half_pair_of(std::uint32_t pair, std::uint32_t keep) {
  constexpr std::uint32_t infinity = FromBf16 ? 0x7f80 : 0x7c00, nan = ToBf16 ? 0x7fc0 : 0x7e00;
  std::uint32_t numbers = pair;
  if constexpr (!FromBf16 && ToBf16) {
    float values[2];
    halves_to_floats(pair, values);
    numbers = floats_to_bfloats(values[0], values[1]);
  } else if constexpr (FromBf16 && !ToBf16) {
    // No number may round to infinity.
    constexpr float largest = 65504.0F;
    numbers = floats_to_halves(clamped(as_float(pair << 16), largest),
                               clamped(as_float(pair & 0xffff0000U), largest));
    numbers = larger_halves(numbers & pair_magnitudes, nonzero_masks(pair) & both(keep));
    numbers = select_bits(sign_masks(flags_above(pair, infinity - 1)), both(0x7c00), numbers);
  }
  numbers = select_bits(sign_masks(flags_above(pair, infinity)), both(nan), numbers);
  return select_bits(pair_signs, pair, numbers);
}
/// The same of eight.
STASH_DEVICE void half_words_of(const std::uint32_t (&pairs)[4], bool from_bf16, bool to_bf16,
                                std::uint32_t keep, std::uint32_t (&words)[4]) {
  const auto convert = [&](auto from, auto to) {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      words[w] = half_pair_of<from, to>(pairs[w], keep);
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  if (from_bf16 != to_bf16) return from_bf16 ? convert(yes, no) : convert(no, yes);
  // Only NaN changes.
  std::uint32_t any = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    words[w] = pairs[w];
    any |= flags_above(pairs[w], from_bf16 ? 0x7f80 : 0x7c00);
  }
  if ((any & pair_signs) != 0) from_bf16 ? convert(yes, yes) : convert(no, no);
}

/// The codes of eight elements.
STASH_DEVICE void half_codes_of(const packed_group<std::uint16_t>& g, const element_type& type,
                                const value_conversion& c, std::uint32_t (&words)[4]) {
  half_words_of(g.word, type.bf16, c.bf16, c.keep, words);
}
STASH_DEVICE void half_codes_of(const packed_group<std::uint32_t>& g, const element_type&,
                                const value_conversion& c, std::uint32_t (&words)[4]) {
  bool numbers = true;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i)
    numbers = numbers && as_float(g.word[i] & 0x7fffffffU) <= as_float(c.largest_value);
  const auto convert = [&](const auto& code_pair) {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      words[w] = code_pair(as_float(g.word[2 * w]), as_float(g.word[2 * w + 1]));
  };
  if (!numbers || c.keep != 0) {
    convert([&](float one, float two) { return code_of<16>(one, c) | code_of<16>(two, c) << 16; });
  } else if (c.bf16) {
    convert([](float one, float two) { return floats_to_bfloats(one, two); });
  } else {
    convert([](float one, float two) { return floats_to_halves(one, two); });
  }
}

/// fp10 of two f16: f16 without its last six bits, rounded. In the positions of those bits may be anything.
STASH_DEVICE std::uint32_t fp10_of_halves(std::uint32_t pair, const value_conversion& c) {
  const std::uint32_t magnitudes = pair & pair_magnitudes;
  const std::uint32_t rounded = magnitudes + both(0x1f) + (magnitudes >> 6 & both(1));
  // No number may round to infinity.
  std::uint32_t codes = smaller_halves(rounded, larger_halves(magnitudes, both(0x7bff)));
  codes = larger_halves(codes, nonzero_masks(pair) & c.keep * both(0x40));
  codes = select_bits(sign_masks(magnitudes + both(0x3ff)), both(0x7e00), codes);
  return select_bits(pair_signs, pair, codes);
}
/// fp10 of two bf16, likewise.
STASH_DEVICE std::uint32_t fp10_of_bfloats(std::uint32_t pair, const value_conversion& c) {
  const std::uint32_t magnitudes = pair & pair_magnitudes;
  // No number may round to infinity.
  const std::uint32_t finite = smaller_halves(magnitudes, both(0x4778));
  // Above the smallest normal number of fp10 three of seven bits are rounded off. Below it, steps of fp10 are
  // those of bf16 in front of 2^-11. At it both ways give the same: one of them always does.
  constexpr std::uint32_t smallest_normal = both(0x3880), anchor = both(0x3a00);
  const std::uint32_t normal = larger_halves(finite, smallest_normal);
  const std::uint32_t rounded = normal + both(3) + (normal >> 3 & both(1));
  const std::uint32_t steps = add_bfloats(smaller_halves(finite, smallest_normal), anchor);
  std::uint32_t codes = (rounded << 3) + (steps << 6) - ((both(0x3800) << 3) + (anchor << 6) + both(0x400));
  codes = larger_halves(codes, nonzero_masks(pair) & c.keep * both(0x40));
  const std::uint32_t infinite = sign_masks(magnitudes + both(0x80)),
                      nan = sign_masks(magnitudes + both(0x7f));
  codes = select_bits(infinite, both(0x7c00) | (nan & both(0x200)), codes);
  return select_bits(pair_signs, pair, codes);
}
/// Six codes of fp10, as these leave them, in two words of three.
STASH_DEVICE void pack_fp10(const std::uint32_t* pairs, std::uint32_t* words) {
  constexpr std::uint32_t first = 0x3ff, second = first << 10, third = second << 10;
  words[0] = select_bits(first, pairs[0] >> 6, select_bits(second, pairs[0] >> 12, pairs[1] << 14 & third));
  words[1] = select_bits(first, pairs[1] >> 22, select_bits(second, pairs[2] << 4, pairs[2] >> 2 & third));
}

}  // namespace stash::kernels
