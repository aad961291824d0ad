#pragma once
/// \file
/// Narrow values on a device: from f32 to codes and back (docs/format.md, "Narrow values"), and groups of
/// eight consecutive codes in memory.
///
/// Formats of one size are served by one kernel: what sets them apart is a handful of constants, which cost
/// the same from a kernel's parameters as from its instructions. Like the CPU's conversions (encoders/
/// convert.hpp) they have no branches and no step that a "denormals are zero" mode could change.

#include <cstdint>

#include "common/elements.hpp"
#include "encoders/mx.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

/// The constants of a format; names as in encoders/convert.hpp.
struct value_conversion {
  int shift;                  ///< f32 mantissa bits that are rounded away
  std::uint32_t code_rebias;  ///< difference of the biases, in codes
  std::uint32_t subnormals;   ///< f32 bits of the smallest normal number, 0 if f32 has the same exponents
  std::uint32_t anchor;       ///< f32 bits of the power of two that rounds subnormals
  std::uint32_t largest, infinity, nan;  ///< codes without sign that are written
  std::uint32_t last_number;             ///< codes above are infinity (the next one, if `ieee`) or NaN
  int sign_place;
  bool ieee;
  bool keep_nonzero;
  int emax;  ///< MX elements: exponent of the largest number
};

/// The constants of a format of encoders/convert.hpp.
template <class Format>
constexpr value_conversion conversion_of(bool keep_nonzero, int emax = 0) {
  value_conversion c{};
  c.shift = 23 - Format::mantissa_bits;
  c.code_rebias = static_cast<std::uint32_t>((127 - Format::bias) << Format::mantissa_bits);
  c.subnormals = Format::bias == 127 ? 0 : static_cast<std::uint32_t>(127 - Format::bias + 1) << 23;
  c.anchor = Format::bias == 127 ? 0 : static_cast<std::uint32_t>(detail::subnormal_anchor<Format>);
  c.largest = static_cast<std::uint32_t>(Format::largest_finite);
  c.infinity = static_cast<std::uint32_t>(Format::written_infinity);
  c.nan = static_cast<std::uint32_t>(Format::nan);
  // Without NaN every code is a number.
  c.last_number = Format::nan == 0 ? 0xffffffffU : c.largest;
  c.sign_place = Format::bits - 1;
  c.ieee = Format::ieee;
  c.keep_nonzero = keep_nonzero;
  c.emax = emax;
  return c;
}

/// The code of a value, sign included.
STASH_DEVICE std::uint32_t code_of(float value, const value_conversion& c) {
  const std::uint32_t bits = as_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t rounding = (1U << (c.shift - 1)) - 1 + (bits >> c.shift & 1);
  // Below the normal numbers this is negative, and not used.
  const std::uint32_t normal = ((magnitude + rounding) >> c.shift) - c.code_rebias;
  const std::uint32_t subnormal = as_bits(as_float(magnitude) + as_float(c.anchor)) - c.anchor;
  std::uint32_t code = normal > c.largest ? c.largest : normal;
  code = magnitude < c.subnormals ? subnormal : code;
  code |= c.keep_nonzero && code == 0 && magnitude != 0 ? 1U : 0U;
  code = magnitude == 0x7f800000U ? c.infinity : code;
  code = magnitude > 0x7f800000U ? c.nan : code;
  return code | bits >> 31 << c.sign_place;
}

/// The exact value of a code.
STASH_DEVICE float value_of(std::uint32_t code, const value_conversion& c) {
  const std::uint32_t magnitude = code & ((1U << c.sign_place) - 1);
  const std::uint32_t moved = magnitude << c.shift;
  const float steps = as_float(magnitude + c.anchor) - as_float(c.anchor);
  std::uint32_t bits = moved + (c.code_rebias << c.shift);
  bits = c.subnormals != 0 && moved < 0x800000U ? as_bits(steps) : bits;
  bits = magnitude > c.last_number ? (c.ieee ? moved | 0x7f800000U : 0x7fc00000U) : bits;
  return as_float(bits | code >> c.sign_place << 31);
}

/// x > 0, for `nan_passes` also NaN.
STASH_DEVICE bool code_passes(std::uint32_t code, const value_conversion& c, bool nan_passes) {
  return passes(as_bits(value_of(code, c)), element_type{}, nan_passes);
}

/// Values that share a scale in the MX formats.
inline constexpr unsigned scaled_group = 32;

/// What the scale of a group depends on: the largest finite magnitude of the values, as bits, and whether
/// there is a NaN.
struct group_extremes {
  std::uint32_t largest = 0;
  std::uint32_t nan = 0;

  STASH_DEVICE void see(float value) {
    const std::uint32_t magnitude = as_bits(value) & 0x7fffffffU;
    if (magnitude < 0x7f800000U && magnitude > largest) largest = magnitude;
    if (magnitude > 0x7f800000U) nan = 1;
  }
};

/// Extremes over `lanes` neighbouring lanes (a power of two); all lanes of the warp must come.
STASH_DEVICE group_extremes merge(group_extremes e, unsigned lanes) {
  for (unsigned bit = 1; bit < lanes; bit *= 2) {
    const std::uint32_t largest = shuffle_xor(all_lanes, e.largest, bit);
    e.largest = largest > e.largest ? largest : e.largest;
    e.nan |= shuffle_xor(all_lanes, e.nan, bit);
  }
  return e;
}

