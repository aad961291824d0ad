// Conversions between f32 and the narrow formats in vectors: the arithmetic of convert.hpp with fewer steps.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <array>
#include <bit>
#include <cstdint>

#include "convert.hpp"

namespace stash::detail {
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

/// Where the subnormal numbers of a format end, in the exponents of f32, perhaps moved by a power of two.
template <class Format>
struct rounding_anchor {
  static constexpr int shift = 23 - Format::mantissa_bits;

  /// `smallest`: bits of the smallest normal number.
  explicit HWY_INLINE rounding_anchor(lane_vector smallest)
      : smallest_normal(smallest), anchor(hn::Add(smallest, set_lanes(shift << 23))) {}

  lane_vector smallest_normal;
  /// The power of two whose last mantissa bit is worth one subnormal step.
  lane_vector anchor;
};

/// Code of a magnitude, which goes on counting above the largest finite number. The exponent of the anchor
/// has to stay one of a finite number: magnitudes lie below 2^100, times what the format is moved by.
///
/// Adding a power of two whose last mantissa bit is worth the last one of the code rounds, subnormals
/// included; what that leaves in the low bits is the code's mantissa.
template <class Format>
HWY_INLINE lane_vector round_magnitude(lane_vector magnitude, const rounding_anchor<Format>& at) {
  constexpr int shift = rounding_anchor<Format>::shift;
  const lane_integers di;
  const lane_floats df;
  const hn::Repartition<std::uint16_t, lane_integers> upper_halves;
  // Bits below the exponent are zero, so halves of lanes can be subtracted, which stops at zero.
  const lane_vector exponent = hn::And(magnitude, set_lanes(f32_infinity));
  const lane_vector above = hn::BitCast(di, hn::SaturatedSub(hn::BitCast(upper_halves, exponent),
                                                             hn::BitCast(upper_halves, at.smallest_normal)));
  const lane_vector anchor = hn::Add(above, at.anchor);
  const lane_vector sum = hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, anchor)));
  return hn::Add(hn::Sub(sum, anchor), hn::ShiftRight<shift>(above));
}

using shorts = hn::Repartition<std::int16_t, lane_integers>;
using unsigned_shorts = hn::RebindToUnsigned<shorts>;
using short_vector = hn::Vec<shorts>;

/// Within each 16 bytes: four lanes of the first vector, then four of the second. Saturates, which keeps
/// signs and what is not zero.
HWY_INLINE short_vector join(lane_vector first, lane_vector second) {
  return hn::ReorderDemote2To(shorts(), first, second);
}

using lane_numbers = std::array<std::int32_t, static_cast<std::size_t>(lane_count)>;

/// Where the lanes of `Vectors` joined vectors, of which every 16 bytes hold a part each, lie one behind the
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

/// Codes of the magnitudes of two joined vectors.
struct pair_codes {
  short_vector codes;
  short_vector signs;  ///< in the highest bits
};

/// For magnitudes that round_magnitude() takes.
template <class Format, underflow_rule Underflow>
HWY_INLINE pair_codes round_pair(const float* from, const rounding_anchor<Format>& at) {
  const lane_vector v0 = load_lanes_of(from);
  const lane_vector v1 = load_lanes_of(from + lane_count);
  const lane_vector magnitude0 = magnitude_of(v0);
  const lane_vector magnitude1 = magnitude_of(v1);
  short_vector codes = join(round_magnitude(magnitude0, at), round_magnitude(magnitude1, at));
  codes = hn::Min(codes, hn::Set(shorts(), Format::largest_finite));
  if constexpr (Underflow == underflow_rule::keep_nonzero)
    codes = hn::Max(codes, hn::Min(join(magnitude0, magnitude1), hn::Set(shorts(), 1)));
  return {codes, join(v0, v1)};
}

/// From block_values values to one code in each byte. The halves of a block may be of two groups.
template <class Format, underflow_rule Underflow>
class byte_block {
 public:
  using bytes = hn::Repartition<std::uint8_t, lane_integers>;
  using byte_vector = hn::Vec<bytes>;

  explicit HWY_INLINE byte_block(lane_vector smallest_normal)
      : byte_block(smallest_normal, smallest_normal) {}
  HWY_INLINE byte_block(lane_vector first_smallest, lane_vector second_smallest)
      : first_(first_smallest), second_(second_smallest) {}

