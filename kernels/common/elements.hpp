// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Tensors as kernels see them: groups of eight consecutive elements, as the bits of their type. A group is
/// one or two 16-byte accesses where the tensor allows it (device_tensor::vectors), else eight small ones.

#include <cstdint>

#include "common/instructions.hpp"
#include "common/simt.hpp"
#include "stash/tensor_view.hpp"

namespace stash::kernels {

inline constexpr unsigned group_elements = 8;

/// What kernels need to know of an element type besides its size, which is a template argument: the same code
/// serves f16 and bf16.
struct element_type {
  std::uint32_t infinity = 0x7f800000;    ///< the largest magnitude that is not NaN
  std::uint32_t magnitudes = 0x7fffffff;  ///< all bits but the sign
  bool bf16 = false;
  std::uint32_t largest = 0;  ///< of 16 bits: the f32 bits of the largest finite number
  std::uint32_t nan = 0;      ///< of 16 bits: the NaN that rounding writes
};

/// The exact f32 of a 16-bit element. A NaN of f16 keeps its sign, but not its payload, which nobody looks
/// at.
template <bool Bf16>
STASH_DEVICE float widened(std::uint16_t bits) {
  const std::uint32_t upper = std::uint32_t{bits} << 16;
  if constexpr (Bf16) return as_float(upper);
  return as_float((as_bits(half_to_float(bits)) & 0x7fffffffU) | (upper & 0x80000000U));
}
template <class Bits>
STASH_DEVICE float to_f32(Bits bits, const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return as_float(bits);
  } else {
    return type.bf16 ? widened<true>(bits) : widened<false>(bits);
  }
}
/// An f32 rounded to a 16-bit type as what was stored: docs/format.md, "Narrow values", to_zero.
template <bool Bf16>
STASH_DEVICE std::uint16_t rounded(float value, const element_type& type) {
  const std::uint32_t word = as_bits(value);
  const std::uint32_t magnitude = word & 0x7fffffffU;
  // No number may round to infinity.
  const float finite = as_float(magnitude < type.largest ? magnitude : type.largest);
  std::uint32_t result = Bf16 ? float_to_bfloat(finite) : float_to_half(finite);
  const std::uint32_t special = magnitude > 0x7f800000U ? type.nan : type.infinity;
  result = magnitude >= 0x7f800000U ? special : result;
  return static_cast<std::uint16_t>(result | (word >> 16 & 0x8000U));
}
/// The same for a result of arithmetic: numbers beyond the largest become infinity (docs/format.md, "Results
/// of arithmetic").
template <bool Bf16>
STASH_DEVICE std::uint16_t rounded_result(float value, const element_type& type) {
  const std::uint32_t word = as_bits(value);
  const std::uint32_t magnitude = word & 0x7fffffffU;
  const float positive = as_float(magnitude);
  std::uint32_t result = Bf16 ? float_to_bfloat(positive) : float_to_half(positive);
  result = magnitude > 0x7f800000U ? type.nan : result;
  return static_cast<std::uint16_t>(result | (word >> 16 & 0x8000U));
}
template <class Bits>
STASH_DEVICE Bits result_from_f32(float value, const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return as_bits(value);
  } else {
    return type.bf16 ? rounded_result<true>(value, type) : rounded_result<false>(value, type);
  }
}

/// x > 0, and where NaN passes also NaN; on the bits, so denormals are themselves.
template <class Bits>
STASH_DEVICE bool passes(Bits bits, const element_type& type, bool nan_passes) {
  const std::uint32_t word = bits;
  return word - 1 < type.infinity || (nan_passes && (word & type.magnitudes) > type.infinity);
}

/// A dense or pitched tensor. Element i lies at (i / inner) * pitch + i % inner.
struct device_tensor {
  void* data;
  std::uint64_t elements, inner, pitch;
  /// Groups are aligned to 16 bytes, or 8 for bytes, and none spans two pixels.
  bool vectors;
};

