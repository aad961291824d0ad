// SPDX-License-Identifier: Apache-2.0
// fp10: three codes to a word.
//
// Included once per instruction set, by simd_loops.cpp after simd_rounding-inl.hpp, so it has no guard.

#include <array>
#include <cstdint>
#include <cstring>

#include "encoders/format/convert.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

/// Past the caches `to` has to be aligned to a vector.
HWY_INLINE void store_words(lane_vector v, std::uint32_t* to, destination where) {
  auto* const target = reinterpret_cast<std::int32_t*>(to);
  if (where == destination::memory) {
    hn::Stream(v, lane_integers(), target);
  } else {
    hn::StoreU(v, lane_integers(), target);
  }
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

/// From `values` values to words, for magnitudes that anchored_sum takes. `largest` becomes the largest
/// magnitude seen.
template <underflow_rule Underflow>
class word_block {
 public:
  static constexpr std::int64_t values = 6 * lane_count;

  HWY_INLINE word_block() : sign_(held(hn::Set(unsigned_shorts(), 1 << 9))), origin_(origin_of<format>()) {}

  HWY_INLINE void convert(const float* from, std::uint32_t* to, destination where,
                          lane_vector& largest) const {
    const short_vector first = codes_of(load_lanes_of(from), load_lanes_of(from + lane_count), largest);
    const short_vector second =
        codes_of(load_lanes_of(from + 2 * lane_count), load_lanes_of(from + 3 * lane_count), largest);
    const short_vector third =
        codes_of(load_lanes_of(from + 4 * lane_count), load_lanes_of(from + 5 * lane_count), largest);
    combine(first, second, 0, to, where);
    combine(second, third, 1, to + lane_count, where);
  }

 private:
  using format = fp10_format;

  HWY_INLINE short_vector codes_of(lane_vector v0, lane_vector v1, lane_vector& largest) const {
    const pair_codes pair = round_(v0, v1, origin_);
    largest = hn::Max(largest, pair.largest);
    const auto sign = hn::And(hn::ShiftRight<6>(hn::BitCast(unsigned_shorts(), pair.signs)), sign_);
    return hn::Or(bounded_(pair.codes, pair.magnitudes), hn::BitCast(shorts(), sign));
  }

  using lane_indices = std::array<std::int16_t, 2 * static_cast<std::size_t>(lane_count)>;

  /// Where round_pair() leaves the codes of 4 * lane_count values, for a half of the block's words: of the
  /// word's codes the ones numbered `low` and `high`.
  static constexpr lane_indices indices_of(std::int64_t half, std::int64_t low, std::int64_t high) {
    lane_indices result{};
    for (std::int64_t j = 0; j < 2 * lane_count; ++j) {
      const std::int64_t value = j / 2 * 3 + (j % 2 == 0 ? low : high) + half * lane_count;
      const std::int64_t pair = value / (2 * lane_count), lane = value % lane_count;
      const std::int64_t vector = value / lane_count % 2;
      result[static_cast<std::size_t>(j)] =
          static_cast<std::int16_t>(pair * 2 * lane_count + lane / 4 * 8 + vector * 4 + lane % 4);
    }
    return result;
  }
  alignas(64) static constexpr lane_indices pair_indices[2] = {indices_of(0, 0, 1), indices_of(1, 0, 1)};
  alignas(64) static constexpr lane_indices third_indices[2] = {indices_of(0, 2, 2), indices_of(1, 2, 2)};

  static HWY_INLINE lane_vector pick(short_vector first, short_vector second, const lane_indices& from) {
    const short_vector at = hn::Load(shorts(), from.data());
    return lane_vector{_mm512_permutex2var_epi16(first.raw, at.raw, second.raw)};
  }
  HWY_INLINE void combine(short_vector first, short_vector second, std::size_t half, std::uint32_t* to,
                          destination where) const {
    const lane_vector pairs = words_(pick(first, second, pair_indices[half]));
    const lane_vector thirds = hn::And(pick(first, second, third_indices[half]), set_lanes(-0x10000));
    store_words(hn::Or(pairs, hn::ShiftLeft<4>(thirds)), to, where);
  }

  hn::Vec<unsigned_shorts> sign_;
  code_origin origin_;
  pair_rounding<format> round_;
  code_bounds<format, Underflow, shorts> bounded_;
  half_sum<0, 10> words_;
};

#else

/// The same with the three values of a word in one lane of three vectors: no code has to be packed, and most
/// of its way to its position in the word is part of a multiplication.
template <underflow_rule Underflow>
class word_block {
 public:
  static constexpr std::int64_t values = 6 * lane_count;

  HWY_INLINE word_block()
      : magnitude_(held(set_lanes(f32_magnitude_mask))),
        exponent_(held(set_lanes(f32_infinity))),
        smallest_normal_(held(set_lanes(smallest_normal_bits<format>))),
        smallest_(held(set_lanes(smallest_normal_bits<format> - format::mantissa_bits * (1 << 23)))),
        origin_(held(set_lanes(static_cast<std::int32_t>(origin)))),
        height_(held(hn::Set(lane_floats(), steps))),
        negative_height_(held(hn::Set(lane_floats(), steps + sign_steps))) {}

  HWY_INLINE void convert(const float* from, std::uint32_t* to, destination where,
                          lane_vector& largest) const {
    convert_half(from, to, where, largest);
    convert_half(from + values / 2, to + lane_count, where, largest);
  }

 private:
  using format = fp10_format;

  static constexpr float steps = 1 << anchor_height<format>;
  /// The sign of a code is its highest bit: so many steps of the last mantissa bit, where the power that the
  /// magnitude begins with has 1 << mantissa_bits.
  static constexpr float sign_steps = 1 << (format::bits - 1 - format::mantissa_bits);
  /// What the exponents of the anchors add to a word.
  static constexpr std::uint32_t anchor =
      static_cast<std::uint32_t>(smallest_normal_bits<format> / (1 << 23) + anchor_height<format>) << 4;
  static constexpr std::uint32_t origin = anchor + (anchor << 10) + (anchor << 20);

  HWY_INLINE void convert_half(const float* from, std::uint32_t* to, destination where,
                               lane_vector& largest) const {
    lane_vector first, second, third;
    load_triples(from, first, second, third);
    const lane_vector low =
        hn::Add(hn::ShiftRight<3>(first_(rounded(first, largest))), second_(rounded(second, largest)));
    const lane_vector high = hn::Sub(hn::ShiftLeft<6>(third_(rounded(third, largest))), origin_);
    store_words(in_order(hn::Add(low, high)), to, where);
  }

  /// As anchored_sum; the low half counts the sign, too.
  HWY_INLINE lane_vector rounded(lane_vector v, lane_vector& largest) const {
    const lane_floats df;
    lane_vector magnitude = hn::And(v, magnitude_);
    // Upper halves decide, and SSSE3 has this maximum of halves alone.
    largest = hn::BitCast(lane_integers(),
                          hn::Max(hn::BitCast(shorts(), largest), hn::BitCast(shorts(), magnitude)));
    if constexpr (Underflow == underflow_rule::keep_nonzero)
      magnitude = hn::Max(magnitude, smallest_if_nonzero(magnitude));
    const auto power =
        hn::Max(hn::BitCast(shorts(), hn::And(v, exponent_)), hn::BitCast(shorts(), smallest_normal_));
    const auto height = height_of(v);
    return hn::BitCast(lane_integers(),
                       hn::MulAdd(hn::BitCast(df, power), height, hn::BitCast(df, magnitude)));
  }

  HWY_INLINE hn::Vec<lane_floats> height_of(lane_vector v) const {
    const lane_floats df;
#if HWY_TARGET == HWY_SSSE3
    // It has no instruction that selects.
    const auto negative = hn::BitCast(df, hn::ShiftRight<31>(v));
    return hn::Xor(height_, hn::And(negative, hn::Xor(height_, negative_height_)));
#else
    return hn::IfNegativeThenElse(hn::BitCast(df, v), negative_height_, height_);
#endif
  }

  HWY_INLINE lane_vector smallest_if_nonzero(lane_vector magnitude) const {
#if HWY_TARGET == HWY_AVX2
    return lane_vector{_mm256_sign_epi32(smallest_.raw, magnitude.raw)};
#else
    return hn::IfThenElseZero(hn::Gt(magnitude, hn::Zero(lane_integers())), smallest_);
#endif
  }

#if HWY_TARGET == HWY_AVX2
  /// The values of word 3 j mod 7, or 7, in lane j: so the loads of each position in the words take other
  /// lanes, and those of the second and third ones are the first one's moved by a value.
  static HWY_INLINE lane_vector load_every_third(const float* from) {
    const __m256 begin = _mm256_loadu_ps(from), middle = _mm256_loadu_ps(from + 7),
                 end = _mm256_loadu_ps(from + 14);
    return hn::BitCast(lane_integers(), hn::Vec<lane_floats>{_mm256_blend_ps(
                                            _mm256_blend_ps(begin, middle, 0b00100100), end, 0b10010010)});
  }
  static HWY_INLINE void load_triples(const float* from, lane_vector& first, lane_vector& second,
                                      lane_vector& third) {
    first = load_every_third(from);
    second = load_every_third(from + 1);
    third = load_every_third(from + 2);
  }
  static HWY_INLINE lane_vector in_order(lane_vector v) {
    alignas(32) static constexpr lane_numbers lanes = {0, 3, 6, 2, 5, 1, 4, 7};
    return hn::TableLookupLanes(v, hn::SetTableIndices(lane_integers(), lanes.data()));
  }
#else
  static HWY_INLINE void load_triples(const float* from, lane_vector& first, lane_vector& second,
                                      lane_vector& third) {
    const lane_integers di;
    hn::Vec<lane_floats> values[3];
    hn::LoadInterleaved3(lane_floats(), from, values[0], values[1], values[2]);
    first = hn::BitCast(di, values[0]);
    second = hn::BitCast(di, values[1]);
    third = hn::BitCast(di, values[2]);
  }
  static HWY_INLINE lane_vector in_order(lane_vector v) {
    return v;
  }
#endif

  lane_vector magnitude_, exponent_, smallest_normal_, smallest_, origin_;
  hn::Vec<lane_floats> height_, negative_height_;
  // Exponents are counted in bit 7 of the upper halves, last mantissa bits in bit 0 of the lower ones.
  half_sum<3, 0> first_;
  half_sum<10, 7> second_;
  half_sum<14, 11> third_;
};

#endif

// What saturates, infinities and NaN are left to the general form, at the end of a run as in
// narrow_to_bytes().

template <underflow_rule Underflow>
HWY_NOINLINE void mend_words(const float* values, std::int64_t count, std::int32_t limit,
                             std::uint32_t* stored) {
  constexpr std::int64_t block = 3 * lane_count;
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    if (!all_below(largest_magnitudes<3>(values + i), limit))
      narrow_words<fp10_format, Underflow>(values + i, block,
                                           reinterpret_cast<std::uint8_t*>(stored + i / 3));
  }
  narrow_words<fp10_format, Underflow>(values + i, count - i,
                                       reinterpret_cast<std::uint8_t*>(stored + i / 3));
}

