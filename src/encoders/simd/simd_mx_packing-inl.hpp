// SPDX-License-Identifier: Apache-2.0
// Elements of the MX formats between one code per byte and their packed form.
//
// Included once per instruction set, by simd_loops.cpp after simd_narrow-inl.hpp, so it has no guard.

#include <array>
#include <cstdint>
#include <cstring>

#include "encoders/format/mx.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

using code_bytes = hn::Repartition<std::uint8_t, lane_integers>;
using code_vector = hn::Vec<code_bytes>;

// The codes of a group, or of half of one.
using element_lanes = hn::CappedTag<std::uint8_t, mx_group>;
using element_vector = hn::Vec<element_lanes>;
constexpr std::int64_t element_count = hn::MaxLanes(element_lanes());

/// Pairs of codes of Bits bits, one after the other in 16.
template <int Bits>
HWY_INLINE short_vector join_pairs(code_vector codes) {
#if HWY_ARCH_X86
  const short_vector weights = held(hn::Set(shorts(), (1 << (8 + Bits)) + 1));
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return short_vector{_mm512_maddubs_epi16(codes.raw, weights.raw)};
#elif HWY_TARGET == HWY_AVX2
  return short_vector{_mm256_maddubs_epi16(codes.raw, weights.raw)};
#else
  return short_vector{_mm_maddubs_epi16(codes.raw, weights.raw)};
#endif
#else
  const short_vector pairs = hn::BitCast(shorts(), codes);
  return hn::Or(hn::And(pairs, hn::Set(shorts(), (1 << Bits) - 1)),
                hn::ShiftLeft<Bits>(hn::ShiftRight<8>(pairs)));
#endif
}

/// Between one code per byte and Bits bits each: store() packs the block_values codes of a vector, and may
/// write up to four bytes past them if `more` follow; unpack() gives element_count codes of the group at
/// `in`, from code `first` on.
template <int Bits>
struct group_packing;

template <>
struct group_packing<8> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out, bool) {
    hn::StoreU(codes, code_bytes(), out);
  }
};

template <>
struct group_packing<4> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out, bool) {
    const hn::Rebind<std::uint8_t, shorts> d8;
    hn::StoreU(hn::DemoteTo(d8, join_pairs<4>(codes)), d8, out);
  }
  static HWY_INLINE element_vector unpack(const std::uint8_t* in, std::int64_t first) {
    const hn::Repartition<std::uint16_t, element_lanes> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> d8;
    const auto joined = hn::PromoteTo(d16, hn::LoadU(d8, in + first / 2));
    const auto pairs = hn::And(hn::Or(joined, hn::ShiftLeft<4>(joined)), hn::Set(d16, 0x0f0f));
    return hn::BitCast(element_lanes(), pairs);
  }
};

/// Four codes are three bytes: joined to pairs of 12 bits, then to 24, which a table then brings together.
template <>
struct group_packing<6> {
  static HWY_INLINE void store(code_vector codes, std::uint8_t* out, bool more) {
    const code_bytes d8;
    const lane_integers d32;
    const lane_vector joined = half_sum<0, 12>()(hn::BitCast(d32, join_pairs<6>(codes)));
    alignas(16) static constexpr byte_indices together = {0,  1,  2,  4,  5,    6,    8,    9,
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
      store_twelve(hn::LowerHalf(half, twelve), out, true);
      store_twelve(hn::UpperHalf(half, twelve), out + 12, more);
    } else {
      store_twelve(twelve, out, more);
    }
  }
  static HWY_INLINE element_vector unpack(const std::uint8_t* in, std::int64_t first) {
    // The second half of a group goes with the last four bytes of the first, so that both are 16 bytes long.
    alignas(32) static constexpr byte_indices spread[2] = {
        {0, 1, 2, none, 3, 4, 5, none, 6, 7, 8, none, 9, 10, 11, none},
        {4, 5, 6, none, 7, 8, 9, none, 10, 11, 12, none, 13, 14, 15, none}};
    const element_lanes d8;
    const element_vector joined = load_twelves(d8, in, first);
    return split(hn::TableLookupBytes(joined, hn::Load(d8, spread[first / element_count].data())));
  }

 private:
  using bytes16 = hn::CappedTag<std::uint8_t, 16>;
  using byte_indices = std::array<std::uint8_t, 16>;
  static constexpr std::uint8_t none = 0x80;

  /// In every 16 bytes of a vector twelve of codes, which begin there or four bytes later.
  template <class D>
  static HWY_INLINE hn::Vec<D> load_twelves(D d8, const std::uint8_t* in, std::int64_t first) {
    if constexpr (hn::MaxLanes(d8) == mx_group) {
      const hn::Half<D> half;
      return hn::Combine(d8, hn::LoadU(half, in + 8), hn::LoadU(half, in));
    } else {
      return hn::LoadU(d8, in + first / 2);
    }
  }
  /// Twelve bytes of a vector of 16, or all of it.
  template <class V>
  static HWY_INLINE void store_twelve(V v, std::uint8_t* out, bool more) {
    const bytes16 d8;
    if (more) return hn::StoreU(hn::BitCast(d8, v), d8, out);
    const hn::Half<bytes16> half;
    hn::StoreU(hn::LowerHalf(half, hn::BitCast(d8, v)), half, out);
    const std::int32_t rest = hn::ExtractLane(v, 2);
    std::memcpy(out + 8, &rest, sizeof rest);
  }
  static HWY_INLINE element_vector split(element_vector joined) {
    const hn::Repartition<std::uint32_t, element_lanes> d32;
    const auto codes = hn::BitCast(d32, joined);
    const auto pairs = hn::Or(hn::And(codes, hn::Set(d32, 0xfffU)),
                              hn::ShiftLeft<4>(hn::And(codes, hn::Set(d32, 0xfff000U))));
    return hn::BitCast(element_lanes(), hn::Or(hn::And(pairs, hn::Set(d32, 0x003f003fU)),
                                               hn::ShiftLeft<2>(hn::And(pairs, hn::Set(d32, 0x0fc00fc0U)))));
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