/// Where element `first` lies.
STASH_DEVICE std::uint64_t offset_of(const device_tensor& t, std::uint64_t first) {
  if (t.inner == t.pitch) return first;
  // Divisions of 64 bits cost several times those of 32.
  if (((first | t.inner) >> 32) == 0) {
    const auto pixel = static_cast<std::uint32_t>(first) / static_cast<std::uint32_t>(t.inner);
    return pixel * t.pitch +
           (static_cast<std::uint32_t>(first) - pixel * static_cast<std::uint32_t>(t.inner));
  }
  return first / t.inner * t.pitch + first % t.inner;
}

/// The same tensor where it is known that its pitch is `inner`: then offsets need no arithmetic.
STASH_DEVICE device_tensor without_pitch(const device_tensor& t) {
  return {t.data, t.elements, 1, 1, t.vectors};
}

/// Sixteen bytes of elements, or eight of bytes.
template <class Bits>
struct group {
  Bits value[group_elements];
};

/// The same for a whole group, which asks for the type once.
template <class Bits>
STASH_DEVICE void to_f32s(const group<Bits>& g, const element_type& type, float (&values)[group_elements]) {
  if constexpr (sizeof(Bits) == 4) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      values[i] = as_float(g.value[i]);
  } else if (type.bf16) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      values[i] = widened<true>(g.value[i]);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      values[i] = widened<false>(g.value[i]);
  }
}
template <class Bits>
STASH_DEVICE group<Bits> from_f32s(const float (&values)[group_elements], const element_type& type) {
  group<Bits> g;
  if constexpr (sizeof(Bits) == 4) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.value[i] = as_bits(values[i]);
  } else if (type.bf16) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.value[i] = rounded<true>(values[i], type);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.value[i] = rounded<false>(values[i], type);
  }
  return g;
}

/// Results of arithmetic.
template <class Bits, unsigned Count>
STASH_DEVICE void results_from_f32s(const float (&from)[Count], const element_type& type, Bits (&to)[Count]) {
  if (sizeof(Bits) == 2 && type.bf16) {
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i)
      to[i] = static_cast<Bits>(rounded_result<true>(from[i], type));
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i)
      to[i] = result_from_f32<Bits>(from[i], type);
  }
}

/// Vec16s (16 bytes) of a group of elements that have more than one byte.
template <class Bits>
inline constexpr unsigned group_vectors = sizeof(Bits) * group_elements / 16;

/// The elements in a group's vec16s.
template <class Bits>
STASH_DEVICE group<Bits> unpacked(const vector16 (&v)[group_vectors<Bits>]) {
  constexpr unsigned per_word = 4 / sizeof(Bits);
  group<Bits> g;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    g.value[i] =
        static_cast<Bits>(v[i / per_word / 4].word[i / per_word % 4] >> (8 * sizeof(Bits) * (i % per_word)));
  }
  return g;
}

/// Inverse of unpacked().
template <class Bits>
STASH_DEVICE void pack(const group<Bits>& g, vector16 (&v)[group_vectors<Bits>]) {
  constexpr unsigned per_word = 4 / sizeof(Bits);
  STASH_UNROLL
  for (unsigned i = 0; i < group_vectors<Bits>; ++i)
    v[i] = {};
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    v[i / per_word / 4].word[i / per_word % 4] |= static_cast<std::uint32_t>(g.value[i])
                                                  << (8 * sizeof(Bits) * (i % per_word));
  }
}

/// A whole group of a tensor with `vectors`. `Strided`: the lanes' groups do not follow each other, so that
/// one load uses a part of a sector: the rest stays in the first-level cache for the next one.
template <class Bits, bool Strided = false>
STASH_DEVICE group<Bits> load_vectors(const device_tensor& t, std::uint64_t index) {
  const Bits* from = static_cast<const Bits*>(t.data) + offset_of(t, index * group_elements);
  if constexpr (sizeof(Bits) == 1) {
    const std::uint64_t word = *reinterpret_cast<const std::uint64_t*>(from);
    group<Bits> g;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.value[i] = static_cast<Bits>(word >> (8 * i));
    return g;
  } else {
    const auto* const vec16s = reinterpret_cast<const vector16*>(from);
    vector16 v[group_vectors<Bits>];
    if constexpr (Strided) {
      STASH_UNROLL
      for (unsigned i = 0; i < group_vectors<Bits>; ++i)
        v[i] = vec16s[i];
    } else if constexpr (group_vectors<Bits> == 1) {
      v[0] = load_once(vec16s);
    } else {
      load_once(vec16s, vec16s + 1, v);
    }
    return unpacked<Bits>(v);
  }
}

