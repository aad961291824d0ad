// SPDX-License-Identifier: Apache-2.0
// The arithmetic of convert.hpp in vectors, with fewer steps.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <array>
#include <bit>
#include <cstdint>

#include "encoders/format/convert.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

// Blocks of four vectors: half a group of the MX formats, a group, or two of them.
using lane_floats = hn::CappedTag<float, 16>;
using lane_integers = hn::RebindToSigned<lane_floats>;
using lane_vector = hn::Vec<lane_integers>;
constexpr std::int64_t lane_count = hn::MaxLanes(lane_floats());
constexpr std::int64_t block_values = 4 * lane_count;

HWY_INLINE lane_vector load_lanes_of(const float* from) {
  return hn::BitCast(lane_integers(), hn::LoadU(lane_floats(), from));
}
HWY_INLINE lane_vector set_lanes(std::int32_t value) {
  return hn::Set(lane_integers(), value);
}
HWY_INLINE lane_vector magnitude_of(lane_vector v) {
  return hn::And(v, set_lanes(f32_magnitude_mask));
}

template <class Format>
constexpr std::int32_t smallest_normal_bits = (127 - Format::bias + 1) << 23;
template <class Format>
constexpr std::int32_t largest_finite_bits =
    std::bit_cast<std::int32_t>(widen<Format>(static_cast<typename Format::storage>(Format::largest_finite)));

using shorts = hn::Repartition<std::int16_t, lane_integers>;
using unsigned_shorts = hn::RebindToUnsigned<shorts>;
using short_vector = hn::Vec<shorts>;
using signed_bytes = hn::Repartition<std::int8_t, lane_integers>;

/// Keeps a constant where it is, in a register or on the stack: g++ 12 makes constants anew in every turn of
/// a loop that has many of them.
template <class V>
HWY_INLINE V held(V constant) {
#if HWY_ARCH_X86
  asm("" : "+v"(constant.raw));
#endif
  return constant;
}

/// Within each 16 bytes: four lanes of the first vector, then four of the second. Saturates, which keeps
/// signs and what is not zero.
HWY_INLINE short_vector join(lane_vector first, lane_vector second) {
  return hn::ReorderDemote2To(shorts(), first, second);
}

