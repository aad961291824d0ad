// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// sign_mask and range_mask on a device: one bit per element (docs/format.md). A thread has a whole byte of
/// the plane without asking others; a warp's bytes are one full sector.

#include <cstdint>

#include "common/each_group.hpp"
#include "common/elements.hpp"
#include "common/host.hpp"
#include "common/pairs.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

/// Where a plane of one bit per element goes; `bytes` is a multiple of 16.
struct device_plane {
  std::uint8_t* data;
  std::uint64_t bytes;
  encode_report* report;

  /// What the caller learns of the size.
  STASH_DEVICE void count() const { atomic_add(&report->slot_bytes, bytes); }
};

/// A mask's plane. The data may be null.
inline device_plane device_plane_of(const encoded_view& view, std::int64_t elements) {
  return {static_cast<std::uint8_t*>(view.data), (static_cast<std::uint64_t>(elements) + 127) / 128 * 16,
          view.report};
}

/// y > 0, for the pytorch rule !(y <= 0).
struct sign_predicate {
  element_type type;
  bool nan_passes;

  STASH_DEVICE bool operator()(std::uint32_t bits) const { return passes(bits, type, nan_passes); }
  STASH_DEVICE std::uint32_t flags(std::uint32_t pair) const {
    return ruled_flags(positive_flags(pair), pair, type, nan_passes);
  }
};

/// Any bit set.
struct nonzero_predicate {
  template <class Bits>
  STASH_DEVICE bool operator()(Bits bits) const {
    return bits != 0;
  }
};

/// lower < x < upper; NaN by the rule.
struct range_predicate {
  element_type type;
  float lower, upper;
  bool nan_passes;
  pair_bound above_lower, below_upper;  ///< of 16 bits

  STASH_DEVICE bool operator()(std::uint32_t bits) const {
    const float value = as_float(bits);
    return (value > lower && value < upper) || (nan_passes && value != value);
  }
  STASH_DEVICE std::uint32_t flags(std::uint32_t pair) const {
    return ruled_flags(above_lower.flags(pair) & below_upper.flags(pair), pair, type, nan_passes);
  }
};
/// The bounds are numbers of the type.
inline range_predicate range_predicate_of(dtype dtype, float lower, float upper, bool nan_passes) {
  return {element_type_of(dtype),
          lower,
          upper,
          nan_passes,
          pair_bound_of(bits_in(dtype, lower), true),
          pair_bound_of(bits_in(dtype, upper), false)};
}

/// A bit for each element of a group.
template <class Bits, class Predicate>
STASH_DEVICE std::uint32_t predicate_bits(const group<Bits>& g, const Predicate& predicate) {
  if constexpr (sizeof(Bits) == 2) {
    const packed_group<Bits> pairs = packed(g);
    const std::uint32_t flags[4] = {predicate.flags(pairs.word[0]), predicate.flags(pairs.word[1]),
                                    predicate.flags(pairs.word[2]), predicate.flags(pairs.word[3])};
    return bits_of_flags(flags);
  } else {
    std::uint32_t bits = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      bits |= (predicate(g.value[i]) ? 1U : 0U) << i;
    return bits;
  }
}

/// The mask byte of a group; bits after `length` are zero.
template <class Bits, class Predicate>
STASH_DEVICE std::uint8_t mask_byte(const group<Bits>& g, unsigned length, const Predicate& predicate) {
  return static_cast<std::uint8_t>(predicate_bits(g, predicate) & ((1U << length) - 1));
}

/// Writes the plane of a tensor, padding included.
template <class Bits, class Predicate>
struct mask_encode_body {
  using loaded = group<Bits>;
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor input;
  device_plane plane;
  Predicate predicate;

  STASH_DEVICE bool vectors() const { return input.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_halves<Bits, half_warps>(input, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Bits>(input, index); }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Bits>(input, first, count);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    plane.data[index] = shared_bits<half_warps, Bits>(index, mask_byte(in, group_elements, predicate));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& g) const {
    if (index < plane.bytes) plane.data[index] = mask_byte(g, group_length(input.elements, index), predicate);
  }
  STASH_DEVICE void finish(bool first) const {
    if (first) plane.count();
  }
};

/// A plane as elements, `one` or 0.
template <class Bits>
struct mask_decode_body {
  using loaded = std::uint8_t;
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = 4;
  const std::uint8_t* plane;
  device_tensor output;
  Bits one;

  STASH_DEVICE bool vectors() const { return output.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return output.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return plane[index]; }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    return group_length(output.elements, index) == 0 ? loaded{0} : plane[index];
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_plane(plane, output.elements, first, count);
  }
  STASH_DEVICE group<Bits> spread(loaded bits) const {
    group<Bits> g;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      // Of bytes `one` is 1, and they have no instruction to spare.
      g.value[i] = static_cast<Bits>(sizeof(Bits) == 1 ? bits >> i & 1 : (bits >> i & 1) * one);
    return g;
  }
  STASH_DEVICE void store_whole(std::uint64_t index, loaded bits) const {
    store_halves<half_warps>(output, index, spread(shared_bits<half_warps, Bits>(index, bits)));
  }
  STASH_DEVICE void store_any(std::uint64_t index, loaded bits) const {
    store_elements(output, index, spread(bits));
  }
  STASH_DEVICE void finish(bool) const {}
};

}  // namespace stash::kernels