// A group of f32 is two vec16s. Would each lane move its own, an instruction of a warp would touch 32 sectors
// of 32 bytes and use half of each, and twice as many bytes would go through the second-level cache. So two
// lanes share their groups: the even lane moves the first vec16 of both, the odd lane the second, and an
// instruction moves whole sectors. Smaller elements need none of this.
//
// `Distance` is how far the two groups are from each other, a power of two; the first one's number has no
// such bit. Neighbours are in the order of the lanes. Groups half a warp from each other are not
// (group_of_thread()), but an instruction moves 512 bytes in a row. Of neighbours it moves every other
// sector, and memory reads two at a time: whether the next instruction still meets what the first one had
// read is up to chance.
inline constexpr std::uint64_t neighbours = 1, half_warps = warp_lanes / 2;

/// Whether there are such halves.
template <class Bits>
inline constexpr bool has_halves = sizeof(Bits) == 4;

/// The number, among those of its block, of the first group that thread `rank` has where halves are half a
/// warp from each other. Whole warps have the same groups as in the order of the lanes.
template <bool Halves>
STASH_DEVICE unsigned group_of_thread(unsigned rank) {
  if constexpr (!Halves) return rank;
  const unsigned lane = rank % warp_lanes;
  return rank - lane + lane / 2 + lane % 2 * static_cast<unsigned>(half_warps);
}
/// Lanes from one to the next group.
template <bool Halves>
inline constexpr unsigned lanes_between_groups = Halves ? 2 : 1;

/// Changes between a lane's own group and what it moves for both lanes, either way. Lanes of a warp come
/// together, an even one with the first of two groups, the one after it with the other.
template <std::uint64_t Distance, class Bits>
STASH_DEVICE group<Bits> shared_halves(std::uint64_t index, const group<Bits>& g) {
  if constexpr (!has_halves<Bits>) {
    return g;
  } else {
    constexpr unsigned half = group_elements / 2;
    const bool odd = (index & Distance) != 0;
    group<Bits> result = g;
    STASH_UNROLL
    for (unsigned i = 0; i < half; ++i) {
      const Bits got = shuffle_xor(all_lanes, odd ? g.value[i] : g.value[half + i], 1);
      if (odd) {
        result.value[i] = got;
      } else {
        result.value[half + i] = got;
      }
    }
    return result;
  }
}

/// The same of a bit for each element.
template <std::uint64_t Distance, class Bits>
STASH_DEVICE std::uint8_t shared_bits(std::uint64_t index, std::uint8_t bits) {
  if constexpr (!has_halves<Bits>) {
    return bits;
  } else {
    const std::uint32_t got = shuffle_xor(all_lanes, std::uint32_t{bits}, 1);
    return static_cast<std::uint8_t>((index & Distance) != 0 ? got >> 4 | (bits & 0xf0U)
                                                             : (bits & 0x0fU) | (got & 0x0fU) << 4);
  }
}

/// From a bit for each element of groups in the order of the lanes: those of what a lane moves where halves
/// are half a warp from each other. All lanes of a warp come.
STASH_DEVICE std::uint8_t bits_of_halves(std::uint32_t bits) {
  const unsigned lane = thread_rank() % warp_lanes, shift = lane % 2 * (group_elements / 2);
  const std::uint32_t first = shuffle(all_lanes, bits, lane / 2) >> shift & 0xfU;
  const std::uint32_t second = shuffle(all_lanes, bits, lane / 2 + warp_lanes / 2) >> shift & 0xfU;
  return static_cast<std::uint8_t>(first | second << 4);
}

