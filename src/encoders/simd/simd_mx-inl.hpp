// SPDX-License-Identifier: Apache-2.0
// The MX formats in vectors. A scale is a power of two, so it only moves the exponents that the conversions
// of simd_rounding-inl.hpp and simd_widening-inl.hpp work with. Groups whose exponents come near the ends of
// f32's range, those with infinities or NaN, and a last, shorter one are left to mx.hpp.
//
// Included once per instruction set, by simd_loops.cpp after simd_mx_packing-inl.hpp, so it has no guard.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "encoders/format/mx.hpp"
#include "encoders/format/value_codec.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

using four_lanes = hn::CappedTag<std::int32_t, 4>;

/// The larger numbers among the lanes of a vector's blocks of four.
template <class D>
HWY_INLINE hn::Vec<four_lanes> largest_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return largest_of_blocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Largest magnitudes of four groups in a row.
HWY_INLINE hn::Vec<four_lanes> largest_of_groups(const float* values) {
  const lane_integers d32;
  const hn::Repartition<std::int64_t, lane_integers> d64;
  constexpr std::int64_t vectors = mx_group / lane_count;
  const auto fold = [&](const float* two_groups) HWY_ATTR {
    const lane_vector first = largest_magnitudes<vectors>(two_groups);
    const lane_vector second = largest_magnitudes<vectors>(two_groups + mx_group);
    return hn::BitCast(
        d64, hn::Max(hn::InterleaveLower(d32, first, second), hn::InterleaveUpper(d32, first, second)));
  };
  const auto low = fold(values);
  const auto high = fold(values + 2 * mx_group);
  // Each 16 bytes are about all four groups now.
  const lane_vector all = hn::Max(hn::BitCast(d32, hn::InterleaveLower(d64, low, high)),
                                  hn::BitCast(d32, hn::InterleaveUpper(d64, low, high)));
  return largest_of_blocks(d32, all);
}

constexpr std::int64_t four_groups = 4 * mx_group;

/// Where the subnormal numbers of the elements of each group of a run begin: bits of the smallest normal
/// number, and the upper half of its anchor twice.
struct group_origins {
  alignas(16) std::int32_t smallest_normal[run_elements / mx_group], anchor[run_elements / mx_group];

  HWY_INLINE code_origin for_group(std::int64_t group) const {
    return {set_lanes(smallest_normal[group]), hn::BitCast(shorts(), set_lanes(anchor[group]))};
  }
};

/// Finds the scales of four groups in a row.
template <class Elements>
class scale_search {
 public:
  HWY_INLINE scale_search()
      : lowest_(held(hn::Set(d32, lowest_exponent << 23))),
        highest_(held(hn::Set(d32, ((highest_exponent + 1) << 23) - 1))),
        exponent_(held(hn::Set(d32, f32_infinity))),
        emax_(held(hn::Set(d32, Elements::emax))),
        smallest_(held(hn::Set(d32, smallest_normal_bits<Elements> - (127 + Elements::emax) * (1 << 23)))),
        height_(held(hn::Set(d32, anchor_height<Elements> << 23))),
        common_(hn::Set(d32, -1)) {}

  /// `values` are those of groups `first`, ... of the run.
  HWY_INLINE void find(const float* values, std::uint8_t* scales, group_origins& origins,
                       std::int64_t first) {
    const hn::Rebind<std::uint8_t, four_lanes> d8;
    const auto largest = largest_of_groups(values);
    const auto bounded = hn::Min(hn::Max(largest, lowest_), highest_);
    const auto common = hn::Or(hn::Eq(largest, bounded), hn::Eq(largest, hn::Zero(d32)));
    common_ = hn::And(common_, hn::VecFromMask(d32, common));
    // In a group of zeros every power of two serves; its scale is written as 0, to which this saturates.
    hn::StoreU(hn::DemoteTo(d8, hn::Sub(hn::ShiftRight<23>(largest), emax_)), d8, scales);
    const auto smallest = hn::Add(hn::And(bounded, exponent_), smallest_);
    const auto anchor = hn::Add(smallest, height_);
    hn::Store(smallest, d32, origins.smallest_normal + first);
    hn::Store(hn::Or(anchor, hn::ShiftRight<16>(anchor)), d32, origins.anchor + first);
  }

  /// Otherwise some groups are left to mx.hpp.
  HWY_INLINE bool all_were_common() const { return hn::AllTrue(d32, hn::Eq(common_, hn::Set(d32, -1))); }

 private:
  static constexpr four_lanes d32{};