  /// For magnitudes that round_magnitude() takes.
  HWY_INLINE byte_vector convert(const float* from) const {
    constexpr int sign_bit = Format::bits - 1;
    const unsigned_shorts d16;
    const bytes d8;
    const pair_codes first = round_pair<Format, Underflow>(from, first_);
    const pair_codes second = round_pair<Format, Underflow>(from + 2 * lane_count, second_);
    // A pair of vectors fills the lower bytes, the other one the upper.
    const auto low = hn::BitCast(d16, first.codes);
    const auto high = hn::ShiftLeft<8>(hn::BitCast(d16, second.codes));
    const auto low_sign = hn::And(hn::ShiftRight<15 - sign_bit>(hn::BitCast(d16, first.signs)),
                                  hn::Set(d16, std::uint16_t{1} << sign_bit));
    const auto high_sign = hn::And(hn::ShiftRight<7 - sign_bit>(hn::BitCast(d16, second.signs)),
                                   hn::Set(d16, std::uint16_t{0x100} << sign_bit));
    const auto all = hn::Or(hn::Or(low, high), hn::Or(low_sign, high_sign));
    alignas(16) static constexpr std::uint8_t order[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                           1, 3, 5, 7, 9, 11, 13, 15};
    const auto sorted = hn::TableLookupBytes(hn::BitCast(d8, all), hn::LoadDup128(d8, order));
    return hn::BitCast(d8, untangle<4>(hn::BitCast(lane_integers(), sorted)));
  }

 private:
  rounding_anchor<Format> first_, second_;
};

/// True if all magnitudes lie below `limit`, given as bits; those of infinity and NaN do not.
HWY_INLINE bool all_below(lane_vector magnitudes, std::int32_t limit) {
  return hn::AllTrue(lane_integers(), hn::Lt(magnitudes, set_lanes(limit)));
}

template <std::int64_t Vectors>
HWY_INLINE lane_vector largest_magnitudes(const float* from) {
  lane_vector largest = magnitude_of(load_lanes_of(from));
  for (std::int64_t i = 1; i < Vectors; ++i)
    largest = hn::Max(largest, magnitude_of(load_lanes_of(from + i * lane_count)));
  return largest;
}

template <class Format, underflow_rule Underflow>
void narrow_to_bytes(const float* values, std::int64_t count, std::uint8_t* stored) {
  using codes = byte_block<Format, Underflow>;
  constexpr std::int32_t limit = (127 + 100) << 23;
  const codes block(set_lanes(smallest_normal_bits<Format>));
  convert_blocks<block_values>(values, count, stored, [&](const float* from, std::uint8_t* to) HWY_ATTR {
    if (all_below(largest_magnitudes<4>(from), limit)) {
      hn::StoreU(block.convert(from), typename codes::bytes(), to);
    } else {
      narrow_all<Format, Underflow>(from, block_values, to);
    }
  });
}

/// Three codes to a word.
template <underflow_rule Underflow>
void narrow_to_words(const float* values, std::int64_t count, std::uint32_t* stored) {
  using format = fp10_format;
  const lane_integers di;
  constexpr std::int64_t block = 3 * lane_count;
  const rounding_anchor<format> anchor(set_lanes(smallest_normal_bits<format>));
  const auto code_of = [&](hn::Vec<lane_floats> value) HWY_ATTR {
    const lane_vector v = hn::BitCast(di, value);
    const lane_vector magnitude = magnitude_of(v);
    lane_vector code = round_magnitude(magnitude, anchor);
    if constexpr (Underflow == underflow_rule::keep_nonzero)
      code = hn::Max(code, hn::Min(magnitude, set_lanes(1)));
    return hn::Or(code, hn::And(hn::ShiftRight<31 - 9>(v), set_lanes(1 << 9)));
  };
  const auto convert = [&](const float* from, std::uint32_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<3>(from), largest_finite_bits<format> + 1)) {
      narrow_words<Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    hn::Vec<lane_floats> first, second, third;
    hn::LoadInterleaved3(lane_floats(), from, first, second, third);
    const lane_vector words_of_three =
        hn::Or(code_of(first), hn::Or(hn::ShiftLeft<10>(code_of(second)), hn::ShiftLeft<20>(code_of(third))));
    hn::StoreU(words_of_three, di, reinterpret_cast<std::int32_t*>(to));
  };
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    fetch_ahead<block * sizeof(float)>(values + i);
    fetch_ahead<block / 3 * sizeof(std::uint32_t)>(stored + i / 3);
    convert(values + i, stored + i / 3);
  }
  if (i == count) return;
  float in[block] = {};
  std::uint32_t out[lane_count];
  std::memcpy(in, values + i, static_cast<std::size_t>(count - i) * sizeof(float));
  convert(in, out);
  std::memcpy(stored + i / 3, out, static_cast<std::size_t>((count - i + 2) / 3) * sizeof(std::uint32_t));
}