/// Where the half of the two groups' number `i` starts that the lane of group `index` moves.
template <std::uint64_t Distance>
STASH_DEVICE std::uint64_t offset_of_half(const device_tensor& t, std::uint64_t index, unsigned i) {
  const std::uint64_t group = (index & ~Distance) + i * Distance;
  return offset_of(t, group * group_elements) + ((index & Distance) != 0 ? group_elements / 2 : 0);
}

/// What the lane moves of both groups, of a tensor with `vectors`: shared_halves() of its own group.
template <class Bits, std::uint64_t Distance>
STASH_DEVICE group<Bits> load_halves(const device_tensor& t, std::uint64_t index) {
  if constexpr (!has_halves<Bits>) {
    return load_vectors<Bits>(t, index);
  } else {
    const auto* const from = static_cast<const Bits*>(t.data);
    const auto half = [&](unsigned i) {
      return reinterpret_cast<const vector16*>(from + offset_of_half<Distance>(t, index, i));
    };
    vector16 v[2];
    load_once(half(0), half(1), v);
    return unpacked<Bits>(v);
  }
}

/// How much of a group exists.
STASH_DEVICE unsigned group_length(std::uint64_t elements, std::uint64_t index) {
  const std::uint64_t first = index * group_elements;
  if (first >= elements) return 0;
  return elements - first < group_elements ? static_cast<unsigned>(elements - first) : group_elements;
}

/// Any group of any tensor; zeros where there are no elements.
template <class Bits>
STASH_DEVICE group<Bits> load_elements(const device_tensor& t, std::uint64_t index) {
  const unsigned length = group_length(t.elements, index);
  if (t.vectors && length == group_elements) return load_vectors<Bits>(t, index);
  group<Bits> g;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    g.value[i] =
        i < length ? static_cast<const Bits*>(t.data)[offset_of(t, index * group_elements + i)] : Bits{0};
  }
  return g;
}

/// Writes a whole group to global memory where its vec16s are aligned.
template <class Bits>
STASH_DEVICE void store_group(Bits* to, const group<Bits>& g) {
  if constexpr (sizeof(Bits) == 1) {
    std::uint64_t word = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      word |= std::uint64_t{g.value[i]} << (8 * i);
    *reinterpret_cast<std::uint64_t*>(to) = word;
  } else {
    vector16 v[group_vectors<Bits>];
    pack(g, v);
    STASH_UNROLL
    for (unsigned i = 0; i < group_vectors<Bits>; ++i)
      store_vector(reinterpret_cast<vector16*>(to) + i, v[i]);
  }
}

/// Inverse of load_vectors().
template <class Bits>
STASH_DEVICE void store_vectors(const device_tensor& t, std::uint64_t index, const group<Bits>& g) {
  store_group(static_cast<Bits*>(t.data) + offset_of(t, index * group_elements), g);
}

/// Inverse of load_halves().
template <std::uint64_t Distance, class Bits>
STASH_DEVICE void store_halves(const device_tensor& t, std::uint64_t index, const group<Bits>& g) {
  if constexpr (!has_halves<Bits>) {
    store_vectors(t, index, g);
  } else {
    constexpr unsigned half = group_elements / 2;
    auto* const to = static_cast<Bits*>(t.data);
    STASH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const Bits* const own = g.value + half * i;
      *reinterpret_cast<vector16*>(to + offset_of_half<Distance>(t, index, i)) = {
          {own[0], own[1], own[2], own[3]}};
    }
  }
}

/// Inverse of load_elements(): nothing after the last element is written.
template <class Bits>
STASH_DEVICE void store_elements(const device_tensor& t, std::uint64_t index, const group<Bits>& g) {
  const unsigned length = group_length(t.elements, index);
  if (t.vectors && length == group_elements) return store_vectors<Bits>(t, index, g);
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    if (i < length) static_cast<Bits*>(t.data)[offset_of(t, index * group_elements + i)] = g.value[i];
  }
}

}  // namespace stash::kernels