  hn::Vec<four_lanes> lowest_, highest_, exponent_, emax_, smallest_, height_, common_;
};

/// Converts again, in the general form, the groups that need it.
template <class Elements, underflow_rule Underflow>
HWY_NOINLINE void mend_groups(const float* values, std::int64_t count, std::uint8_t* scales,
                              std::uint8_t* elements) {
  constexpr std::int64_t group_bytes = mx_group * Elements::bits / 8;
  for (std::int64_t i = 0; i < count; i += mx_group, ++scales, elements += group_bytes) {
    const std::int64_t some = std::min(mx_group, count - i);
    if (!is_common_magnitude(largest_of_group(values + i, some)))
      *scales = narrow_group<Elements, Underflow>(values + i, some, elements);
  }
}

/// The elements of four groups in a row.
template <class Elements, underflow_rule Underflow>
HWY_INLINE void narrow_elements(const byte_block<Elements, Underflow>& block, const float* values,
                                const group_origins& origins, std::int64_t first, std::uint8_t* elements) {
  lane_vector unused = hn::Zero(lane_integers());
  for (std::int64_t i = 0; i < four_groups; i += block_values) {
    const auto codes = block.convert(values + i, origins.for_group(first + i / mx_group),
                                     origins.for_group(first + (i + block_values / 2) / mx_group), unused);
    group_packing<Elements::bits>::store(codes, elements + i * Elements::bits / 8,
                                         i + block_values < four_groups);
  }
}

// Scales are found four groups ahead of the elements, which would have to wait for them. All goes to the
// caches and is not fetched: one core that reads f32 leaves memory the time that so few bytes take, and both
// stores past the caches and fetches of what is written made it wait longer.
template <class Elements, underflow_rule Underflow>
void narrow_groups_of(const float* values, std::int64_t count, std::uint8_t* scales, std::uint8_t* elements) {
  constexpr std::int64_t bytes = four_groups * Elements::bits / 8;
  const std::int64_t whole = count / four_groups * four_groups;
  const auto rest = static_cast<std::size_t>(count - whole);
  group_origins origins;
  scale_search<Elements> search;
  const byte_block<Elements, Underflow> block;
  if (whole != 0) search.find(values, scales, origins, 0);
  const std::ptrdiff_t ahead = fetch_distance(values);
  std::uint8_t* to = elements;
  for (std::int64_t i = 0; i < whole; i += four_groups, to += bytes) {
    fetch_ahead<four_groups * sizeof(float)>(values + i, ahead);
    const std::int64_t next = i + four_groups;
    if (next < whole) search.find(values + next, scales + next / mx_group, origins, next / mx_group);
    narrow_elements(block, values + i, origins, i / mx_group, to);
  }
  if (rest != 0) {
    // Zeros past the last value change neither its group's scale nor the bytes of other elements.
    float in[four_groups] = {};
    std::uint8_t out_scales[4], out[static_cast<std::size_t>(bytes)];
    std::memcpy(in, values + whole, rest * sizeof(float));
    search.find(in, out_scales, origins, 0);
    narrow_elements(block, in, origins, 0, out);
    std::memcpy(scales + whole / mx_group, out_scales, (rest + mx_group - 1) / mx_group);
    std::memcpy(to, out, (rest * Elements::bits + 7) / 8);
  }
  if (!search.all_were_common()) mend_groups<Elements, Underflow>(values, count, scales, elements);
}

void narrow_mx_fast(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                    std::uint8_t* scales, std::uint8_t* elements) {
  with_mx_elements(format, [&](auto form) HWY_ATTR {
    using element = decltype(form);
    if (underflow == underflow_rule::keep_nonzero) {
      narrow_groups_of<element, underflow_rule::keep_nonzero>(values, count, scales, elements);
    } else {
      narrow_groups_of<element, underflow_rule::to_zero>(values, count, scales, elements);
    }
  });
}

/// Values of groups of elements that fill a byte.
template <class Elements>
class byte_elements {
 public:
  template <bool Past>
  HWY_INLINE void widen(std::uint8_t scale, const std::uint8_t* elements, float* values) const {
    const byte_values<Elements, true> scaled((scale - 127) * (1 << 23));
    scaled.template widen<mx_group, Past>(elements, values);
  }
};

#if STASH_WIDENS_BY_HALVES

/// Values of groups of six-bit elements: each is moved to the upper end of 16 bits by a multiplication and
/// from there, with its sign, to its position in f16.
template <class Elements>
class six_bit_elements {
 public:
  HWY_INLINE six_bit_elements() : moves_(hn::LoadDup128(shorts(), moves)) {
    for (std::size_t i = 0; i < parts; ++i)
      bytes_[i] = hn::Load(code_bytes(), byte_indices.data() + i * hn::MaxLanes(code_bytes()));
  }

