// SPDX-License-Identifier: Apache-2.0
// Masks in vectors: one bit per value, and what is done with it.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "encoders/format/convert.hpp"
#include "encoders/format/masked.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

// Comparisons look at the bits, so they do not depend on a "denormals are zero" mode.

HWY_INLINE word_mask is_nan_lane(word_vector v) {
  const integers di;
  const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, f32_magnitude_mask));
  return hn::RebindMask(words(), hn::Gt(magnitude, hn::Set(di, f32_infinity)));
}
/// Where ReLU's gradient passes. As signed numbers, NaN with a sign lie between the negative infinity and
/// zero.
HWY_INLINE word_mask passes_lane(word_vector v, bool nan_passes) {
  const integers di;
  const auto bits = hn::BitCast(di, v);
  const auto zero = hn::Zero(di);
  if (nan_passes) {
    const auto not_negative = hn::Gt(bits, hn::Set(di, ~f32_magnitude_mask + f32_infinity));
    return hn::RebindMask(words(), hn::AndNot(hn::Eq(bits, zero), not_negative));
  }
  // From 1 to infinity, moved to the lowest numbers, so that one comparison does.
  const auto moved = hn::Add(bits, hn::Set(di, f32_magnitude_mask));
  return hn::RebindMask(words(), hn::Lt(moved, hn::Set(di, ~f32_magnitude_mask + f32_infinity)));
}

/// Totally ordered like the numbers, -0 directly below 0; NaN lies outside the infinities.
constexpr std::int32_t strict_key(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  return bits < 0 ? bits ^ f32_magnitude_mask : bits;
}
HWY_INLINE hn::Vec<integers> strict_key_lane(word_vector v) {
  const integers di;
  const auto bits = hn::BitCast(di, v);
  return hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(di, f32_magnitude_mask)));
}
/// Keys of the lowest and the highest number that equals a bound: of both zeros, if it is one.
constexpr std::int32_t lowest_key(float bound) {
  return ordered(bound) == 0 ? strict_key(-0.0F) : strict_key(bound);
}
constexpr std::int32_t highest_key(float bound) {
  return ordered(bound) == 0 ? strict_key(0.0F) : strict_key(bound);
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

/// Bit i of `bits` = test(value i, i), of vectors from value i on and of single values. `Fetches` is for
/// tests that only read: with it a ReLU with its mask took 1.05 times as long.
template <bool Fetches, class Test, class TestOne>
HWY_INLINE void write_bits(const float* values, std::int64_t count, std::uint8_t* bits, const Test& test,
                           const TestOne& test_one) {
  const std::int64_t step = lanes();
  const std::ptrdiff_t ahead = fetch_distance(values);
  std::int64_t i = 0;
  if constexpr (hn::MaxLanes(words()) >= 8) {
    // Four at once: their loads do not wait for each other's stores.
    for (; i + 4 * step <= count; i += 4 * step) {
      if (Fetches) fetch_ahead<4 * hn::MaxLanes(words()) * sizeof(float)>(values + i, ahead);
      const word_mask m0 = test(load(values + i), i);
      const word_mask m1 = test(load(values + i + step), i + step);
      const word_mask m2 = test(load(values + i + 2 * step), i + 2 * step);
      const word_mask m3 = test(load(values + i + 3 * step), i + 3 * step);
      hn::StoreMaskBits(words(), m0, bits + i / 8);
      hn::StoreMaskBits(words(), m1, bits + (i + step) / 8);
      hn::StoreMaskBits(words(), m2, bits + (i + 2 * step) / 8);
      hn::StoreMaskBits(words(), m3, bits + (i + 3 * step) / 8);
    }
    for (; i + step <= count; i += step)
      hn::StoreMaskBits(words(), test(load(values + i), i), bits + i / 8);
  } else {
    // Two vectors share a byte.
    for (; i + 8 <= count; i += 8) {
      if (Fetches) fetch_ahead<8 * sizeof(float)>(values + i, ahead);
      std::uint32_t byte = 0;
      for (std::int64_t j = 0; j < 8; j += step)
        byte |= bits_of_mask(test(load(values + i + j), i + j)) << j;
      bits[i / 8] = static_cast<std::uint8_t>(byte);
    }
  }
  for (; i < count; i += 8) {
    unsigned last = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j)
      last |= unsigned{test_one(values[i + j], i + j)} << j;
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
}

HWY_INLINE void rectify_values(const float* x, std::int64_t count, float* y) {
  in_vectors(
      x, count,
      [&](std::int64_t i) HWY_ATTR {
        const word_vector v = load(x + i);
        store(hn::IfThenElseZero(passes_lane(v, true), v), y + i);
      },
      [&](std::int64_t i) { y[i] = masked(x[i], passes<framework_rule::pytorch>(x[i]) ? 1 : 0); });
}

void rectify(const float* x, std::int64_t count, float* y, destination to) {
  fill_run(count, y, to, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    rectify_values(x + first, n, values);
  });
}

