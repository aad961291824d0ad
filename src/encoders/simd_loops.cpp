// The inner loops with Highway: this file is compiled once for every instruction set that Highway knows for
// the processor family, and cpu_target.cpp chooses among them at run time. All give the bits of scalar_loops.

#include "simd_loops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "convert.hpp"
#include "masked.hpp"
#include "mx.hpp"
#include "sign.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encoders/simd_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The plain loops (scalar_loops) take the place of Highway's emulations.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

HWY_BEFORE_NAMESPACE();

#undef STASH_LOOPS_NAMESPACE
#undef STASH_LOOPS_LANES
#undef STASH_LOOPS_ATTR
#define STASH_LOOPS_NAMESPACE HWY_NAMESPACE
#define STASH_LOOPS_ATTR HWY_ATTR
#if HWY_MAX_BYTES >= 64
#define STASH_LOOPS_LANES 16
#elif HWY_MAX_BYTES == 32
#define STASH_LOOPS_LANES 8
#else
#define STASH_LOOPS_LANES 4
#endif
#include "pool_vector-inl.hpp"
#include "value_loops-inl.hpp"

namespace stash::detail {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using floats = hn::CappedTag<float, 16>;
using words = hn::RebindToUnsigned<floats>;
using integers = hn::RebindToSigned<floats>;
using word_vector = hn::Vec<words>;
using word_mask = hn::Mask<words>;

HWY_INLINE word_vector load(const float* p) {
  return hn::BitCast(words(), hn::LoadU(floats(), p));
}
HWY_INLINE void store(word_vector v, float* p) {
  hn::StoreU(hn::BitCast(floats(), v), floats(), p);
}

// Comparisons look at the bits, so they do not depend on a "denormals are zero" mode.

HWY_INLINE word_mask is_positive(word_vector v) {
  const integers di;
  return hn::RebindMask(words(), hn::Gt(hn::BitCast(di, v), hn::Zero(di)));
}
HWY_INLINE word_mask is_nan_lane(word_vector v) {
  const integers di;
  const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, f32_magnitude_mask));
  return hn::RebindMask(words(), hn::Gt(magnitude, hn::Set(di, f32_infinity)));
}
HWY_INLINE word_mask passes_lane(word_vector v, bool nan_passes) {
  return nan_passes ? hn::Or(is_positive(v), is_nan_lane(v)) : hn::AndNot(is_nan_lane(v), is_positive(v));
}

/// Totally ordered like the numbers, both zeros being one.
HWY_INLINE hn::Vec<integers> ordered_lane(word_vector v) {
  const integers di;
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = hn::And(bits, hn::Set(di, f32_magnitude_mask));
  return hn::IfThenElse(hn::Lt(bits, hn::Zero(di)), hn::Sub(hn::Zero(di), magnitude), magnitude);
}
std::int32_t ordered_scalar(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & f32_magnitude_mask;
  return bits < 0 ? -magnitude : magnitude;
}

/// One bit per lane, from bit 0.
HWY_INLINE std::uint32_t bits_of_mask(word_mask m) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(words(), m, bytes);
  std::uint32_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}
/// Lanes whose bit is set; `at` is a multiple of the lanes.
HWY_INLINE word_mask mask_of_bits(const std::uint8_t* bits, std::int64_t at) {
  const words du;
  // Below eight lanes, two vectors share a byte. A few bytes more than needed may be read by Highway.
  std::uint8_t bytes[8] = {};
  if constexpr (hn::MaxLanes(words()) <= 4) {
    bytes[0] = static_cast<std::uint8_t>(bits[at / 8] >> (at % 8));
  } else {
    std::memcpy(bytes, bits + at / 8, std::max<std::size_t>(1, hn::MaxLanes(words()) / 8));
  }
  return hn::LoadMaskBits(du, bytes);
}

std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::Lanes(floats()));
}

/// Runs whole(first) for vectors of values and rest(i) for single ones.
template <class Whole, class Rest>
HWY_INLINE void in_vectors(std::int64_t count, const Whole& whole, const Rest& rest) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= count; i += step)
    whole(i);
  for (; i < count; ++i)
    rest(i);
}