  template <bool Past>
  HWY_INLINE void widen(std::uint8_t scale, const std::uint8_t* elements, float* values) const {
    const auto factor =
        hn::BitCast(lane_floats(), set_lanes(half_rebias<Elements> + (scale - 127) * (1 << 23)));
    for (std::size_t i = 0; i < parts; ++i) {
      const auto found = hn::TableLookupBytes(load(elements, i), bytes_[i]);
      const auto moved = hn::Mul(hn::BitCast(shorts(), found), moves_);
      // Copies of the sign come between it and the magnitude.
      const auto halves =
          hn::And(hn::ShiftRight<Elements::mantissa_bits>(moved), hn::Set(shorts(), used_bits));
      widen_halves_to<Past, true>(halves, factor, values + static_cast<std::int64_t>(i) * half_count);
    }
  }

 private:
  static constexpr std::size_t parts = mx_group / half_count;
  static constexpr auto used_bits =
      static_cast<std::int16_t>(0x8000 | (0x1f << (10 - Elements::mantissa_bits)));

  /// Four codes are three bytes: code v % 4 begins with bit 0, 6, 4 (of the second byte) or 2 (of the third).
  alignas(16) static constexpr std::int16_t moves[8] = {1024, 16, 64, 256, 1024, 16, 64, 256};
  /// For each of the 16 bits of a group the two bytes with its code. The second half of the group finds them
  /// from byte 8 on.
  alignas(64) static constexpr std::array<std::uint8_t, 2 * mx_group> byte_indices = [] {
    std::array<std::uint8_t, 2 * mx_group> bytes{};
    constexpr std::uint8_t first_byte[4] = {0, 0, 1, 2}, none = 0x80;
    for (std::size_t v = 0; v < mx_group; ++v) {
      const std::size_t from = v / 4 * 3 + first_byte[v % 4] - (v < mx_group / 2 ? 0 : 8);
      bytes[2 * v] = static_cast<std::uint8_t>(from);
      bytes[2 * v + 1] = v % 4 == 1 || v % 4 == 2 ? static_cast<std::uint8_t>(from + 1) : none;
    }
    return bytes;
  }();

  static HWY_INLINE code_vector load(const std::uint8_t* elements, std::size_t part) {
    if constexpr (parts == 1) {
      const hn::Half<code_bytes> half;
      return hn::Combine(code_bytes(), hn::LoadDup128(half, elements + 8), hn::LoadDup128(half, elements));
    } else {
      return hn::LoadDup128(code_bytes(), elements + part * 8);
    }
  }

  short_vector moves_;
  code_vector bytes_[parts];
};

#endif

using byte_table = std::array<std::uint8_t, 16>;

/// A byte of the f32 of each of 16 codes, so many bits up.
template <class Elements>
constexpr byte_table bytes_of_values(std::size_t first, int shift) {
  byte_table bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const float value = widen<Elements>(static_cast<typename Elements::storage>(first + i));
    bytes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> shift);
  }
  return bytes;
}

/// Values of groups of smaller elements, of which there are so few that tables hold the upper halves of their
/// f32; the lower halves are zero. The product with the scale is exact.
template <class Elements>
class small_elements {
 public:
  HWY_INLINE small_elements() {
    for (std::size_t t = 0; t < tables; ++t) {
      upper_[t] = hn::LoadDup128(element_lanes(), upper_bytes[t].data());
      lower_[t] = hn::LoadDup128(element_lanes(), lower_bytes[t].data());
    }
  }

  template <bool Past>
  HWY_INLINE void widen(std::uint8_t scale, const std::uint8_t* elements, float* values) const {
    const auto factor = hn::BitCast(value_lanes(), hn::Set(word_lanes(), scale * (1 << 23)));
    for (std::int64_t i = 0; i < mx_group; i += element_count)
      widen_codes_of<Past>(alternate_blocks(group_packing<Elements::bits>::unpack(elements, i)), factor,
                           values + i);
  }

 private:
  using half_lanes = hn::Repartition<std::uint16_t, element_lanes>;
  using word_lanes = hn::Repartition<std::int32_t, element_lanes>;
  using value_lanes = hn::Repartition<float, element_lanes>;