void pass_bits(const float* values, std::int64_t count, framework_rule rule, std::uint8_t* bits) {
  const bool nan_passes = rule == framework_rule::pytorch;
  if (nan_passes) {
    write_bits<true>(
        values, count, bits, [](word_vector v, std::int64_t) HWY_ATTR { return passes_lane(v, true); },
        [](float v, std::int64_t) { return passes<framework_rule::pytorch>(v); });
  } else {
    write_bits<true>(
        values, count, bits, [](word_vector v, std::int64_t) HWY_ATTR { return passes_lane(v, false); },
        [](float v, std::int64_t) { return passes<framework_rule::tensorflow>(v); });
  }
}

HWY_INLINE void rectify_values_with_bits(const float* x, std::int64_t count, framework_rule rule, float* y,
                                         std::uint8_t* bits) {
  const bool nan_passes = rule == framework_rule::pytorch;
  write_bits<false>(
      x, count, bits,
      [&](word_vector v, std::int64_t i) HWY_ATTR {
        const word_mask kept = passes_lane(v, true);
        store(hn::IfThenElseZero(kept, v), y + i);
        return nan_passes ? kept : passes_lane(v, false);
      },
      [&](float v, std::int64_t i) {
        const bool kept = passes<framework_rule::pytorch>(v);
        y[i] = masked(v, kept ? 1 : 0);
        return nan_passes ? kept : passes<framework_rule::tensorflow>(v);
      });
}

void rectify_with_bits(const float* x, std::int64_t count, framework_rule rule, float* y, std::uint8_t* bits,
                       destination to) {
  fill_run(count, y, to, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    rectify_values_with_bits(x + first, n, rule, values, bits + first / 8);
  });
}

HWY_INLINE void keep_values(const float* from, const std::uint8_t* bits, std::int64_t count, float* to) {
  in_vectors(
      from, count,
      [&](std::int64_t i)
          HWY_ATTR { store(hn::IfThenElseZero(mask_of_bits(bits, i), load(from + i)), to + i); },
      [&](std::int64_t i) { to[i] = masked(from[i], bit_at(bits, i) ? 1 : 0); });
}

void keep(const float* from, const std::uint8_t* bits, std::int64_t count, float* to, destination where) {
  fill_run(count, to, where, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    keep_values(from + first, bits + first / 8, n, values);
  });
}

/// Whether `inside` holds, or the value is NaN and those pass.
template <class Inside, class InsideOne>
HWY_INLINE void write_range_bits(const float* values, std::int64_t count, framework_rule rule,
                                 std::uint8_t* bits, const Inside& inside, const InsideOne& inside_one) {
  if (rule == framework_rule::pytorch) {
    write_bits<true>(
        values, count, bits,
        [&](word_vector v, std::int64_t) HWY_ATTR { return hn::Or(inside(v), is_nan_lane(v)); },
        [&](float v, std::int64_t) { return is_nan(v) || inside_one(v); });
  } else {
    write_bits<true>(
        values, count, bits, [&](word_vector v, std::int64_t) HWY_ATTR { return inside(v); },
        [&](float v, std::int64_t) { return inside_one(v); });
  }
}

void range_bits(const float* values, std::int64_t count, float lower, float upper, framework_rule rule,
                std::uint8_t* bits) {
  const integers di;
  const std::int32_t low = ordered(lower), high = ordered(upper);
  // NaN lies outside of any bounds.
  const auto inside_one = [&](float v) { return !is_nan(v) && ordered(v) > low && ordered(v) < high; };
  if (low >= 0 && low < high) {
    // As for ReLU6: the bits of what lies inside are numbers without a gap, moved to the lowest ones here, so
    // that one comparison does.
    constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
    const auto distance = hn::Set(di, static_cast<std::int32_t>(low + std::int64_t{1} + lowest));
    const auto end = hn::Set(di, static_cast<std::int32_t>(high - low - 1 + std::int64_t{lowest}));
    const auto inside = [&](word_vector v) HWY_ATTR {
      return hn::RebindMask(words(), hn::Lt(hn::Sub(hn::BitCast(di, v), distance), end));
    };
    return write_range_bits(values, count, rule, bits, inside, inside_one);
  }
  const auto first = hn::Set(di, highest_key(lower)), last = hn::Set(di, lowest_key(upper));
  const auto inside = [&](word_vector v) HWY_ATTR {
    const auto key = strict_key_lane(v);
    return hn::RebindMask(words(), hn::And(hn::Gt(key, first), hn::Lt(key, last)));
  };
  write_range_bits(values, count, rule, bits, inside, inside_one);
}