/// Bit i of `bits` = test(value i); also for single values.
template <class Test, class TestOne>
HWY_INLINE void write_bits(const float* values, std::int64_t count, std::uint8_t* bits, const Test& test,
                           const TestOne& test_one) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  if constexpr (hn::MaxLanes(words()) >= 8) {
    // Four at once: their loads do not wait for each other's stores.
    for (; i + 4 * step <= count; i += 4 * step) {
      const word_mask m0 = test(load(values + i));
      const word_mask m1 = test(load(values + i + step));
      const word_mask m2 = test(load(values + i + 2 * step));
      const word_mask m3 = test(load(values + i + 3 * step));
      hn::StoreMaskBits(words(), m0, bits + i / 8);
      hn::StoreMaskBits(words(), m1, bits + (i + step) / 8);
      hn::StoreMaskBits(words(), m2, bits + (i + 2 * step) / 8);
      hn::StoreMaskBits(words(), m3, bits + (i + 3 * step) / 8);
    }
    for (; i + step <= count; i += step)
      hn::StoreMaskBits(words(), test(load(values + i)), bits + i / 8);
  } else {
    // Two vectors share a byte.
    for (; i + 8 <= count; i += 8) {
      std::uint32_t byte = 0;
      for (std::int64_t j = 0; j < 8; j += step)
        byte |= bits_of_mask(test(load(values + i + j))) << j;
      bits[i / 8] = static_cast<std::uint8_t>(byte);
    }
  }
  for (; i < count; i += 8) {
    unsigned last = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j)
      last |= unsigned{test_one(values[i + j])} << j;
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
}

bool bit_at(const std::uint8_t* bits, std::int64_t i) {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

void rectify(const float* x, std::int64_t count, float* y) {
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const word_vector v = load(x + i);
        store(hn::IfThenElseZero(passes_lane(v, true), v), y + i);
      },
      [&](std::int64_t i) { y[i] = masked(x[i], passes<framework_rule::pytorch>(x[i]) ? 1 : 0); });
}

void pass_bits(const float* values, std::int64_t count, framework_rule rule, std::uint8_t* bits) {
  const bool nan_passes = rule == framework_rule::pytorch;
  if (nan_passes) {
    write_bits(
        values, count, bits, [](word_vector v) HWY_ATTR { return passes_lane(v, true); },
        [](float v) { return passes<framework_rule::pytorch>(v); });
  } else {
    write_bits(
        values, count, bits, [](word_vector v) HWY_ATTR { return passes_lane(v, false); },
        [](float v) { return passes<framework_rule::tensorflow>(v); });
  }
}

void keep(const float* from, const std::uint8_t* bits, std::int64_t count, float* to) {
  in_vectors(
      count,
      [&](std::int64_t i)
          HWY_ATTR { store(hn::IfThenElseZero(mask_of_bits(bits, i), load(from + i)), to + i); },
      [&](std::int64_t i) { to[i] = masked(from[i], bit_at(bits, i) ? 1 : 0); });
}

void range_bits(const float* values, std::int64_t count, float lower, float upper, framework_rule rule,
                std::uint8_t* bits) {
  const integers di;
  const std::int32_t low = ordered_scalar(lower);
  const std::int32_t high = ordered_scalar(upper);
  const bool nan_passes = rule == framework_rule::pytorch;
  write_bits(
      values, count, bits,
      [&](word_vector v) HWY_ATTR {
        const auto key = ordered_lane(v);
        const auto inside = hn::And(hn::Gt(key, hn::Set(di, low)), hn::Lt(key, hn::Set(di, high)));
        const word_mask in_range = hn::RebindMask(words(), inside);
        return nan_passes ? hn::Or(in_range, is_nan_lane(v)) : hn::AndNot(is_nan_lane(v), in_range);
      },
      [&](float v) {
        const std::int32_t key = ordered_scalar(v);
        return is_nan(v) ? nan_passes : key > low && key < high;
      });
}