template <underflow_rule Underflow>
void narrow_to_bf16(const float* values, std::int64_t count, std::uint16_t* stored) {
  using format = bf16_format;
  constexpr std::int64_t block = 2 * lane_count;
  const lane_integers di;
  const shorts d16;
  const auto round = [&](lane_vector v) HWY_ATTR {
    const lane_vector odd = hn::And(hn::ShiftRight<16>(v), set_lanes(1));
    return hn::ShiftRight<16>(hn::Add(hn::Add(v, set_lanes(0x7fff)), odd));
  };
  convert_blocks<block>(values, count, stored, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<format> + 1)) {
      narrow_all<format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    const lane_vector v0 = load_lanes_of(from);
    const lane_vector v1 = load_lanes_of(from + lane_count);
    auto codes = join(round(v0), round(v1));
    if constexpr (Underflow == underflow_rule::keep_nonzero) {
      const auto nonzero = hn::Min(join(magnitude_of(v0), magnitude_of(v1)), hn::Set(d16, 1));
      const auto zeros = hn::VecFromMask(d16, hn::Eq(hn::Add(codes, codes), hn::Zero(d16)));
      codes = hn::Or(codes, hn::And(zeros, nonzero));
    }
    hn::StoreU(untangle<2>(hn::BitCast(di, codes)), di, reinterpret_cast<std::int32_t*>(to));
  });
}

/// Value of a magnitude of Format. `rebias` moves the exponent, and `smallest` is the bits of the smallest
/// normal number; both may be those of a product with a power of two.
///
/// The exponent is moved as if every number were normal, f. That of a subnormal is 2 f - smallest then, which
/// is below f; of every other number f is below that.
template <class Format>
HWY_INLINE hn::Vec<lane_floats> widen_magnitude(lane_vector magnitude, lane_vector rebias,
                                                lane_vector smallest) {
  const lane_floats df;
  const lane_vector moved = hn::ShiftLeft<23 - Format::mantissa_bits>(magnitude);
  const auto as_normal = hn::BitCast(df, hn::Add(moved, rebias));
  const auto as_subnormal = hn::Add(hn::Sub(as_normal, hn::BitCast(df, smallest)), as_normal);
  return hn::Min(as_normal, as_subnormal);
}

/// Value of codes in the low bits of 32, for exponents moved as in widen_magnitude(); infinities and NaN stay
/// what they are. Bits above the code are ignored.
template <class Format>
HWY_INLINE lane_vector widen_codes(lane_vector codes, lane_vector rebias, lane_vector smallest) {
  const lane_integers di;
  const lane_vector magnitude = hn::And(codes, set_lanes(magnitude_mask<Format>));
  lane_vector result = hn::BitCast(di, widen_magnitude<Format>(magnitude, rebias, smallest));
  if constexpr (Format::ieee) {
    const lane_vector special =
        hn::Or(hn::ShiftLeft<23 - Format::mantissa_bits>(magnitude), set_lanes(f32_infinity));
    result = hn::IfThenElse(hn::Gt(magnitude, set_lanes(Format::largest_finite)), special, result);
  } else if constexpr (Format::nan != 0) {
    result = hn::IfThenElse(hn::Eq(magnitude, set_lanes(Format::nan)), set_lanes(0x7fc00000), result);
  }
  const lane_vector sign = hn::And(hn::ShiftLeft<32 - Format::bits>(codes), set_lanes(~f32_magnitude_mask));
  return hn::Or(result, sign);
}

template <class Format>
constexpr std::int32_t widening_rebias = (127 - Format::bias) << 23;

HWY_INLINE void store_lanes_to(lane_vector v, float* to) {
  hn::StoreU(hn::BitCast(lane_floats(), v), lane_floats(), to);
}

