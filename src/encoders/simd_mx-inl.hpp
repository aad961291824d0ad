// The MX formats in vectors. A scale is a power of two, so it only moves the exponents that the conversions
// of simd_narrow-inl.hpp work with. Groups whose exponents come near the ends of f32's range, those with
// infinities or NaN, and a last, shorter one are left to mx.hpp.
//
// Included once per instruction set, by simd_loops.cpp after simd_narrow-inl.hpp, so it has no guard.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "mx.hpp"
#include "value_codec.hpp"

namespace stash::detail {
namespace HWY_NAMESPACE {
namespace {

// Exponent fields of f32 between which no step of a conversion leaves the normal numbers.
constexpr std::int32_t lowest_exponent = 48;
constexpr std::int32_t highest_exponent = 208;

using code_bytes = hn::Repartition<std::uint8_t, lane_integers>;
using code_vector = hn::Vec<code_bytes>;

/// Between one code per byte and Bits bits each: store() packs the block_values codes of a vector, unpack()
/// the 32 of a group into `bytes`.
template <int Bits>
struct group_packing;

template <>
struct group_packing<8> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out) { hn::StoreU(codes, code_bytes(), out); }
  static HWY_INLINE void unpack(const std::uint8_t* in, std::uint8_t* bytes) { std::memcpy(bytes, in, 32); }
};

template <>
struct group_packing<4> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out) {
    const hn::Repartition<std::int16_t, code_bytes> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> d8;
    const auto pairs = hn::BitCast(d16, codes);
    const auto joined = hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, 0xff));
    hn::StoreU(hn::DemoteTo(d8, joined), d8, out);
  }
  static HWY_INLINE void unpack(const std::uint8_t* in, std::uint8_t* bytes) {
    const hn::CappedTag<std::uint16_t, 16> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> d8;
    const hn::Repartition<std::uint8_t, decltype(d16)> pairs8;
    constexpr std::size_t step = hn::MaxLanes(d8);
    for (std::size_t i = 0; i < 16; i += step) {
      const auto joined = hn::PromoteTo(d16, hn::LoadU(d8, in + i));
      const auto pairs = hn::And(hn::Or(joined, hn::ShiftLeft<4>(joined)), hn::Set(d16, 0x0f0f));
      hn::StoreU(hn::BitCast(pairs8, pairs), pairs8, bytes + 2 * i);
    }
  }
};

/// Four codes are three bytes: joined to pairs of 12 bits, then to 24, which a table then brings together.
template <>
struct group_packing<6> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out) {
    const code_bytes d8;
    const lane_integers d32;
    const lane_vector joined = join(hn::BitCast(d32, codes));
    alignas(16) static constexpr places together = {0,  1,  2,  4,  5,    6,    8,    9,
                                                    10, 12, 13, 14, none, none, none, none};
    const lane_vector twelve =
        hn::BitCast(d32, hn::TableLookupBytes(hn::BitCast(d8, joined), hn::LoadDup128(d8, together.data())));
    const hn::Half<lane_integers> half;
    if constexpr (lane_count == 16) {
      alignas(64) static constexpr std::int32_t order[16] = {0,  1,  2,  4,  5, 6, 8,  9,
                                                             10, 12, 13, 14, 3, 7, 11, 15};
      const lane_vector all = hn::TableLookupLanes(twelve, hn::SetTableIndices(d32, order));
      const hn::Half<code_bytes> half8;
      hn::StoreU(hn::BitCast(half8, hn::LowerHalf(half, all)), half8, out);
      const hn::Half<decltype(half8)> quarter8;
      hn::StoreU(hn::LowerHalf(quarter8, hn::BitCast(half8, hn::UpperHalf(half, all))), quarter8, out + 32);
    } else if constexpr (lane_count == 8) {
      // Twelve bytes of each half of the vector, and the store must not go behind them.
      alignas(32) static constexpr std::int32_t order[8] = {0, 1, 2, 4, 5, 6, 3, 7};
      const lane_vector all = hn::TableLookupLanes(twelve, hn::SetTableIndices(d32, order));
      hn::StoreU(hn::BitCast(hn::Half<code_bytes>(), hn::LowerHalf(half, all)), hn::Half<code_bytes>(), out);
      store_lower(hn::UpperHalf(half, all), out + 16);
    } else {
      store_lower(twelve, out);
      const std::int32_t rest = hn::ExtractLane(twelve, 2);
      std::memcpy(out + 8, &rest, sizeof rest);
    }
  }
  static HWY_INLINE void unpack(const std::uint8_t* in, std::uint8_t* bytes) {
    const bytes16 d8;
    const byte_vector first =
        move(hn::LoadU(d8, in), {0, 1, 2, none, 3, 4, 5, none, 6, 7, 8, none, 9, 10, 11, none});
    // The second half of a group goes with the last four bytes of the first, so that both are 16 bytes long.
    const byte_vector second =
        move(hn::LoadU(d8, in + 8), {4, 5, 6, none, 7, 8, 9, none, 10, 11, 12, none, 13, 14, 15, none});
    hn::StoreU(split(first), d8, bytes);
    hn::StoreU(split(second), d8, bytes + 16);
  }

 private:
  using bytes16 = hn::CappedTag<std::uint8_t, 16>;
  using fours = hn::Repartition<std::uint32_t, bytes16>;
  using byte_vector = hn::Vec<bytes16>;
  using places = std::array<std::uint8_t, 16>;
  static constexpr std::uint8_t none = 0x80;

  static HWY_INLINE byte_vector move(byte_vector from, const places& to) {
    return hn::TableLookupBytes(from, hn::LoadU(bytes16(), to.data()));
  }
  static HWY_INLINE lane_vector join(lane_vector codes) {
    const lane_vector pairs = hn::Or(hn::And(codes, set_lanes(0x003f003f)),
                                     hn::ShiftRight<2>(hn::And(codes, set_lanes(0x3f003f00))));
    return half_sum<0, 12>()(pairs);
  }
  /// Eight bytes of a vector of 16.
  template <class V>
  static HWY_INLINE void store_lower(V v, std::uint8_t* out) {
    const hn::Half<bytes16> d8;
    hn::StoreU(hn::LowerHalf(d8, hn::BitCast(bytes16(), v)), d8, out);
  }
  static HWY_INLINE byte_vector split(byte_vector joined) {
    const fours d32;
    const auto codes = hn::BitCast(d32, joined);
    const auto pairs = hn::Or(hn::And(codes, hn::Set(d32, 0xfffU)),
                              hn::ShiftLeft<4>(hn::And(codes, hn::Set(d32, 0xfff000U))));
    return hn::BitCast(bytes16(), hn::Or(hn::And(pairs, hn::Set(d32, 0x003f003fU)),
                                         hn::ShiftLeft<2>(hn::And(pairs, hn::Set(d32, 0x0fc00fc0U)))));
  }
};

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

  HWY_INLINE code_origin of(std::int64_t group) const {
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
    std::int32_t largest = 0;
    for (std::int64_t j = i; j < i + some; ++j)
      largest = std::max(largest, std::bit_cast<std::int32_t>(values[j]) & f32_magnitude_mask);
    const bool common = largest >= lowest_exponent << 23 && largest < (highest_exponent + 1) << 23;
    if (!common) *scales = narrow_group<Elements, Underflow>(values + i, some, elements);
  }
}