void clip(const float* x, std::int64_t count, float lower, float upper, float* y) {
  const integers di;
  const words du;
  const std::int32_t low = ordered_scalar(lower);
  const std::int32_t high = ordered_scalar(upper);
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const word_vector v = load(x + i);
        const auto key = ordered_lane(v);
        const word_mask below = hn::RebindMask(du, hn::Lt(key, hn::Set(di, low)));
        const word_mask above = hn::RebindMask(du, hn::Gt(key, hn::Set(di, high)));
        word_vector result = hn::IfThenElse(below, hn::Set(du, std::bit_cast<std::uint32_t>(lower)), v);
        result = hn::IfThenElse(above, hn::Set(du, std::bit_cast<std::uint32_t>(upper)), result);
        store(hn::IfThenElse(is_nan_lane(v), v, result), y + i);
      },
      [&](std::int64_t i) {
        const std::int32_t key = ordered_scalar(x[i]);
        const float limited = key < low ? lower : key > high ? upper : x[i];
        y[i] = is_nan(x[i]) ? x[i] : limited;
      });
}

void keep_or_scale(const float* from, const std::uint8_t* bits, std::int64_t count, float slope, float* to) {
  const floats df;
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const word_vector v = load(from + i);
        const auto scaled = hn::Mul(hn::BitCast(df, v), hn::Set(df, slope));
        const word_mask kept = hn::Or(mask_of_bits(bits, i), is_nan_lane(v));
        store(hn::IfThenElse(kept, v, hn::BitCast(words(), scaled)), to + i);
      },
      [&](std::int64_t i) { to[i] = bit_at(bits, i) || is_nan(from[i]) ? from[i] : slope * from[i]; });
}

std::int64_t count_bits(const std::uint8_t* mask, std::int64_t count) {
  std::int64_t total = 0;
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    std::uint64_t word;
    std::memcpy(&word, mask + i / 8, 8);
    total += std::popcount(word);
  }
  for (; i < count; ++i)
    total += bit_at(mask, i) ? 1 : 0;
  return total;
}

nonzero_bits find_nonzero(const float* values, std::int64_t count, std::uint8_t* bits) {
  const words du;
  // As unsigned numbers, NaN and everything with a sign lie above infinity.
  word_vector largest = hn::Zero(du);
  std::uint32_t largest_of_rest = 0;
  write_bits(
      values, count, bits,
      [&](word_vector v) HWY_ATTR {
        largest = hn::Max(largest, v);
        return hn::Ne(v, hn::Zero(du));
      },
      [&](float v) {
        largest_of_rest = std::max(largest_of_rest, std::bit_cast<std::uint32_t>(v));
        return std::bit_cast<std::uint32_t>(v) != 0;
      });
  const word_vector infinity = hn::Set(du, static_cast<std::uint32_t>(f32_infinity));
  const bool above = !hn::AllTrue(du, hn::Eq(hn::Max(largest, infinity), infinity));
  return {static_cast<std::uint32_t>(count_bits(bits, count)),
          above || largest_of_rest > static_cast<std::uint32_t>(f32_infinity)};
}

// Compaction works on at most eight lanes, whose order a table of 2 KiB holds (set_bits, for packing);
// Highway's own Compress and the missing Expand are slower or absent before AVX-512.

using eight = hn::CappedTag<float, 8>;

/// For every mask of eight lanes: for each lane, how many set ones are before it.
constexpr auto lanes_before = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned before = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      // Seven is as far as a vector of eight reaches; a lane without a value is cleared anyway.
      table[mask] |= std::uint64_t{std::min(before, 7U)} << (8 * lane);
      before += mask >> lane & 1;
    }
  }
  return table;
}();

/// `entry` is one of the tables' words.
HWY_INLINE auto lane_order(const std::uint64_t& entry) {
  const hn::RebindToSigned<eight> di;
  const hn::Rebind<std::uint8_t, decltype(di)> d8;
  auto order = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(&entry)));
  // The words of masks of four lanes say "up to four before" where there is no value.
  if constexpr (hn::MaxLanes(eight()) < 8) order = hn::Min(order, hn::Set(di, 3));
  return hn::IndicesFromVec(eight(), order);
}

