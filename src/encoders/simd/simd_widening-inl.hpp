// SPDX-License-Identifier: Apache-2.0
// Runs of the narrow formats to f32.
//
// Included once per instruction set, by simd_loops.cpp after simd_rounding-inl.hpp, so it has no guard.

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "encoders/format/convert.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

/// Value of a magnitude, given where f32 has it. `rebias` moves the exponent, and `smallest` is the bits of
/// the smallest normal number; both may be those of a product with a power of two.
///
/// The exponent is moved as if every number were normal, f. That of a subnormal is 2 f - smallest then, which
/// is below f; of every other number f is below that.
HWY_INLINE lane_vector widen_magnitude(lane_vector moved, lane_vector rebias, lane_vector smallest) {
  const lane_floats df;
  const auto as_normal = hn::BitCast(df, hn::Add(moved, rebias));
  const auto as_subnormal = hn::Add(hn::Sub(as_normal, hn::BitCast(df, smallest)), as_normal);
  return hn::BitCast(lane_integers(), hn::Min(as_normal, as_subnormal));
}

template <class Format>
constexpr std::int32_t widening_rebias = (127 - Format::bias) << 23;

/// Past the caches `to` has to be aligned to a vector.
template <bool Past>
HWY_INLINE void store_lanes_to(lane_vector v, float* to) {
  store_vector<Past>(lane_floats(), hn::BitCast(lane_floats(), v), to);
}