  // Four bits are looked up with their sign, six without it in two tables.
  static constexpr std::size_t tables = Elements::bits == 4 ? 1 : 2;
  alignas(16) static constexpr byte_table upper_bytes[2] = {bytes_of_values<Elements>(0, 24),
                                                            bytes_of_values<Elements>(16, 24)};
  alignas(16) static constexpr byte_table lower_bytes[2] = {bytes_of_values<Elements>(0, 16),
                                                            bytes_of_values<Elements>(16, 16)};

  /// Interleaving works within 16 bytes: puts what shall follow each other into the same positions of both.
  static HWY_INLINE element_vector alternate_blocks(element_vector codes) {
    if constexpr (element_count == 16) return codes;
    alignas(32) static constexpr std::int32_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    const word_lanes d32;
    return hn::BitCast(element_lanes(),
                       hn::TableLookupLanes(hn::BitCast(d32, codes), hn::SetTableIndices(d32, order)));
  }

  template <bool Past>
  HWY_INLINE void widen_codes_of(element_vector codes, hn::Vec<value_lanes> factor, float* values) const {
    const element_lanes d8;
    const half_lanes d16;
    element_vector upper, lower;
    if constexpr (Elements::bits == 4) {
      upper = hn::TableLookupBytes(upper_[0], codes);
      lower = hn::TableLookupBytes(lower_[0], codes);
    } else {
      // An index with its highest bit finds zero.
      const auto other_table = hn::ShiftLeft<3>(hn::BitCast(d16, hn::And(codes, hn::Set(d8, 0x10))));
      const element_vector low_bits = hn::And(codes, hn::Set(d8, 0x0f));
      const element_vector first = hn::Or(low_bits, hn::BitCast(d8, other_table));
      const element_vector second = hn::Xor(first, hn::Set(d8, 0x80));
      const auto sign = hn::ShiftLeft<2>(hn::BitCast(d16, hn::And(codes, hn::Set(d8, 0x20))));
      upper = hn::Or(hn::TableLookupBytesOr0(upper_[0], first), hn::TableLookupBytesOr0(upper_[1], second));
      upper = hn::Or(upper, hn::BitCast(d8, sign));
      lower = hn::Or(hn::TableLookupBytesOr0(lower_[0], first), hn::TableLookupBytesOr0(lower_[1], second));
    }
    const auto even = hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper));
    const auto odd = hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper));
    const auto zero = hn::Zero(d16);
    store_products<Past>(hn::InterleaveLower(d16, zero, even), factor, values);
    store_products<Past>(hn::InterleaveUpper(d16, zero, even), factor, values + element_count / 4);
    store_products<Past>(hn::InterleaveLower(d16, zero, odd), factor, values + element_count / 2);
    store_products<Past>(hn::InterleaveUpper(d16, zero, odd), factor, values + element_count / 4 * 3);
  }

  template <bool Past>
  static HWY_INLINE void store_products(hn::Vec<half_lanes> elements, hn::Vec<value_lanes> factor,
                                        float* values) {
    const value_lanes df;
    store_vector<Past>(df, hn::Mul(hn::BitCast(df, elements), factor), values);
  }

  element_vector upper_[tables], lower_[tables];
};

#if STASH_WIDENS_BY_HALVES
template <class Elements>
using packed_elements =
    std::conditional_t<Elements::bits == 6, six_bit_elements<Elements>, small_elements<Elements>>;
#else
template <class Elements>
using packed_elements = small_elements<Elements>;
#endif
template <class Elements>
using element_widening =
    std::conditional_t<Elements::bits == 8, byte_elements<Elements>, packed_elements<Elements>>;

template <class Elements, bool Past>
void widen_groups_of(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                     float* values) {
  constexpr std::int64_t group_bytes = mx_group * Elements::bits / 8;
  const std::ptrdiff_t ahead = fetch_distance(elements);
  const element_widening<Elements> found;
  for (; count >= mx_group; count -= mx_group, values += mx_group, elements += group_bytes) {
    fetch_ahead<group_bytes>(elements, ahead);
    const std::uint8_t scale = *scales++;
    if (is_common_scale(scale)) {
      found.template widen<Past>(scale, elements, values);
    } else {
      widen_group<Elements>(scale, elements, mx_group, values);
    }
  }
  if (count != 0) widen_group<Elements>(*scales, elements, count, values);
}

void widen_mx_fast(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                   value_format format, float* values, destination to) {
  with_mx_elements(format, [&](auto form) HWY_ATTR {
    if (goes_past(values, to)) {
      widen_groups_of<decltype(form), true>(scales, elements, count, values);
    } else {
      widen_groups_of<decltype(form), false>(scales, elements, count, values);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