/// The same with bytes: eight of the first vector, then eight of the second.
HWY_INLINE hn::Vec<signed_bytes> join(short_vector first, short_vector second) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::Vec<signed_bytes>{_mm512_packs_epi16(first.raw, second.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<signed_bytes>{_mm256_packs_epi16(first.raw, second.raw)};
#else
  const hn::Half<signed_bytes> half;
  return hn::Combine(signed_bytes(), hn::DemoteTo(half, second), hn::DemoteTo(half, first));
#endif
}

/// Low half times 2^Low plus high half times 2^High, of each lane; both halves are below 2^15.
template <int Low, int High>
struct half_sum {
#if HWY_ARCH_X86
  HWY_INLINE half_sum() : weights(held(set_lanes((1 << (16 + High)) + (1 << Low)))) {}
  HWY_INLINE lane_vector operator()(lane_vector v) const {
    // There this one sums neighbours; elsewhere it may pair other lanes.
    lane_vector unused = hn::Zero(lane_integers());
    return hn::ReorderWidenMulAccumulate(lane_integers(), hn::BitCast(shorts(), v),
                                         hn::BitCast(shorts(), weights), hn::Zero(lane_integers()), unused);
  }

  lane_vector weights;
#else
  HWY_INLINE lane_vector operator()(lane_vector v) const {
    return hn::Add(hn::ShiftLeft<Low>(hn::And(v, set_lanes(0x7fff))),
                   hn::ShiftLeft<High>(hn::ShiftRight<16>(v)));
  }
#endif
};

/// So many powers of two lie between a number, or the smallest normal one above it, and its anchor: the last
/// mantissa bit of their sum is worth the last one of the code.
template <class Format>
constexpr int anchor_height = 23 - Format::mantissa_bits;

/// A magnitude plus its anchor, which rounds it, subnormals included. The low half counts last mantissa bits,
/// the high half is the anchor's exponent above seven zeros. `smallest_normal` may be that of the format
/// moved by a power of two. The anchor has to stay a finite number: magnitudes lie below 2^100, moved in the
/// same way.
template <class Format>
struct anchored_sum {
  HWY_INLINE anchored_sum()
      : exponent(held(set_lanes(f32_infinity))),
        height(held(hn::Set(lane_floats(), static_cast<float>(1 << anchor_height<Format>)))) {}
  HWY_INLINE lane_vector operator()(lane_vector magnitude, lane_vector smallest_normal) const {
    const lane_floats df;
    // Lower halves are zero, and SSSE3 has this maximum of halves alone.
    const auto power =
        hn::Max(hn::BitCast(shorts(), hn::And(magnitude, exponent)), hn::BitCast(shorts(), smallest_normal));
    return hn::BitCast(lane_integers(),
                       hn::MulAdd(hn::BitCast(df, power), height, hn::BitCast(df, magnitude)));
  }

  lane_vector exponent;
  hn::Vec<lane_floats> height;
};

/// Where the subnormal numbers of a format end, in the exponents of f32, perhaps moved by a power of two.
struct code_origin {
  lane_vector smallest_normal;
  short_vector anchor;  ///< upper half of its anchor
};

template <class Format>
HWY_INLINE code_origin origin_of() {
  constexpr std::int32_t smallest = smallest_normal_bits<Format>;
  constexpr std::int32_t anchor = smallest + anchor_height<Format> * (1 << 23);
  return {held(set_lanes(smallest)), held(hn::Set(shorts(), static_cast<std::int16_t>(anchor >> 16)))};
}

using lane_numbers = std::array<std::int32_t, static_cast<std::size_t>(lane_count)>;

/// Where the lanes of `Vectors` joined vectors, of which every 16 bytes hold a part each, lie one after the
/// other.
template <std::int64_t Vectors>
constexpr lane_numbers joined_lanes() {
  constexpr std::int64_t width = 4 / Vectors, count = lane_count / Vectors;
  lane_numbers lanes{};
  for (std::int64_t j = 0; j < lane_count; ++j) {
    const std::int64_t vector = j / count, lane = j % count;
    lanes[static_cast<std::size_t>(j)] =
        static_cast<std::int32_t>(lane / width * 4 + vector * width + lane % width);
  }
  return lanes;
}

/// Brings together what belongs to one of the joined vectors.
template <std::int64_t Vectors>
HWY_INLINE lane_vector untangle(lane_vector joined) {
  alignas(64) static constexpr lane_numbers lanes = joined_lanes<Vectors>();
  if constexpr (lane_count == 4) return joined;
  return hn::TableLookupLanes(joined, hn::SetTableIndices(lane_integers(), lanes.data()));
}

/// Two joined vectors.
struct pair_codes {
  short_vector codes;       ///< of the magnitudes, below 2^13, but perhaps beyond the format's largest
  short_vector magnitudes;  ///< zero where these are
  short_vector signs;       ///< in the highest bits
  lane_vector largest;      ///< magnitudes
};

/// Rounds magnitudes that anchored_sum takes.
template <class Format>
class pair_rounding {
 public:
  HWY_INLINE pair_rounding() : magnitude_(held(set_lanes(f32_magnitude_mask))) {}

  HWY_INLINE pair_codes operator()(lane_vector v0, lane_vector v1, const code_origin& origin) const {
    const lane_vector magnitude0 = hn::And(v0, magnitude_);
    const lane_vector magnitude1 = hn::And(v1, magnitude_);
    const short_vector counted = join(count_(sum_(magnitude0, origin.smallest_normal)),
                                      count_(sum_(magnitude1, origin.smallest_normal)));
    // Bits of an unsigned number, so that whatever other magnitudes become stays a code, too.
    const auto code = hn::ShiftRight<moved>(hn::BitCast(unsigned_shorts(), hn::Sub(counted, origin.anchor)));
    return {hn::BitCast(shorts(), code), join(magnitude0, magnitude1), join(v0, v1),
            hn::Max(magnitude0, magnitude1)};
  }

 private:
  /// What counts last mantissa bits is moved, so that the exponent fits its position above.
  static constexpr int moved = 7 - Format::mantissa_bits;

  lane_vector magnitude_;
  anchored_sum<Format> sum_;
  half_sum<moved, 0> count_;
};

/// Codes up to the format's largest, and above zero where an underflow must not become that. Neither argument
/// has negative numbers.
template <class Format, underflow_rule Underflow, class D>
class code_bounds {
 public:
  HWY_INLINE code_bounds()
      : largest_(held(hn::Set(D(), static_cast<hn::TFromD<D>>(Format::largest_finite)))),
        smallest_(held(hn::Set(D(), 1))) {}

  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> codes, hn::Vec<D> magnitudes) const {
    codes = hn::Min(codes, largest_);
    if constexpr (Underflow == underflow_rule::keep_nonzero)
      codes = hn::Max(codes, hn::Min(magnitudes, smallest_));
    return codes;
  }

 private:
  hn::Vec<D> largest_, smallest_;
};