/// A group's scale: the byte, and the exponent that its elements are divided by.
struct group_scale {
  std::uint8_t byte;
  int exponent;
};
STASH_DEVICE group_scale scale_of(const group_extremes& e, const value_conversion& c) {
  int exponent = detail::mx_smallest_exponent;
  if (e.largest != 0) {
    const int top = e.largest >= 0x800000U ? static_cast<int>(e.largest >> 23) - 127
                                           : 31 - leading_zeros(e.largest) - 149;
    exponent = top - c.emax > exponent ? top - c.emax : exponent;
  }
  // Elements without a NaN of their own take it from the scale.
  const bool nan = c.nan == 0 && e.nan != 0;
  return {nan ? detail::mx_nan_scale : static_cast<std::uint8_t>(exponent + 127), exponent};
}

STASH_DEVICE std::uint32_t scaled_code_of(float value, const group_scale& scale, const value_conversion& c) {
  const std::uint32_t code = code_of(detail::scaled_down(value, scale.exponent), c);
  return scale.byte == detail::mx_nan_scale ? 0 : code;
}
STASH_DEVICE float scaled_value_of(std::uint32_t code, std::uint8_t scale, const value_conversion& c) {
  const float scaled = detail::scaled_up(value_of(code, c), static_cast<int>(scale) - 127);
  return scale == detail::mx_nan_scale ? as_float(0x7fc00000U) : scaled;
}

/// The planes of a cast. `bytes` is the size of the elements' plane, a multiple of 16; scales only where the
/// format has them, padded to `scale_bytes`.
struct device_cast {
  std::uint8_t* scales;
  std::uint8_t* codes;
  std::uint64_t scale_bytes, bytes;
  value_conversion conversion;
};

/// Eight consecutive codes, each in the low bits.
struct code_group {
  std::uint32_t code[group_elements];
  std::uint8_t scale;
};

/// The codes of group `index`. Reads nothing behind the plane; codes behind it are zero. Bits = 10: three to
/// a word.
template <unsigned Bits, bool Scaled>
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
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      const unsigned at = skipped + i;
      const unsigned which = at / 3;
      const std::uint32_t w = which == 0   ? words[0]
                              : which == 1 ? words[1]
                              : which == 2 ? words[2]
                                           : words[3];
      g.code[i] = w >> (10 * (at - which * 3)) & 0x3ff;
    }
  } else {
    std::uint32_t words[4] = {};
    const std::uint8_t* at = from.codes + index * Bits;  // eight codes are as many bytes as a code has bits
    const bool inside = index * Bits < from.bytes;
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
    } else {
      STASH_UNROLL
      for (unsigned i = 0; i < 3; ++i) {
        if (index * Bits + 2 * i < from.bytes) {
          words[i / 2] |= std::uint32_t{reinterpret_cast<const std::uint16_t*>(at)[i]} << (16 * (i % 2));
        }
      }
    }
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      const unsigned bit = Bits * i;
      std::uint32_t code = words[bit / 32] >> (bit % 32);
      if (bit % 32 + Bits > 32) code |= words[bit / 32 + 1] << (32 - bit % 32);
      g.code[i] = code & ((1U << Bits) - 1);
    }
    if constexpr (Scaled) g.scale = index / 4 < from.scale_bytes ? from.scales[index / 4] : std::uint8_t{0};
  }
  return g;
}

template <bool Scaled>
STASH_DEVICE float value_at(const code_group& g, unsigned i, const value_conversion& c) {
  if constexpr (Scaled) return scaled_value_of(g.code[i], g.scale, c);
  return value_of(g.code[i], c);
}

/// Inverse of load_codes(), but for Bits = 10. Of the four lanes that share a scale the first stores it.
template <unsigned Bits, bool Scaled>
STASH_DEVICE void store_codes(const device_cast& to, std::uint64_t index, const code_group& g) {
  static_assert(Bits != 10);
  std::uint32_t words[4] = {};
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    const unsigned bit = Bits * i;
    words[bit / 32] |= g.code[i] << (bit % 32);
    if (bit % 32 + Bits > 32) words[bit / 32 + 1] |= g.code[i] >> (32 - bit % 32);
  }
  std::uint8_t* at = to.codes + index * Bits;
  const bool inside = index * Bits < to.bytes;
  if constexpr (Bits == 16) {
    if (inside) store_once(reinterpret_cast<vector16*>(at), {{words[0], words[1], words[2], words[3]}});
  } else if constexpr (Bits == 8) {
    if (inside) *reinterpret_cast<std::uint64_t*>(at) = words[0] | std::uint64_t{words[1]} << 32;
  } else if constexpr (Bits == 4) {
    if (inside) *reinterpret_cast<std::uint32_t*>(at) = words[0];
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < 3; ++i) {
      if (index * Bits + 2 * i < to.bytes) {
        reinterpret_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
      }
    }
  }
  if constexpr (Scaled) {
    if (index % 4 == 0 && index / 4 < to.scale_bytes) to.scales[index / 4] = g.scale;
  }
}

}  // namespace stash::kernels
