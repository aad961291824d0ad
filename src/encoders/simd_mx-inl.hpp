// The MX formats in vectors. A scale is a power of two, so it only moves the exponents that the conversions
// of simd_narrow-inl.hpp work with. Groups whose exponents come near the ends of f32's range, those with
// infinities or NaN, and a last, shorter one are left to mx.hpp.
//
// Included once per instruction set, by simd_loops.cpp after simd_narrow-inl.hpp, so it has no guard.

#include <array>
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
    return hn::Or(hn::And(pairs, set_lanes(0xfff)), hn::ShiftRight<4>(hn::And(pairs, set_lanes(0xfff0000))));
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

/// What a group's values are stored by: the largest magnitude, whose exponent is the scale's and emax more.
struct group_range {
  lane_vector largest;
  std::int32_t bits;

  explicit HWY_INLINE group_range(const float* values)
      : largest(hn::MaxOfLanes(lane_integers(), largest_magnitudes<mx_group / lane_count>(values))),
        bits(hn::GetLane(largest)) {}

  std::int32_t field() const { return bits >> 23; }
  /// In a group of zeros every power of two serves.
  bool is_common() const { return bits == 0 || (field() >= lowest_exponent && field() <= highest_exponent); }

  template <class Elements>
  HWY_INLINE lane_vector smallest_normal() const {
    constexpr std::int32_t moved = smallest_normal_bits<Elements> - (127 + Elements::emax) * (1 << 23);
    return hn::Add(hn::And(largest, set_lanes(f32_infinity)), set_lanes(moved));
  }
  template <class Elements>
  std::uint8_t scale() const {
    return static_cast<std::uint8_t>(bits == 0 ? mx_smallest_exponent + 127 : field() - Elements::emax);
  }
};

template <class Elements, underflow_rule Underflow>
HWY_INLINE void narrow_one_group(const float* values, std::uint8_t* scale, std::uint8_t* elements) {
  if constexpr (block_values <= mx_group) {
    const group_range range(values);
    if (range.is_common()) {
      const byte_block<Elements, Underflow> block(range.smallest_normal<Elements>());
      for (std::int64_t i = 0; i < mx_group; i += block_values)
        group_packing<Elements::bits>::store(block.convert(values + i), elements + i * Elements::bits / 8);
      *scale = range.scale<Elements>();
      return;
    }
  }
  *scale = narrow_group<Elements, Underflow>(values, mx_group, elements);
}

template <class Elements, underflow_rule Underflow>
void narrow_groups_of(const float* values, std::int64_t count, std::uint8_t* scales, std::uint8_t* elements) {
  constexpr std::int64_t group_bytes = mx_group * Elements::bits / 8;
  if constexpr (block_values == 2 * mx_group) {
    for (; count >= block_values;
         count -= block_values, values += block_values, elements += 2 * group_bytes) {
      fetch_ahead<block_values * sizeof(float)>(values);
      fetch_ahead<2 * group_bytes>(elements);
      const group_range first(values), second(values + mx_group);
      if (first.is_common() && second.is_common()) {
        const byte_block<Elements, Underflow> block(first.smallest_normal<Elements>(),
                                                    second.smallest_normal<Elements>());
        group_packing<Elements::bits>::store(block.convert(values), elements);
        *scales++ = first.scale<Elements>();
        *scales++ = second.scale<Elements>();
      } else {
        *scales++ = narrow_group<Elements, Underflow>(values, mx_group, elements);
        *scales++ = narrow_group<Elements, Underflow>(values + mx_group, mx_group, elements + group_bytes);
      }
    }
  }
  for (; count >= mx_group; count -= mx_group, values += mx_group, elements += group_bytes) {
    fetch_ahead<mx_group * sizeof(float)>(values);
    fetch_ahead<group_bytes>(elements);
    narrow_one_group<Elements, Underflow>(values, scales++, elements);
  }
  if (count != 0) *scales = narrow_group<Elements, Underflow>(values, count, elements);
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