/// From block_values values to one code in each byte. The halves of a block may be of two groups.
template <class Format, underflow_rule Underflow>
class byte_block {
 public:
  using bytes = hn::Repartition<std::uint8_t, lane_integers>;
  using byte_vector = hn::Vec<bytes>;

  HWY_INLINE byte_block() : sign_(held(hn::Set(bytes(), 1 << sign_bit))) {}

  /// For magnitudes that anchored_sum takes. `largest` becomes the largest magnitude seen.
  HWY_INLINE byte_vector convert(const float* from, const code_origin& first_origin,
                                 const code_origin& second_origin, lane_vector& largest) const {
    const pair_codes first = round_(load_lanes_of(from), load_lanes_of(from + lane_count), first_origin);
    const pair_codes second =
        round_(load_lanes_of(from + 2 * lane_count), load_lanes_of(from + 3 * lane_count), second_origin);
    largest = hn::Max(largest, hn::Max(first.largest, second.largest));
    const bytes d8;
    const auto signs = hn::BitCast(unsigned_shorts(), join(first.signs, second.signs));
    const auto sign = hn::And(hn::BitCast(d8, hn::ShiftRight<7 - sign_bit>(signs)), sign_);
    const auto codes = bounded_(hn::BitCast(d8, join(first.codes, second.codes)),
                                hn::BitCast(d8, join(first.magnitudes, second.magnitudes)));
    return hn::BitCast(d8, untangle<4>(hn::BitCast(lane_integers(), hn::Or(codes, sign))));
  }

 private:
  static constexpr int sign_bit = Format::bits - 1;

  byte_vector sign_;
  pair_rounding<Format> round_;
  code_bounds<Format, Underflow, bytes> bounded_;
};

/// True if all magnitudes lie below `limit`, given as bits; those of infinity and NaN do not.
HWY_INLINE bool all_below(lane_vector magnitudes, std::int32_t limit) {
  return hn::AllTrue(lane_integers(), hn::Lt(magnitudes, set_lanes(limit)));
}

/// Lane by lane, the largest magnitude of so many vectors. Of more than four, only the upper 16 bits and
/// whether all are zero are sure to be right.
template <std::int64_t Vectors>
HWY_INLINE lane_vector largest_magnitudes(const float* from) {
  lane_vector largest = magnitude_of(load_lanes_of(from));
  if constexpr (HWY_TARGET == HWY_SSSE3 && Vectors > 4) {
    // It has a maximum of halves alone.
    lane_vector all = largest;
    for (std::int64_t i = 1; i < Vectors; ++i) {
      const lane_vector magnitude = magnitude_of(load_lanes_of(from + i * lane_count));
      largest = hn::BitCast(lane_integers(),
                            hn::Max(hn::BitCast(shorts(), largest), hn::BitCast(shorts(), magnitude)));
      all = hn::Or(all, magnitude);
    }
    const lane_vector upper = set_lanes(-0x10000);
    return hn::Or(hn::And(upper, largest), hn::AndNot(upper, all));
  }
  for (std::int64_t i = 1; i < Vectors; ++i)
    largest = hn::Max(largest, magnitude_of(load_lanes_of(from + i * lane_count)));
  return largest;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