/// The bits of the group of lanes at `i`.
HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  if constexpr (hn::MaxLanes(eight()) < 8) {
    return (bits[i / 8] >> (i % 8)) & 0xFU;
  } else {
    return bits[i / 8];
  }
}

/// Vectors are stored whole while they end before `end`; what comes then waits in a buffer.
void compact(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed,
             std::int64_t kept) {
  const eight d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const float* const end = packed + kept;
  float tail[2 * 8];
  float* waiting = tail;
  std::int64_t i = 0;
  for (; i + step <= count && packed + step <= end; i += step) {
    const unsigned mask = group_bits(bits, i);
    hn::StoreU(hn::TableLookupLanes(hn::LoadU(d, values + i), lane_order(set_bits[mask])), d, packed);
    packed += std::popcount(mask);
  }
  const std::int64_t rest = end - packed;
  for (; i + step <= count && waiting - tail < rest; i += step) {
    const unsigned mask = group_bits(bits, i);
    hn::StoreU(hn::TableLookupLanes(hn::LoadU(d, values + i), lane_order(set_bits[mask])), d, waiting);
    waiting += std::popcount(mask);
  }
  for (; i < count && waiting - tail < rest; ++i) {
    if (bit_at(bits, i)) *waiting++ = values[i];
  }
  std::memcpy(packed, tail, static_cast<std::size_t>(rest) * sizeof(float));
}

nonzero_bits find_and_compact(const float* values, std::int64_t count, std::uint8_t* bits, float* packed) {
  const eight d;
  const hn::RebindToUnsigned<eight> du;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const float* const begin = packed;
  const auto infinity = hn::Set(du, static_cast<std::uint32_t>(f32_infinity));
  auto largest = hn::Zero(du);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    unsigned byte = 0;
    for (std::int64_t j = 0; j < 8; j += step) {
      const auto v = hn::LoadU(d, values + i + j);
      const auto v_bits = hn::BitCast(du, v);
      largest = hn::Max(largest, v_bits);
      std::uint8_t stored[8];
      hn::StoreMaskBits(du, hn::Ne(v_bits, hn::Zero(du)), stored);
      const unsigned mask = stored[0];
      hn::StoreU(hn::TableLookupLanes(v, lane_order(set_bits[mask])), d, packed);
      packed += std::popcount(mask);
      byte |= mask << j;
    }
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
  bool above = !hn::AllTrue(du, hn::Eq(hn::Max(largest, infinity), infinity));
  if (i < count) {
    unsigned last = 0;
    for (std::int64_t j = 0; i + j < count; ++j) {
      const auto value = std::bit_cast<std::uint32_t>(values[i + j]);
      above |= value > static_cast<std::uint32_t>(f32_infinity);
      if (value == 0) continue;
      last |= 1U << j;
      *packed++ = values[i + j];
    }
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
  return {static_cast<std::uint32_t>(packed - begin), above};
}

void expand(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values) {
  const eight d;
  const hn::RebindToUnsigned<eight> du;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    const unsigned mask = group_bits(bits, i);
    const auto spread = hn::TableLookupLanes(hn::LoadU(d, packed), lane_order(lanes_before[mask]));
    const std::uint8_t one[8] = {static_cast<std::uint8_t>(mask)};
    const auto kept = hn::LoadMaskBits(du, one);
    hn::StoreU(hn::BitCast(d, hn::IfThenElseZero(kept, hn::BitCast(du, spread))), d, values + i);
    packed += std::popcount(mask);
  }
  for (; i < count; ++i) {
    const bool set = bit_at(bits, i);
    values[i] = masked(*packed, set ? 1 : 0);
    packed += set ? 1 : 0;
  }
}

// The conversions of convert.hpp to and from one byte, in vectors; compilers make less of them.