/// The values of so many codes of one byte each.
template <class Format, std::int64_t Values>
HWY_INLINE void widen_block(const std::uint8_t* codes, lane_vector rebias, lane_vector smallest, float* to) {
  const hn::Rebind<std::uint8_t, lane_integers> du8;
  for (std::int64_t k = 0; k < Values; k += lane_count) {
    const lane_vector code = hn::PromoteTo(lane_integers(), hn::LoadU(du8, codes + k));
    store_lanes_to(widen_codes<Format>(code, rebias, smallest), to + k);
  }
}

template <class Format>
void widen_bytes(const std::uint8_t* stored, std::int64_t count, float* values) {
  const lane_vector rebias = set_lanes(widening_rebias<Format>);
  const lane_vector smallest = set_lanes(smallest_normal_bits<Format>);
  convert_blocks<block_values>(stored, count, values, [&](const std::uint8_t* from, float* to) HWY_ATTR {
    widen_block<Format, block_values>(from, rebias, smallest, to);
  });
}

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

void widen_from_words(const std::uint32_t* stored, std::int64_t count, float* values) {
  using format = fp10_format;
  const lane_integers di;
  constexpr std::int64_t block = 3 * lane_count;
  static constexpr lane_numbers words[3] = {words_of(0), words_of(1), words_of(2)};
  static constexpr lane_numbers shifts[3] = {shifts_of(0), shifts_of(1), shifts_of(2)};
  const lane_vector rebias = set_lanes(widening_rebias<format>);
  const lane_vector smallest = set_lanes(smallest_normal_bits<format>);
  const auto convert = [&](const std::uint32_t* from, float* to) HWY_ATTR {
    const lane_vector three = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(from));
    for (std::size_t r = 0; r < 3; ++r) {
      const auto codes = hn::TableLookupLanes(three, hn::SetTableIndices(di, words[r].data()));
      const auto shifted = hn::Shr(codes, hn::LoadU(di, shifts[r].data()));
      store_lanes_to(widen_codes<format>(shifted, rebias, smallest),
                     to + static_cast<std::int64_t>(r) * lane_count);
    }
  };
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    fetch_ahead<block / 3 * sizeof(std::uint32_t)>(stored + i / 3);
    fetch_ahead<block * sizeof(float)>(values + i);
    convert(stored + i / 3, values + i);
  }
  if (i == count) return;
  std::uint32_t in[lane_count] = {};
  float out[block];
  std::memcpy(in, stored + i / 3, static_cast<std::size_t>((count - i + 2) / 3) * sizeof(std::uint32_t));
  convert(in, out);
  std::memcpy(values + i, out, static_cast<std::size_t>(count - i) * sizeof(float));
}

void widen_from_bf16(const std::uint16_t* stored, std::int64_t count, float* values) {
  const hn::Rebind<std::uint16_t, lane_integers> d16;
  convert_blocks<2 * lane_count>(stored, count, values, [&](const std::uint16_t* from, float* to) HWY_ATTR {
    for (std::int64_t i = 0; i < 2 * lane_count; i += lane_count) {
      const lane_vector code = hn::PromoteTo(lane_integers(), hn::LoadU(d16, from + i));
      store_lanes_to(hn::ShiftLeft<16>(code), to + i);
    }
  });
}

// The processor's conversions to and from f16 round as the format says from AVX2 on; what differs is mended
// around them. Below, Highway truncates.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

using halves = hn::Rebind<hwy::float16_t, floats>;

template <underflow_rule Underflow>
void narrow_to_halves(const float* values, std::int64_t count, std::uint16_t* stored) {
  constexpr std::int32_t smallest = 0x33800000;  // 2^-24
  constexpr std::int64_t block = 2 * lane_count;
  const hn::Rebind<hwy::float16_t, lane_floats> dh;
  convert_blocks<block>(values, count, stored, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<fp16_format> + 1)) {
      narrow_all<fp16_format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    for (std::int64_t i = 0; i < block; i += lane_count) {
      lane_vector v = load_lanes_of(from + i);
      if constexpr (Underflow == underflow_rule::keep_nonzero) {
        const lane_vector magnitude = magnitude_of(v);
        const lane_vector raised = hn::Max(magnitude, set_lanes(smallest));
        const lane_vector kept = hn::IfThenZeroElse(hn::Eq(magnitude, set_lanes(0)), raised);
        v = hn::Or(kept, hn::AndNot(set_lanes(f32_magnitude_mask), v));
      }
      const auto half = hn::DemoteTo(dh, hn::BitCast(lane_floats(), v));
      hn::StoreU(half, dh, reinterpret_cast<hwy::float16_t*>(to) + i);
    }
  });
}