/// convert_blocks() where convert(past, from, to) is told by a constant whether `to` lies past the caches.
template <std::int64_t Block, bool Past, class In, class Convert>
HWY_INLINE void widen_blocks(const In* from, std::int64_t count, float* to, const Convert& convert) {
  convert_blocks<Block>(
      from, count, to, destination::caches,
      [&](const In* in, float* out) HWY_ATTR { convert(std::bool_constant<Past>(), in, out); },
      [&](const In* in, float* out) HWY_ATTR { convert(std::false_type(), in, out); });
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

// The smaller formats' numbers, subnormals included, are those of f16 but for a power of two, and from AVX2
// on the processor widens f16, whatever its "denormals are zero" mode says. Blocks with a NaN are left to the
// general form: a signalling one would become quiet there, and that of e4m3 is a number.
#define STASH_WIDENS_BY_HALVES 1

/// Value of codes in the low bits of 32, for exponents moved as in widen_magnitude(); infinities and NaN stay
/// what they are. Bits above the code are ignored.
template <class Format>
HWY_INLINE lane_vector widen_codes(lane_vector codes, lane_vector rebias, lane_vector smallest) {
  const lane_vector magnitude = hn::And(codes, set_lanes(magnitude_mask<Format>));
  const lane_vector moved = hn::ShiftLeft<23 - Format::mantissa_bits>(magnitude);
  lane_vector result = widen_magnitude(moved, rebias, smallest);
  if constexpr (Format::ieee) {
    const lane_vector special = hn::Or(moved, set_lanes(f32_infinity));
    result = hn::IfThenElse(hn::Gt(magnitude, set_lanes(Format::largest_finite)), special, result);
  } else if constexpr (Format::nan != 0) {
    result = hn::IfThenElse(hn::Eq(magnitude, set_lanes(Format::nan)), set_lanes(0x7fc00000), result);
  }
  const lane_vector sign = hn::And(hn::ShiftLeft<32 - Format::bits>(codes), set_lanes(~f32_magnitude_mask));
  return hn::Or(result, sign);
}

/// The values of so many codes of one byte each.
template <class Format, std::int64_t Values, bool Past>
HWY_INLINE void widen_block(const std::uint8_t* codes, lane_vector rebias, lane_vector smallest, float* to) {
  const hn::Rebind<std::uint8_t, lane_integers> du8;
  for (std::int64_t k = 0; k < Values; k += lane_count) {
    const lane_vector code = hn::PromoteTo(lane_integers(), hn::LoadU(du8, codes + k));
    store_lanes_to<Past>(widen_codes<Format>(code, rebias, smallest), to + k);
  }
}

constexpr std::int64_t half_count = 2 * lane_count;

// From codes to f16, but for a power of two: the exponent that this leaves, how far codes move, and what
// they are made of there.
template <class Format>
constexpr std::int32_t half_rebias = (127 + 15 - Format::bias) << 23;
template <class Format>
constexpr int half_shift = 10 - Format::mantissa_bits;
template <class Format>
constexpr auto half_bits = static_cast<std::int16_t>(0x8000 | (magnitude_mask<Format> << half_shift<Format>));

/// Of f16 in every lane, times `factor` if Scaled.
template <bool Past, bool Scaled>
HWY_INLINE void widen_halves_to(short_vector halves, hn::Vec<lane_floats> factor, float* to) {
  const lane_floats df;
  const hn::Half<shorts> half;
  const hn::Rebind<hwy::float16_t, lane_floats> dh;
  auto low = hn::PromoteTo(df, hn::BitCast(dh, hn::LowerHalf(half, halves)));
  auto high = hn::PromoteTo(df, hn::BitCast(dh, hn::UpperHalf(half, halves)));
  if constexpr (Scaled) {
    low = hn::Mul(low, factor);
    high = hn::Mul(high, factor);
  }
  store_vector<Past>(df, low, to);
  store_vector<Past>(df, high, to + lane_count);
}

HWY_INLINE bool any_nan(short_vector halves) {
  const auto magnitude = hn::And(halves, hn::Set(shorts(), 0x7fff));
  return !hn::AllFalse(shorts(), hn::Gt(magnitude, hn::Set(shorts(), 0x7c00)));
}

/// Values of codes of a byte each or, if Scaled, their products with 2^(moved / 2^23).
template <class Format, bool Scaled>
class byte_values {
 public:
  HWY_INLINE explicit byte_values(std::int32_t moved = 0)
      : moved_(moved), factor_(hn::BitCast(lane_floats(), set_lanes(half_rebias<Format> + moved))) {}

  template <std::int64_t Values, bool Past>
  HWY_INLINE void widen(const std::uint8_t* codes, float* to) const {
    if (any_nan_of<Values>(codes)) return widen_with_nan<Values, Past>(codes, to);
    const hn::Rebind<std::int8_t, shorts> d8;
    for (std::int64_t k = 0; k < Values; k += half_count) {
      const short_vector code =
          hn::PromoteTo(shorts(), hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes + k)));
      // The code's sign is in all bits above its magnitude.
      short_vector halves = hn::ShiftLeft<half_shift<Format>>(code);
      if constexpr (half_shift<Format> < 8) halves = hn::And(halves, hn::Set(shorts(), half_bits<Format>));
      widen_halves_to<Past, Scaled || half_rebias<Format> != 127 << 23>(halves, factor_, to + k);
    }
  }

 private:
  template <std::int64_t Values>
  static HWY_INLINE bool any_nan_of(const std::uint8_t* codes) {
    const hn::CappedTag<std::int8_t, Values> d8;
    static_assert(hn::MaxLanes(d8) == Values);
    const auto magnitude =
        hn::And(hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes)), hn::Set(d8, 0x7f));
    return !hn::AllFalse(d8, hn::Gt(magnitude, hn::Set(d8, largest_code<Format>)));
  }

  template <std::int64_t Values, bool Past>
  HWY_NOINLINE void widen_with_nan(const std::uint8_t* codes, float* to) const {
    widen_block<Format, Values, Past>(codes, set_lanes(widening_rebias<Format> + moved_),
                                      set_lanes(smallest_normal_bits<Format> + moved_), to);
  }

  std::int32_t moved_;
  hn::Vec<lane_floats> factor_;
};

template <bool Past>
void widen_halves(const std::uint16_t* stored, std::int64_t count, float* values) {
  widen_blocks<half_count, Past>(
      stored, count, values, [](auto past, const std::uint16_t* from, float* to) HWY_ATTR {
        const short_vector halves = hn::LoadU(shorts(), reinterpret_cast<const std::int16_t*>(from));
        if (any_nan(halves)) {
          widen_all<fp16_format>(reinterpret_cast<const std::uint8_t*>(from), half_count, to);
        } else {
          widen_halves_to<past.value, false>(halves, hn::Zero(lane_floats()), to);
        }
      });
}