template <class Format>
void narrow_to_bytes(const float* values, std::int64_t count, underflow_rule underflow,
                     std::uint8_t* stored) {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << Format::mantissa_bits;
  constexpr std::int32_t smallest_normal = (127 - Format::bias + 1) << 23;
  const integers di;
  const hn::Rebind<std::uint8_t, floats> du8;
  const bool keep_nonzero = underflow == underflow_rule::keep_nonzero;
  const auto magnitude_bits = hn::Set(di, f32_magnitude_mask);
  const auto one = hn::Set(di, 1);
  const auto below_half = hn::Set(di, (1 << (shift - 1)) - 1);
  const auto anchor = hn::Set(di, subnormal_anchor<Format>);
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const auto v = hn::BitCast(di, load(values + i));
        const auto magnitude = hn::And(v, magnitude_bits);
        const auto odd = hn::And(hn::ShiftRight<shift>(magnitude), one);
        // An infinity would overflow here; it is no number that has to be rounded.
        const auto finite = hn::Min(magnitude, hn::Set(di, f32_infinity - 1));
        const auto rounded = hn::ShiftRight<shift>(hn::Add(hn::Add(finite, below_half), odd));
        auto result = hn::Min(hn::Sub(rounded, hn::Set(di, rebias)), hn::Set(di, Format::largest_finite));
        const auto anchored = hn::Add(hn::BitCast(floats(), magnitude), hn::BitCast(floats(), anchor));
        const auto subnormal = hn::Sub(hn::BitCast(di, anchored), anchor);
        result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, smallest_normal)), subnormal, result);
        if (keep_nonzero) {
          const auto lost = hn::And(hn::Eq(result, hn::Zero(di)), hn::Gt(magnitude, hn::Zero(di)));
          result = hn::IfThenElse(lost, one, result);
        }
        result =
            hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, f32_infinity)), hn::Set(di, Format::nan), result);
        const auto sign = hn::And(hn::ShiftRight<24>(v), hn::Set(di, 0x80));
        hn::StoreU(hn::DemoteTo(du8, hn::Or(result, sign)), du8, stored + i);
      },
      [&](std::int64_t i) {
        stored[i] = keep_nonzero ? narrow<Format, underflow_rule::keep_nonzero>(values[i])
                                 : narrow<Format, underflow_rule::to_zero>(values[i]);
      });
}

void narrow_to_bf16(const float* values, std::int64_t count, underflow_rule underflow,
                    std::uint16_t* stored) {
  const integers di;
  const hn::Rebind<std::uint16_t, floats> du16;
  const bool keep_nonzero = underflow == underflow_rule::keep_nonzero;
  const auto magnitude_bits = hn::Set(di, f32_magnitude_mask);
  const auto one = hn::Set(di, 1);
  const auto infinity = hn::Set(di, f32_infinity);
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const auto v = hn::BitCast(di, load(values + i));
        const auto magnitude = hn::And(v, magnitude_bits);
        const auto odd = hn::And(hn::ShiftRight<16>(magnitude), one);
        const auto finite = hn::Min(magnitude, hn::Set(di, bf16_format::largest_finite << 16));
        auto result = hn::ShiftRight<16>(hn::Add(hn::Add(finite, hn::Set(di, 0x7fff)), odd));
        result = hn::Min(result, hn::Set(di, bf16_format::largest_finite));
        if (keep_nonzero) {
          const auto lost = hn::And(hn::Eq(result, hn::Zero(di)), hn::Gt(magnitude, hn::Zero(di)));
          result = hn::IfThenElse(lost, one, result);
        }
        result =
            hn::IfThenElse(hn::Eq(magnitude, infinity), hn::Set(di, bf16_format::written_infinity), result);
        result = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(di, bf16_format::nan), result);
        const auto sign = hn::And(hn::ShiftRight<16>(v), hn::Set(di, 0x8000));
        hn::StoreU(hn::DemoteTo(du16, hn::Or(result, sign)), du16, stored + i);
      },
      [&](std::int64_t i) {
        stored[i] = keep_nonzero ? narrow<bf16_format, underflow_rule::keep_nonzero>(values[i])
                                 : narrow<bf16_format, underflow_rule::to_zero>(values[i]);
      });
}