void widen_halves(const std::uint16_t* stored, std::int64_t count, float* values) {
  const integers di;
  const hn::Rebind<std::uint16_t, floats> du16;
  in_vectors(
      stored, count, values,
      [&](std::int64_t i) HWY_ATTR {
        const auto half = hn::LoadU(halves(), reinterpret_cast<const hwy::float16_t*>(stored) + i);
        const auto wide = hn::BitCast(di, hn::PromoteTo(floats(), half));
        // The processor makes a signalling NaN quiet; all other bits are those of the format.
        const auto bits = hn::PromoteTo(di, hn::LoadU(du16, stored + i));
        const auto magnitude = hn::And(bits, hn::Set(di, 0x7fff));
        const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
        const auto nan = hn::Or(sign, hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(di, f32_infinity)));
        const auto result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7c00)), nan, wide);
        store(hn::BitCast(words(), result), values + i);
      },
      [&](std::int64_t i) { values[i] = widen<fp16_format>(stored[i]); });
}

#else

template <underflow_rule Underflow>
void narrow_to_halves(const float* values, std::int64_t count, std::uint16_t* stored) {
  using format = fp16_format;
  constexpr std::int64_t block = 2 * lane_count;
  const rounding_anchor<format> anchor(set_lanes(smallest_normal_bits<format>));
  convert_blocks<block>(values, count, stored, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<format> + 1)) {
      narrow_all<format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    const pair_codes pair = round_pair<format, Underflow>(from, anchor);
    const short_vector sign = hn::AndNot(hn::Set(shorts(), 0x7fff), pair.signs);
    hn::StoreU(untangle<2>(hn::BitCast(lane_integers(), hn::Or(pair.codes, sign))), lane_integers(),
               reinterpret_cast<std::int32_t*>(to));
  });
}

void widen_halves(const std::uint16_t* stored, std::int64_t count, float* values) {
  widen_values(reinterpret_cast<const std::uint8_t*>(stored), count, value_format::fp16, values);
}

#endif

template <underflow_rule Underflow>
void narrow_with(const float* values, std::int64_t count, value_format format, std::uint8_t* stored) {
  if (format == value_format::fp8_e4m3) {
    narrow_to_bytes<fp8_e4m3_format, Underflow>(values, count, stored);
  } else if (format == value_format::fp8_e5m2) {
    narrow_to_bytes<fp8_e5m2_format, Underflow>(values, count, stored);
  } else if (format == value_format::fp10) {
    narrow_to_words<Underflow>(values, count, reinterpret_cast<std::uint32_t*>(stored));
  } else if (format == value_format::bf16) {
    narrow_to_bf16<Underflow>(values, count, reinterpret_cast<std::uint16_t*>(stored));
  } else if (format == value_format::fp16) {
    narrow_to_halves<Underflow>(values, count, reinterpret_cast<std::uint16_t*>(stored));
  } else {
    narrow_values(values, count, format, Underflow, stored);
  }
}

void narrow_fast(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                 std::uint8_t* stored) {
  if (underflow == underflow_rule::keep_nonzero) {
    narrow_with<underflow_rule::keep_nonzero>(values, count, format, stored);
  } else {
    narrow_with<underflow_rule::to_zero>(values, count, format, stored);
  }
}

void widen_fast(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) {
  if (format == value_format::fp8_e4m3) {
    widen_bytes<fp8_e4m3_format>(stored, count, values);
  } else if (format == value_format::fp8_e5m2) {
    widen_bytes<fp8_e5m2_format>(stored, count, values);
  } else if (format == value_format::fp10) {
    widen_from_words(reinterpret_cast<const std::uint32_t*>(stored), count, values);
  } else if (format == value_format::bf16) {
    widen_from_bf16(reinterpret_cast<const std::uint16_t*>(stored), count, values);
  } else if (format == value_format::fp16) {
    widen_halves(reinterpret_cast<const std::uint16_t*>(stored), count, values);
  } else {
    widen_values(stored, count, format, values);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::detail