#else
#define STASH_WIDENS_BY_HALVES 0

/// widen_codes() for codes at the upper end of 32 bits, above zeros: so they come from interleaving with
/// zeros, and no sign has to be moved.
template <class Format>
HWY_INLINE lane_vector widen_upper_codes(lane_vector codes, lane_vector rebias, lane_vector smallest) {
  constexpr int up = 32 - Format::bits;
  const lane_vector magnitude = magnitude_of(codes);
  lane_vector result =
      widen_magnitude(hn::ShiftRight<up + Format::mantissa_bits - 23>(magnitude), rebias, smallest);
  if constexpr (Format::ieee) {
    const auto special = hn::Gt(magnitude, set_lanes(Format::largest_finite << up));
    result = hn::Or(result, hn::IfThenElseZero(special, set_lanes(f32_infinity)));
  } else if constexpr (Format::nan != 0) {
    result = hn::IfThenElse(hn::Eq(magnitude, set_lanes(Format::nan << up)), set_lanes(0x7fc00000), result);
  }
  return hn::Or(result, hn::Xor(codes, magnitude));
}

/// The values of codes at the upper ends of 16 bits.
template <class Format, bool Past>
HWY_INLINE void widen_upper_halves(hn::Vec<unsigned_shorts> halves, lane_vector rebias, lane_vector smallest,
                                   float* to) {
  const unsigned_shorts d16;
  const lane_vector low = hn::BitCast(lane_integers(), hn::InterleaveLower(d16, hn::Zero(d16), halves));
  const lane_vector high = hn::BitCast(lane_integers(), hn::InterleaveUpper(d16, hn::Zero(d16), halves));
  store_lanes_to<Past>(widen_upper_codes<Format>(low, rebias, smallest), to);
  store_lanes_to<Past>(widen_upper_codes<Format>(high, rebias, smallest), to + lane_count);
}

/// Values of codes of a byte each or, if Scaled, their products with 2^(moved / 2^23).
template <class Format, bool Scaled>
class byte_values {
 public:
  HWY_INLINE explicit byte_values(std::int32_t moved = 0)
      : rebias_(set_lanes(widening_rebias<Format> + moved)),
        smallest_(set_lanes(smallest_normal_bits<Format> + moved)) {}

  template <std::int64_t Values, bool Past>
  HWY_INLINE void widen(const std::uint8_t* codes, float* to) const {
    const hn::Repartition<std::uint8_t, lane_integers> d8;
    const unsigned_shorts d16;
    for (std::int64_t k = 0; k < Values; k += block_values) {
      const auto some = hn::LoadU(d8, codes + k);
      const auto low = hn::BitCast(d16, hn::InterleaveLower(d8, hn::Zero(d8), some));
      const auto high = hn::BitCast(d16, hn::InterleaveUpper(d8, hn::Zero(d8), some));
      widen_upper_halves<Format, Past>(low, rebias_, smallest_, to + k);
      widen_upper_halves<Format, Past>(high, rebias_, smallest_, to + k + block_values / 2);
    }
  }

 private:
  lane_vector rebias_, smallest_;
};

template <bool Past>
void widen_halves(const std::uint16_t* stored, std::int64_t count, float* values) {
  const lane_vector rebias = set_lanes(widening_rebias<fp16_format>);
  const lane_vector smallest = set_lanes(smallest_normal_bits<fp16_format>);
  widen_blocks<2 * lane_count, Past>(
      stored, count, values, [&](auto past, const std::uint16_t* from, float* to) HWY_ATTR {
        widen_upper_halves<fp16_format, past.value>(hn::LoadU(unsigned_shorts(), from), rebias, smallest, to);
      });
}

#endif