template <class Format>
void widen_bytes(const std::uint8_t* stored, std::int64_t count, float* values) {
  constexpr int shift = 23 - Format::mantissa_bits;
  constexpr std::int32_t rebias = (127 - Format::bias) << 23;
  const integers di;
  const floats df;
  const hn::Rebind<std::uint8_t, floats> du8;
  const auto anchor = hn::Set(di, subnormal_anchor<Format>);
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const auto code = hn::PromoteTo(di, hn::LoadU(du8, stored + i));
        const auto magnitude = hn::And(code, hn::Set(di, 0x7f));
        const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(di, 0x80)));
        const auto moved = hn::ShiftLeft<shift>(magnitude);
        const auto steps = hn::Sub(hn::BitCast(df, hn::Add(magnitude, anchor)), hn::BitCast(df, anchor));
        auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << Format::mantissa_bits)),
                                     hn::BitCast(di, steps), hn::Add(moved, hn::Set(di, rebias)));
        const auto special = hn::Gt(magnitude, hn::Set(di, Format::largest_finite));
        const auto not_finite =
            Format::ieee ? hn::Or(moved, hn::Set(di, f32_infinity)) : hn::Set(di, 0x7fc00000);
        result = hn::Or(hn::IfThenElse(special, not_finite, result), sign);
        store(hn::BitCast(words(), result), values + i);
      },
      [&](std::int64_t i) { values[i] = widen<Format>(stored[i]); });
}

// The processor's conversions to and from f16 round as the format says from AVX2 on; what differs is mended
// around them. Below, Highway truncates, and the loops of value_loops-inl.hpp serve.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

using halves = hn::Rebind<hwy::float16_t, floats>;

void narrow_to_halves(const float* values, std::int64_t count, underflow_rule underflow,
                      std::uint16_t* stored) {
  // Magnitudes are compared as signed numbers, which is cheaper.
  const integers di;
  const bool keep_nonzero = underflow == underflow_rule::keep_nonzero;
  const auto magnitude_bits = hn::Set(di, f32_magnitude_mask);
  const auto infinity = hn::Set(di, f32_infinity);
  const auto largest = hn::Set(di, 0x477fe000);         // 65504
  const auto above_zero = hn::Set(di, 0x33000000 + 1);  // 2^-25 still rounds to zero
  const auto smallest = hn::Set(di, 0x33800000);        // 2^-24
  in_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        const auto v = hn::BitCast(di, load(values + i));
        const auto magnitude = hn::And(v, magnitude_bits);
        auto kept = hn::IfThenElse(hn::Lt(magnitude, infinity), hn::Min(magnitude, largest), magnitude);
        if (keep_nonzero) {
          const auto raised = hn::IfThenElse(hn::Lt(magnitude, above_zero), smallest, kept);
          kept = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(di)), raised);
        }
        kept = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(di, 0x7fc00000), kept);
        const auto rounded = hn::Or(kept, hn::AndNot(magnitude_bits, v));
        const auto half = hn::DemoteTo(halves(), hn::BitCast(floats(), rounded));
        hn::StoreU(half, halves(), reinterpret_cast<hwy::float16_t*>(stored) + i);
      },
      [&](std::int64_t i) {
        stored[i] = keep_nonzero ? narrow<fp16_format, underflow_rule::keep_nonzero>(values[i])
                                 : narrow<fp16_format, underflow_rule::to_zero>(values[i]);
      });
}