/// The elements of four groups in a row.
template <class Elements, underflow_rule Underflow>
HWY_INLINE void narrow_elements(const byte_block<Elements, Underflow>& block, const float* values,
                                const group_origins& origins, std::int64_t first, std::uint8_t* elements) {
  lane_vector unused = hn::Zero(lane_integers());
  for (std::int64_t i = 0; i < four_groups; i += block_values) {
    const auto codes = block.convert(values + i, origins.of(first + i / mx_group),
                                     origins.of(first + (i + block_values / 2) / mx_group), unused);
    group_packing<Elements::bits>::store(codes, elements + i * Elements::bits / 8);
  }
}

// First all scales of a run, then its elements: a group's elements would have to wait for its scale. The
// second loop takes longer and fetches what the next runs read, too, so that memory is asked at an even pace.
template <class Elements, underflow_rule Underflow>
void narrow_groups_of(const float* values, std::int64_t count, std::uint8_t* scales, std::uint8_t* elements) {
  constexpr std::int64_t bytes = four_groups * Elements::bits / 8;
  const std::int64_t whole = count / four_groups * four_groups;
  const auto rest = static_cast<std::size_t>(count - whole);
  group_origins origins;
  scale_search<Elements> search;
  for (std::int64_t i = 0; i < whole; i += four_groups) {
    search.find(values + i, scales + i / mx_group, origins, i / mx_group);
  }
  const byte_block<Elements, Underflow> block;
  for (std::int64_t i = 0; i < whole; i += four_groups) {
    std::uint8_t* const to = elements + i / four_groups * bytes;
    fetch_ahead<four_groups * sizeof(float)>(values + i);
    fetch_ahead<bytes>(to);
    narrow_elements(block, values + i, origins, i / mx_group, to);
  }
  if (rest != 0) {
    // Zeros behind the last value change neither its group's scale nor the bytes of other elements.
    float in[four_groups] = {};
    std::uint8_t out_scales[4], out[bytes];
    std::memcpy(in, values + whole, rest * sizeof(float));
    search.find(in, out_scales, origins, 0);
    narrow_elements(block, in, origins, 0, out);
    std::memcpy(scales + whole / mx_group, out_scales, (rest + mx_group - 1) / mx_group);
    std::memcpy(elements + whole / four_groups * bytes, out, (rest * Elements::bits + 7) / 8);
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

template <class Elements>
void widen_groups_of(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                     float* values) {
  constexpr std::int64_t group_bytes = mx_group * Elements::bits / 8;
  for (; count >= mx_group; count -= mx_group, values += mx_group, elements += group_bytes) {
    fetch_ahead<group_bytes>(elements);
    fetch_ahead<mx_group * sizeof(float)>(values);
    const std::uint8_t scale = *scales++;
    if (scale < lowest_exponent || scale > highest_exponent) {
      widen_group<Elements>(scale, elements, mx_group, values);
      continue;
    }
    const std::int32_t moved = (scale - 127) * (1 << 23);
    const lane_vector rebias = set_lanes(widening_rebias<Elements> + moved);
    const lane_vector smallest = set_lanes(smallest_normal_bits<Elements> + moved);
    alignas(32) std::uint8_t codes[mx_group];
    group_packing<Elements::bits>::unpack(elements, codes);
    widen_block<Elements, mx_group>(codes, rebias, smallest, values);
  }
  if (count != 0) widen_group<Elements>(*scales, elements, count, values);
}

void widen_mx_fast(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                   value_format format, float* values) {
  with_mx_elements(
      format, [&](auto form) HWY_ATTR { widen_groups_of<decltype(form)>(scales, elements, count, values); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::detail