template <class Format, bool Past>
void widen_bytes(const std::uint8_t* stored, std::int64_t count, float* values) {
  const byte_values<Format, false> block;
  widen_blocks<block_values, Past>(stored, count, values,
                                   [&](auto past, const std::uint8_t* from, float* to) HWY_ATTR {
                                     block.template widen<block_values, past.value>(from, to);
                                   });
}

template <bool Past>
void widen_from_bf16(const std::uint16_t* stored, std::int64_t count, float* values) {
  const hn::Rebind<std::uint16_t, lane_integers> d16;
  widen_blocks<2 * lane_count, Past>(
      stored, count, values, [&](auto past, const std::uint16_t* from, float* to) HWY_ATTR {
        for (std::int64_t i = 0; i < 2 * lane_count; i += lane_count) {
          const lane_vector code = hn::PromoteTo(lane_integers(), hn::LoadU(d16, from + i));
          store_lanes_to<past.value>(hn::ShiftLeft<16>(code), to + i);
        }
      });
}

// fp10: three codes to a word.

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

// Three vectors of values come from a vector of words.

/// For the lanes of the r-th vector: in which word the code is, and where it begins there.
constexpr lane_numbers words_of(std::int64_t r) {
  lane_numbers words{};
  for (std::int64_t j = 0; j < lane_count; ++j)
    words[static_cast<std::size_t>(j)] = static_cast<std::int32_t>((r * lane_count + j) / 3);
  return words;
}
constexpr lane_numbers shifts_of(std::int64_t r) {
  lane_numbers shifts{};
  for (std::int64_t j = 0; j < lane_count; ++j)
    shifts[static_cast<std::size_t>(j)] = static_cast<std::int32_t>((r * lane_count + j) % 3 * 10);
  return shifts;
}
alignas(64) constexpr lane_numbers word_indices[3] = {words_of(0), words_of(1), words_of(2)};
alignas(64) constexpr lane_numbers code_shifts[3] = {shifts_of(0), shifts_of(1), shifts_of(2)};

class word_values {
 public:
  static constexpr std::int64_t values = 3 * lane_count;

  HWY_INLINE word_values()
      : rebias_(set_lanes(widening_rebias<fp10_format>)),
        smallest_(set_lanes(smallest_normal_bits<fp10_format>)) {}

  template <bool Past>
  HWY_INLINE void widen(const std::uint32_t* from, float* to) const {
    const lane_integers di;
    const lane_vector three = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(from));
    for (std::size_t r = 0; r < 3; ++r) {
      const auto codes = hn::TableLookupLanes(three, hn::SetTableIndices(di, word_indices[r].data()));
      const auto shifted = hn::Shr(codes, hn::LoadU(di, code_shifts[r].data()));
      store_lanes_to<Past>(widen_codes<fp10_format>(shifted, rebias_, smallest_),
                           to + static_cast<std::int64_t>(r) * lane_count);
    }
  }

 private:
  lane_vector rebias_, smallest_;
};

#else

/// A code is the upper end of f16. Eight of them lie in 16 bytes: the two with a code are brought together,
/// and a multiplication moves it to the upper end.
class word_values {
 public:
  static constexpr std::int64_t values = 24;  // three times eight, of eight words

  HWY_INLINE word_values()
      : rebias_(set_lanes(widening_rebias<fp10_format>)),
        smallest_(set_lanes(smallest_normal_bits<fp10_format>)) {}

  template <bool Past>
  HWY_INLINE void widen(const std::uint32_t* from, float* to) const {
    for (std::size_t third = 0; third < 3; ++third)
      widen_eight<Past>(halves_of(from, third), to + 8 * third);
  }

 private:
  using shorts8 = hn::CappedTag<std::uint16_t, 8>;
  using eight_halves = hn::Vec<shorts8>;