void widen_halves(const std::uint16_t* stored, std::int64_t count, float* values) {
  const integers di;
  const hn::Rebind<std::uint16_t, floats> du16;
  in_vectors(
      count,
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

constexpr bool has_halves = true;

#else

constexpr bool has_halves = false;
void narrow_to_halves(const float*, std::int64_t, underflow_rule, std::uint16_t*) {}
void widen_halves(const std::uint16_t*, std::int64_t, float*) {}

#endif

void narrow_fast(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                 std::uint8_t* stored) {
  if (format == value_format::fp8_e4m3) {
    narrow_to_bytes<fp8_e4m3_format>(values, count, underflow, stored);
  } else if (format == value_format::fp8_e5m2) {
    narrow_to_bytes<fp8_e5m2_format>(values, count, underflow, stored);
  } else if (format == value_format::bf16) {
    narrow_to_bf16(values, count, underflow, reinterpret_cast<std::uint16_t*>(stored));
  } else if (has_halves && format == value_format::fp16) {
    narrow_to_halves(values, count, underflow, reinterpret_cast<std::uint16_t*>(stored));
  } else {
    narrow_values(values, count, format, underflow, stored);
  }
}

void widen_fast(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) {
  if (format == value_format::fp8_e4m3) {
    widen_bytes<fp8_e4m3_format>(stored, count, values);
  } else if (format == value_format::fp8_e5m2) {
    widen_bytes<fp8_e5m2_format>(stored, count, values);
  } else if (has_halves && format == value_format::fp16) {
    widen_halves(reinterpret_cast<const std::uint16_t*>(stored), count, values);
  } else {
    widen_values(stored, count, format, values);
  }
}

constexpr auto tensorflow = framework_rule::tensorflow;
constexpr auto pytorch = framework_rule::pytorch;

constexpr run_loops table = {
    .rectify = rectify,
    .pass_bits = pass_bits,
    .keep = keep,
    .range_bits = range_bits,
    .clip = clip,
    .keep_or_scale = keep_or_scale,
    .find_nonzero = find_nonzero,
    .count_bits = count_bits,
    .compact = compact,
    .find_and_compact = find_and_compact,
    .expand = expand,
    .list_columns = list_columns,
    .narrow = narrow_fast,
    .widen = widen_fast,
    .narrow_exactly = narrow_values_exactly,
    .narrow_mx = narrow_groups,
    .widen_mx = widen_groups,
    .maximum = {{{max_kernel<tensorflow, false, false>::run, max_kernel<tensorflow, false, true>::run},
                 {max_kernel<tensorflow, true, false>::run, max_kernel<tensorflow, true, true>::run}},
                {{max_kernel<pytorch, false, false>::run, max_kernel<pytorch, false, true>::run},
                 {max_kernel<pytorch, true, false>::run, max_kernel<pytorch, true, true>::run}}},
    .scatter = scatter_run};

}  // namespace

const run_loops& loops_of_target() {
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace stash::detail

HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE

namespace stash::detail {

std::span<const simd_target> simd_targets() noexcept {
  struct list {
    std::array<simd_target, 8> targets{};
    std::size_t count = 0;
  };
  static const list known_targets = [] {
    list known;
    const auto add = [&](std::int64_t bit, const run_loops& version) {
      if ((hwy::SupportedTargets() & bit) != 0)
        known.targets[known.count++] = {hwy::TargetName(bit), &version};
    };
    // Best first: Highway gives better targets lower bits.
#if HWY_TARGETS & HWY_AVX3_DL
    add(HWY_AVX3_DL, N_AVX3_DL::loops_of_target());
#endif
#if HWY_TARGETS & HWY_AVX3
    add(HWY_AVX3, N_AVX3::loops_of_target());
#endif
#if HWY_TARGETS & HWY_AVX2
    add(HWY_AVX2, N_AVX2::loops_of_target());
#endif
#if HWY_TARGETS & HWY_SSE4
    add(HWY_SSE4, N_SSE4::loops_of_target());
#endif
#if HWY_TARGETS & HWY_SSSE3
    add(HWY_SSSE3, N_SSSE3::loops_of_target());
#endif
#if HWY_TARGETS & HWY_NEON
    add(HWY_NEON, N_NEON::loops_of_target());
#endif
    return known;
  }();
  return {known_targets.targets.data(), known_targets.count};
}

}  // namespace stash::detail

#endif
