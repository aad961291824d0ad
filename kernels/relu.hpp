#pragma once
/// \file
/// ReLU, leaky ReLU and clipping on a device: forward with a mask, backward from one bit per element.

#include <cstdint>

#include "masks.hpp"

namespace stash::kernels {

/// x > 0 or NaN ? x : +0.
struct rectify {
  element_type type;

  template <class Bits>
  STASH_DEVICE Bits operator()(Bits x) const {
    return passes(x, type, true) ? x : Bits{0};
  }
};

/// slope * x; a NaN keeps its bits.
STASH_DEVICE float scaled(float x, float slope) {
  return x == x ? slope * x : x;
}

/// x > 0 ? x : slope * x.
struct leak {
  element_type type;
  float slope;

  template <class Bits>
  STASH_DEVICE Bits operator()(Bits x) const {
    return passes(x, type, false) ? x : result_from_f32<Bits>(scaled(to_f32(x, type), slope), type);
  }
};

/// Below lower: lower; above upper: upper; else x.
struct clip {
  element_type type;
  float lower, upper;
  std::uint32_t lower_bits, upper_bits;  ///< rounded to the element type

  template <class Bits>
  STASH_DEVICE Bits operator()(Bits x) const {
    const float value = to_f32(x, type);
    std::uint32_t bits = value < lower ? lower_bits : value > upper ? upper_bits : std::uint32_t{x};
    if constexpr (sizeof(Bits) == 2) {
      // What is rounded is a NaN that rounding writes.
      bits = value != value ? (bits & 0x8000U) | type.nan : bits;
    }
    return static_cast<Bits>(bits);
  }
};

/// y = f(x), and the mask of x under a predicate unless plane.data is null.
template <class Bits, class Function, class Predicate>
struct activation_body {
  using loaded = group<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor x, y;
  device_plane plane;
  Function function;
  Predicate predicate;

  STASH_DEVICE bool vectors() const { return x.vectors && y.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return x.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return load_halves<Bits>(x, index); }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Bits>(x, index); }
  STASH_DEVICE loaded apply(const loaded& in) const {
    loaded out;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      out.value[i] = function(in.value[i]);
    return out;
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& halves) const {
    store_halves(y, index, apply(halves));
    if (plane.data != nullptr)
      plane.data[index] = shared_bits<Bits>(index, mask_byte(halves, group_elements, predicate));
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
  STASH_DEVICE Bits operator()(Bits dy, bool pass) const {
    if (!leaky) return pass ? dy : Bits{0};
    // What passes is rounded too: a NaN of 16 bits becomes the one that rounding writes.
    const float value = to_f32(dy, type);
    return result_from_f32<Bits>(pass ? value : scaled(value, slope), type);
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
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return load_halves<Bits>(map, index); }
  STASH_DEVICE loaded load_any(std::uint64_t index, std::uint64_t) const {
    return load_elements<Bits>(map, index);
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
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor dy, dx;
  gate function;
  Source source;

  STASH_DEVICE bool vectors() const { return dy.vectors && dx.vectors && source.vectors(); }
  STASH_DEVICE std::uint64_t whole_groups() const { return dy.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return {load_halves<Bits>(dy, index), source.load_whole(index)};
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    return {load_elements<Bits>(dy, index), source.load_any(index, dy.elements)};
  }
  STASH_DEVICE group<Bits> apply(const loaded& in, unsigned bits) const {
    group<Bits> out;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      out.value[i] = function(in.dy.value[i], (bits >> i & 1) != 0);
    return out;
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    const std::uint8_t bits = source.bits(in.bits);
    store_halves(dx, index, apply(in, Source::of_halves ? bits : shared_bits<Bits>(index, bits)));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    store_elements(dx, index, apply(in, source.bits(in.bits)));
  }
  STASH_DEVICE void finish(bool) const {}
};

template <class Source>
inline constexpr unsigned group_blocks<gradient_body<std::uint16_t, Source>, 1> =
    tuning::narrow_gradient_blocks;

}  // namespace stash::kernels