  static HWY_INLINE eight_halves halves_of(const std::uint32_t* from, std::size_t third) {
    const shorts8 d16;
    const hn::Repartition<std::uint8_t, shorts8> d8;
    const auto loaded = hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from) + 8 * third);
    const auto bytes = hn::TableLookupBytes(loaded, hn::Load(d8, byte_indices[third].data()));
    const auto moved = hn::Mul(hn::BitCast(d16, bytes), hn::Load(d16, moves[third].data()));
    return hn::And(moved, hn::Set(d16, 0xffc0));
  }

  template <bool Past>
  HWY_INLINE void widen_eight(eight_halves halves, float* to) const {
#if HWY_TARGET == HWY_AVX2
    const shorts8 d16;
    const hn::RebindToSigned<shorts8> di16;
    const auto magnitude = hn::BitCast(di16, hn::And(halves, hn::Set(d16, 0x7fff)));
    if (hn::AllFalse(di16, hn::Gt(magnitude, hn::Set(di16, 0x7c00)))) {
      const hn::Rebind<hwy::float16_t, lane_floats> dh;
      return store_vector<Past>(lane_floats(), hn::PromoteTo(lane_floats(), hn::BitCast(dh, halves)), to);
    }
    const lane_vector codes = hn::ShiftRight<6>(hn::PromoteTo(lane_integers(), halves));
    store_lanes_to<Past>(widen_codes<fp10_format>(codes, rebias_, smallest_), to);
#else
    widen_upper_halves<fp10_format, Past>(halves, rebias_, smallest_, to);
#endif
  }

  alignas(16) static constexpr auto byte_indices = [] {
    std::array<std::array<std::uint8_t, 16>, 3> bytes{};
    for (std::size_t v = 0; v < values; ++v) {
      const auto from = static_cast<std::uint8_t>(v / 3 * 4 + v % 3 - v / 8 * 8);
      bytes[v / 8][v % 8 * 2] = from;
      bytes[v / 8][v % 8 * 2 + 1] = static_cast<std::uint8_t>(from + 1);
    }
    return bytes;
  }();
  /// Codes begin with bit 0, 2 (of the second byte) or 4 (of the third).
  alignas(16) static constexpr auto moves = [] {
    std::array<std::array<std::uint16_t, 8>, 3> powers{};
    for (std::size_t v = 0; v < values; ++v)
      powers[v / 8][v % 8] = static_cast<std::uint16_t>(64 >> (v % 3 * 2));
    return powers;
  }();

  lane_vector rebias_, smallest_;
};

#endif

template <bool Past>
void widen_from_words(const std::uint32_t* stored, std::int64_t count, float* values) {
  constexpr std::int64_t block = word_values::values;
  const std::ptrdiff_t ahead = fetch_distance(stored);
  const word_values of_words;
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    fetch_ahead<block / 3 * sizeof(std::uint32_t)>(stored + i / 3, ahead);
    of_words.widen<Past>(stored + i / 3, values + i);
  }
  if (i == count) return;
  std::uint32_t in[block / 3] = {};
  float out[block];
  std::memcpy(in, stored + i / 3, static_cast<std::size_t>((count - i + 2) / 3) * sizeof(std::uint32_t));
  of_words.widen<false>(in, out);
  std::memcpy(values + i, out, static_cast<std::size_t>(count - i) * sizeof(float));
}

template <bool Past>
void widen_into(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) {
  if (format == value_format::fp8_e4m3) {
    widen_bytes<fp8_e4m3_format, Past>(stored, count, values);
  } else if (format == value_format::fp8_e5m2) {
    widen_bytes<fp8_e5m2_format, Past>(stored, count, values);
  } else if (format == value_format::fp10) {
    widen_from_words<Past>(reinterpret_cast<const std::uint32_t*>(stored), count, values);
  } else if (format == value_format::bf16) {
    widen_from_bf16<Past>(reinterpret_cast<const std::uint16_t*>(stored), count, values);
  } else if (format == value_format::fp16) {
    widen_halves<Past>(reinterpret_cast<const std::uint16_t*>(stored), count, values);
  } else {
    widen_values(stored, count, format, values);
  }
}

void widen_fast(const std::uint8_t* stored, std::int64_t count, value_format format, float* values,
                destination to) {
  if (goes_past(values, to)) {
    widen_into<true>(stored, count, format, values);
  } else {
    widen_into<false>(stored, count, format, values);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
