// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// ReLU, leaky ReLU and clipping on a device: forward with a mask, backward from one bit per element.

#include <cstdint>

#include "elementwise/masks.hpp"

namespace stash::kernels {

// Of 16-bit elements, functions take a group of pairs.
using element_pairs = packed_group<std::uint16_t>;

/// x > 0 or NaN ? x : +0.
struct rectify {
  element_type type;

  STASH_DEVICE std::uint32_t operator()(std::uint32_t x) const { return passes(x, type, true) ? x : 0; }
  STASH_DEVICE element_pairs pairs(element_pairs x) const {
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<std::uint16_t>; ++w)
      x.word[w] &= sign_masks(positive_flags(x.word[w]) | nan_flags(x.word[w], type));
    return x;
  }
};

/// The bits of slope * x; a NaN keeps its own. They are chosen as integers: of floats, LLVM makes
/// x * (x == x ? slope : 1), and a multiplication changes NaNs.
STASH_DEVICE std::uint32_t scaled(std::uint32_t x, float slope) {
  const float value = as_float(x);
  const std::uint32_t product = as_bits(slope * value);
  return value == value ? product : x;
}

/// x > 0 ? x : slope * x.
struct leak {
  element_type type;
  float slope;

  STASH_DEVICE std::uint32_t operator()(std::uint32_t x) const {
    return passes(x, type, false) ? x : scaled(x, slope);
  }
  STASH_DEVICE element_pairs pairs(const element_pairs& x) const {
    element_pairs positive;
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<std::uint16_t>; ++w)
      positive.word[w] = sign_masks(positive_flags(x.word[w]));
    return leaked(x, positive, slope, type);
  }
};

/// Below lower: lower; above upper: upper; else x.
struct clip {
  element_type type;
  float lower, upper;
  std::uint32_t lower_bits, upper_bits;  ///< of 16 bits, in both halves
  pair_bound below, above;

  STASH_DEVICE std::uint32_t operator()(std::uint32_t x) const {
    const float value = as_float(x);
    return value < lower ? as_bits(lower) : value > upper ? as_bits(upper) : x;
  }
  STASH_DEVICE element_pairs pairs(element_pairs x) const {
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<std::uint16_t>; ++w) {
      const std::uint32_t pair = x.word[w];
      std::uint32_t result = select_bits(sign_masks(below.flags(pair)), lower_bits, pair);
      result = select_bits(sign_masks(above.flags(pair)), upper_bits, result);
      // What is rounded is a NaN that rounding writes.
      const std::uint32_t nan = (pair & pair_signs) | both(type.nan);
      x.word[w] = select_bits(sign_masks(nan_flags(pair, type)), nan, result);
    }
    return x;
  }
};
/// The bounds are numbers of the type.
inline clip clip_of(dtype dtype, float lower, float upper) {
  const std::uint32_t lower_bits = bits_in(dtype, lower), upper_bits = bits_in(dtype, upper);
  return {element_type_of(dtype),
          lower,
          upper,
          both(lower_bits),
          both(upper_bits),
          pair_bound_of(lower_bits, false),
          pair_bound_of(upper_bits, true)};
}

/// y = f(x), and the mask of x under a predicate unless plane.data is null.
template <class Bits, class Function, class Predicate>
struct activation_body {
  using loaded = group<Bits>;
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor x, y;
  device_plane plane;
  Function function;
  Predicate predicate;

  STASH_DEVICE bool vectors() const { return x.vectors && y.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return x.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_halves<Bits, half_warps>(x, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Bits>(x, index); }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Bits>(x, first, count);
  }
  STASH_DEVICE loaded apply(const loaded& in) const {
    if constexpr (sizeof(Bits) == 2) {
      return unpacked(function.pairs(packed(in)));
    } else {
      loaded out;
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        out.value[i] = function(in.value[i]);
      return out;
    }
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    store_halves<half_warps>(y, index, apply(in));
    if (plane.data != nullptr)
      plane.data[index] = shared_bits<half_warps, Bits>(index, mask_byte(in, group_elements, predicate));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& g) const {
    store_elements(y, index, apply(g));
    if (plane.data != nullptr && index < plane.bytes) {
      plane.data[index] = mask_byte(g, group_length(x.elements, index), predicate);
    }
  }
  STASH_DEVICE void finish(bool first) const {
    if (first && plane.data != nullptr) plane.count();
  }
};