template <underflow_rule Underflow>
void narrow_to_words(const float* values, std::int64_t count, std::uint32_t* stored, destination where) {
  using blocks = word_block<Underflow>;
  // The largest number itself is left to it, too, so that upper halves decide.
  constexpr std::int32_t limit = largest_finite_bits<fp10_format>;
  static_assert(limit % (1 << 16) == 0);
  const blocks block;
  if (reinterpret_cast<std::uintptr_t>(stored) % sizeof(lane_vector) != 0) where = destination::caches;
  const std::ptrdiff_t ahead = fetch_distance(values);
  lane_vector largest = hn::Zero(lane_integers());
  std::int64_t i = 0;
  for (; i + blocks::values <= count; i += blocks::values) {
    fetch_ahead<blocks::values * sizeof(float)>(values + i, ahead);
    block.convert(values + i, stored + i / 3, where, largest);
  }
  if (i != count) {
    float in[blocks::values] = {};
    std::uint32_t out[blocks::values / 3];
    std::memcpy(in, values + i, static_cast<std::size_t>(count - i) * sizeof(float));
    block.convert(in, out, destination::caches, largest);
    std::memcpy(stored + i / 3, out, static_cast<std::size_t>((count - i + 2) / 3) * sizeof(std::uint32_t));
  }
  if (all_below(largest, limit)) return;
  finish_streams(where);  // what is mended is written again
  mend_words<Underflow>(values, count, limit, stored);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