HWY_INLINE void clip_values(const float* x, std::int64_t count, float lower, float upper, float* y) {
  const integers di;
  const words du;
  const std::int32_t low = ordered(lower), high = ordered(upper);
  const auto first = hn::Set(di, lowest_key(lower)), last = hn::Set(di, highest_key(upper));
  const auto at_lower = hn::Set(du, std::bit_cast<std::uint32_t>(lower));
  const auto at_upper = hn::Set(du, std::bit_cast<std::uint32_t>(upper));
  in_vectors(
      x, count,
      [&](std::int64_t i) HWY_ATTR {
        const word_vector v = load(x + i);
        const auto key = strict_key_lane(v);
        const word_mask below = hn::RebindMask(du, hn::Lt(key, first));
        const word_mask above = hn::RebindMask(du, hn::Gt(key, last));
        word_vector result = hn::IfThenElse(below, at_lower, v);
        result = hn::IfThenElse(above, at_upper, result);
        store(hn::IfThenElse(is_nan_lane(v), v, result), y + i);
      },
      [&](std::int64_t i) {
        const std::int32_t key = ordered(x[i]);
        const float limited = key < low ? lower : key > high ? upper : x[i];
        y[i] = is_nan(x[i]) ? x[i] : limited;
      });
}

void clip(const float* x, std::int64_t count, float lower, float upper, float* y, destination to) {
  fill_run(count, y, to, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    clip_values(x + first, n, lower, upper, values);
  });
}

/// kept_or_scaled() of every lane.
HWY_INLINE word_vector kept_or_scaled_lane(word_vector v, word_mask kept, float slope) {
  const floats df;
  const auto scaled = opaque(hn::Mul(hn::BitCast(df, v), hn::Set(df, slope)));
  return hn::IfThenElse(hn::Or(kept, is_nan_lane(v)), v, hn::BitCast(words(), scaled));
}

HWY_INLINE void keep_or_scale_values(const float* from, const std::uint8_t* bits, std::int64_t count,
                                     float slope, float* to) {
  in_vectors(
      from, count,
      [&](std::int64_t i)
          HWY_ATTR { store(kept_or_scaled_lane(load(from + i), mask_of_bits(bits, i), slope), to + i); },
      [&](std::int64_t i) { to[i] = kept_or_scaled(from[i], bit_at(bits, i), slope); });
}

void keep_or_scale(const float* from, const std::uint8_t* bits, std::int64_t count, float slope, float* to,
                   destination where) {
  fill_run(count, to, where, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    keep_or_scale_values(from + first, bits + first / 8, n, slope, values);
  });
}

HWY_INLINE void scale_values_with_bits(const float* x, std::int64_t count, float slope, float* y,
                                       std::uint8_t* bits) {
  write_bits<false>(
      x, count, bits,
      [&](word_vector v, std::int64_t i) HWY_ATTR {
        const word_mask kept = passes_lane(v, false);
        store(kept_or_scaled_lane(v, kept, slope), y + i);
        return kept;
      },
      [&](float v, std::int64_t i) {
        const bool kept = passes<framework_rule::tensorflow>(v);
        y[i] = kept_or_scaled(v, kept, slope);
        return kept;
      });
}

void scale_with_bits(const float* x, std::int64_t count, float slope, float* y, std::uint8_t* bits,
                     destination to) {
  fill_run(count, y, to, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    scale_values_with_bits(x + first, n, slope, values, bits + first / 8);
  });
}

HWY_INLINE void scale_kept_values(const float* from, const std::uint8_t* bits, std::int64_t count,
                                  float scale, float* to) {
  const floats df;
  in_vectors(
      from, count,
      [&](std::int64_t i) HWY_ATTR {
        const auto scaled = hn::Mul(hn::LoadU(df, from + i), hn::Set(df, scale));
        store(hn::IfThenElseZero(mask_of_bits(bits, i), hn::BitCast(words(), scaled)), to + i);
      },
      [&](std::int64_t i) { to[i] = masked(from[i] * scale, bit_at(bits, i) ? 1 : 0); });
}

void scale_kept(const float* from, const std::uint8_t* bits, std::int64_t count, float scale, float* to,
                destination where) {
  fill_run(count, to, where, [&](std::int64_t first, std::int64_t n, float* values) HWY_ATTR {
    scale_kept_values(from + first, bits + first / 8, n, scale, values);
  });
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
  sign_search seen;
  std::uint32_t largest_of_rest = 0;
  write_bits<true>(
      values, count, bits,
      [&](word_vector v, std::int64_t) HWY_ATTR {
        seen.add(v);
        return hn::Ne(v, hn::Zero(du));
      },
      [&](float v, std::int64_t) {
        largest_of_rest = std::max(largest_of_rest, std::bit_cast<std::uint32_t>(v));
        return std::bit_cast<std::uint32_t>(v) != 0;
      });
  return {static_cast<std::uint32_t>(count_bits(bits, count)),
          seen.found() || largest_of_rest > static_cast<std::uint32_t>(f32_infinity)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