/// dy where a bit is set, else slope * dy, or +0 if not `leaky`.
struct gate {
  element_type type;
  bool leaky;
  float slope;

  template <class Bits>
  STASH_DEVICE packed_group<Bits> operator()(packed_group<Bits> dy, std::uint32_t bits) const {
    if constexpr (sizeof(Bits) == 2) {
      const element_pairs masks = masks_of_bits<Bits>(bits);
      // What passes is rounded too: a NaN becomes the one that rounding writes.
      if (leaky) return leaked(dy, masks, slope, type);
      STASH_UNROLL
      for (unsigned w = 0; w < group_words<Bits>; ++w)
        dy.word[w] &= masks.word[w];
    } else {
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i) {
        const bool pass = (bits >> i & 1) != 0;
        if (leaky) {
          dy.word[i] = pass ? dy.word[i] : scaled(dy.word[i], slope);
        } else {
          dy.word[i] = pass ? dy.word[i] : 0;
        }
      }
    }
    return dy;
  }
};

/// Pass bits that lie in a plane.
struct plane_bits {
  static constexpr bool of_halves = false;  ///< a whole group's bits are those of its own group
  const std::uint8_t* plane;
  using loaded = std::uint8_t;
  STASH_DEVICE bool vectors() const { return true; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return plane[index]; }
  STASH_DEVICE loaded load_any(std::uint64_t index, std::uint64_t elements) const {
    return group_length(elements, index) == 0 ? loaded{0} : plane[index];
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count, std::uint64_t elements) const {
    fetch_plane(plane, elements, first, count);
  }
  STASH_DEVICE std::uint8_t bits(const loaded& byte) const { return byte; }
};

/// Pass bits found again from a dense map.
template <class Bits, class Predicate>
struct dense_bits {
  static constexpr bool of_halves = true;  ///< a whole group's bits are those of its shared halves
  device_tensor map;
  Predicate predicate;
  using loaded = group<Bits>;
  STASH_DEVICE bool vectors() const { return map.vectors; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_halves<Bits, half_warps>(map, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index, std::uint64_t) const {
    return load_elements<Bits>(map, index);
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count, std::uint64_t) const {
    fetch_groups<Bits>(map, first, count);
  }
  STASH_DEVICE std::uint8_t bits(const loaded& g) const { return mask_byte(g, group_elements, predicate); }
};

/// dx = gate(dy, bit).
template <class Bits, class Source>
struct gradient_body {
  struct loaded {
    group<Bits> dy;
    typename Source::loaded bits;
  };
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor dy, dx;
  gate function;
  Source source;

  STASH_DEVICE bool vectors() const { return dy.vectors && dx.vectors && source.vectors(); }
  STASH_DEVICE std::uint64_t whole_groups() const { return dy.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return {load_halves<Bits, half_warps>(dy, index), source.load_whole(index)};
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    return {load_elements<Bits>(dy, index), source.load_any(index, dy.elements)};
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Bits>(dy, first, count);
    source.fetch(first, count, dy.elements);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    const std::uint8_t bits = source.bits(in.bits);
    const std::uint8_t own = Source::of_halves ? bits : shared_bits<half_warps, Bits>(index, bits);
    store_halves<half_warps>(dx, index, unpacked(function(packed(in.dy), own)));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    store_elements(dx, index, unpacked(function(packed(in.dy), source.bits(in.bits))));
  }
  STASH_DEVICE void finish(bool) const {}
};

template <class Source>
inline constexpr unsigned group_blocks<gradient_body<std::uint16_t, Source>, 1> =
    tuning::narrow_gradient_blocks;
template <class Source>
inline constexpr unsigned group_blocks<gradient_body<std::uint32_t, Source>, 1> = tuning::gradient_blocks;

}  // namespace stash::kernels
