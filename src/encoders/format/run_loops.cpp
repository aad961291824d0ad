// SPDX-License-Identifier: Apache-2.0
// The general version: plain C++ for the instruction set that everything is compiled for. The others
// (simd_loops.cpp) are held against it.

#include "encoders/format/run_loops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "encoders/format/bits.hpp"
#include "encoders/format/masked.hpp"
#include "encoders/format/mx.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/value_codec.hpp"

namespace stash::encoders::general {
namespace {

template <class V>
void store_past_caches(float* p, V v) noexcept {
  std::memcpy(p, &v, sizeof v);  // plain C++ knows no other way
}

}  // namespace
}  // namespace stash::encoders::general

#define STASH_LOOPS_NAMESPACE general
#define STASH_LOOPS_LANES 4
#define STASH_LOOPS_ATTR
#include "encoders/format/pool_vector-inl.hpp"
#include "encoders/format/value_loops-inl.hpp"

namespace stash::encoders {
namespace {

bool nonzero(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) != 0;
}

// --- whole groups of eight values ------------------------------------------------------------------------
//
// Each function below handles some values from the first on, a multiple of eight or all, and returns how many
// these are. Flags are bytes on the way between values and bits.

template <class Test>
std::uint32_t test_groups(const float* values, std::int64_t count, std::uint8_t* bits,
                          const Test& test) noexcept {
  alignas(run_alignment) std::uint8_t flags[run_elements];
  fill_flags(values, count, flags, test);
  return pack_flags(flags, count, bits);
}

std::int64_t pass_groups(const float* values, std::int64_t count, bool nan_passes,
                         std::uint8_t* bits) noexcept {
  const std::int64_t whole = count / 8 * 8;
  if (nan_passes) {
    test_groups(values, whole, bits, [](float v) { return passes<framework_rule::pytorch>(v); });
  } else {
    test_groups(values, whole, bits, [](float v) { return passes<framework_rule::tensorflow>(v); });
  }
  return whole;
}

/// `from`, or a copy of its values if it is what is written: the loops below vectorise over memory that is
/// known not to overlap.
const float* without_overlap(const float* from, std::int64_t count, const float* to, float* copy) noexcept {
  if (from != to) return from;
  std::memcpy(copy, from, static_cast<std::size_t>(count) * sizeof(float));
  return copy;
}

void select_positive(const float* __restrict x, std::int64_t count, float* __restrict y) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = masked(x[i], passes<framework_rule::pytorch>(x[i]) ? 1 : 0);
}

std::int64_t rectify_groups(const float* x, std::int64_t count, float* y) noexcept {
  alignas(run_alignment) float copy[run_elements];
  select_positive(without_overlap(x, count, y, copy), count, y);
  return count;
}

void select(const float* __restrict from, const std::uint8_t* __restrict flags, std::int64_t count,
            float* __restrict to) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = masked(from[i], flags[i]);
}

std::int64_t keep_groups(const float* from, const std::uint8_t* bits, std::int64_t count,
                         float* to) noexcept {
  const std::int64_t whole = count / 8 * 8;
  alignas(run_alignment) std::uint8_t flags[run_elements];
  spread_bits(bits, whole, flags);
  alignas(run_alignment) float copy[run_elements];
  select(without_overlap(from, whole, to, copy), flags, whole, to);
  return whole;
}

std::int64_t find_nonzero_groups(const float* values, std::int64_t count, std::uint8_t* bits,
                                 nonzero_bits& found) noexcept {
  const std::int64_t whole = count / 8 * 8;
  found.count += test_groups(values, whole, bits, nonzero);
  std::uint32_t outside = 0;
  for (std::int64_t i = 0; i < whole; ++i) {
    const auto b = std::bit_cast<std::int32_t>(values[i]);
    outside |= static_cast<std::uint32_t>(b < 0) | static_cast<std::uint32_t>(b > f32_infinity);
  }
  found.any_not_positive |= outside != 0;
  return whole;
}

std::int64_t expand_groups(const float*& packed, const std::uint8_t* bits, std::int64_t count,
                           float* values) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint8_t mask = bits[i / 8];
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t bit = (mask >> j) & 1U;
      values[i + j] = masked(*packed, static_cast<std::uint8_t>(bit));
      packed += bit;
    }
  }
  return i;
}

// --- the loops -------------------------------------------------------------------------------------------

bool bit_at(const std::uint8_t* bits, std::int64_t i) noexcept {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

bool gradient_passes(float value, bool nan_passes) noexcept {
  return nan_passes ? passes<framework_rule::pytorch>(value) : passes<framework_rule::tensorflow>(value);
}

void rectify(const float* x, std::int64_t count, float* y, destination) {
  // Positive or NaN is exactly what passes under the pytorch rule; selecting bits keeps a NaN's payload.
  for (std::int64_t i = rectify_groups(x, count, y); i < count; ++i)
    y[i] = masked(x[i], passes<framework_rule::pytorch>(x[i]) ? 1 : 0);
}

void pass_bits(const float* values, std::int64_t count, framework_rule rule, std::uint8_t* bits) {
  const bool nan_passes = rule == framework_rule::pytorch;
  const std::int64_t whole = pass_groups(values, count, nan_passes, bits);
  if (whole == count) return;
  unsigned last = 0;
  for (std::int64_t i = whole; i < count; ++i)
    last |= unsigned{gradient_passes(values[i], nan_passes)} << (i - whole);
  bits[whole / 8] = static_cast<std::uint8_t>(last);
}

void rectify_with_bits(const float* x, std::int64_t count, framework_rule rule, float* y, std::uint8_t* bits,
                       destination) {
  // y may be x.
  pass_bits(x, count, rule, bits);
  rectify(x, count, y, destination::caches);
}

void keep(const float* from, const std::uint8_t* bits, std::int64_t count, float* to, destination) {
  for (std::int64_t i = keep_groups(from, bits, count, to); i < count; ++i)
    to[i] = masked(from[i], bit_at(bits, i) ? 1 : 0);
}

nonzero_bits find_nonzero(const float* values, std::int64_t count, std::uint8_t* bits) {
  nonzero_bits found{0, false};
  const std::int64_t whole = find_nonzero_groups(values, count, bits, found);
  if (whole == count) return found;
  unsigned last = 0;
  for (std::int64_t i = whole; i < count; ++i) {
    last |= unsigned{nonzero(values[i])} << (i - whole);
    found.any_not_positive |= std::bit_cast<std::uint32_t>(values[i]) > f32_infinity;
  }
  bits[whole / 8] = static_cast<std::uint8_t>(last);
  found.count += static_cast<std::uint32_t>(std::popcount(last));
  return found;
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
    total += (mask[i / 8] >> (i % 8)) & 1;
  return total;
}

void compact(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed,
             std::int64_t kept) {
  const float* const end = packed + kept;
  for (std::int64_t i = 0; i < count && packed != end; ++i) {
    *packed = values[i];
    packed += bit_at(bits, i) ? 1 : 0;
  }
}

void copy(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* to, destination) {
  if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

nonzero_bits find_and_compact(const float* values, std::int64_t count, std::uint8_t* bits, float* packed) {
  const nonzero_bits found = find_nonzero(values, count, bits);
  compact(values, bits, count, packed, found.count);
  return found;
}

nonzero_bits find_and_list(const float* values, std::int64_t count, float* packed, std::uint8_t* columns,
                           std::uint16_t* row_ends) {
  std::uint8_t bits[csr_row_elements / 8];
  nonzero_bits all{0, false};
  for (std::int64_t row = 0; row < count; row += csr_row_elements) {
    const std::int64_t length = std::min(csr_row_elements, count - row);
    const nonzero_bits found = find_and_compact(values + row, length, bits, packed + all.count);
    for (std::int64_t i = 0; i < length; i += 8) {
      const std::uint64_t first_column = static_cast<std::uint64_t>(i) * 0x0101010101010101;
      const std::uint64_t eight = general::set_bits[bits[i / 8]] + first_column;
      std::memcpy(columns, &eight, sizeof eight);
      columns += std::popcount(bits[i / 8]);
    }
    all.count += found.count;
    all.any_not_positive |= found.any_not_positive;
    *row_ends++ = static_cast<std::uint16_t>(all.count);
  }
  return all;
}

void expand(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values, destination) {
  for (std::int64_t i = expand_groups(packed, bits, count, values); i < count; ++i) {
    const bool set = bit_at(bits, i);
    values[i] = masked(*packed, set ? 1 : 0);
    packed += set ? 1 : 0;
  }
}

bool columns_rise(const std::uint8_t* columns, std::int64_t count) {
  bool all = true;
  for (std::int64_t i = 1; i < count; ++i)
    all &= columns[i] > columns[i - 1];
  return all;
}

void mark_columns(const std::uint8_t* columns, std::int64_t count, std::uint8_t* bits) {
  std::memset(bits, 0, csr_row_elements / 8);
  for (std::int64_t i = 0; i < count; ++i)
    bits[columns[i] / 8] |= static_cast<std::uint8_t>(1U << (columns[i] % 8));
}

void range_bits(const float* values, std::int64_t count, float lower, float upper, framework_rule rule,
                std::uint8_t* bits) {
  const std::int32_t low = ordered(lower);
  const std::int32_t high = ordered(upper);
  const bool nan_passes = rule == framework_rule::pytorch;
  alignas(run_alignment) std::uint8_t flags[run_elements];
  fill_flags(values, count, flags, [=](float v) {
    const std::int32_t key = ordered(v);
    const bool nan = is_nan(v);
    return (!nan & (key > low) & (key < high)) | (nan & nan_passes);
  });
  pack_flags(flags, count, bits);
}

void clip(const float* x, std::int64_t count, float lower, float upper, float* y, destination) {
  const std::int32_t low = ordered(lower);
  const std::int32_t high = ordered(upper);
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = x[i];
    const std::int32_t key = ordered(value);
    const bool nan = is_nan(value);
    std::int32_t result = std::bit_cast<std::int32_t>(value);
    result = choose(!nan & (key < low), std::bit_cast<std::int32_t>(lower), result);
    result = choose(!nan & (key > high), std::bit_cast<std::int32_t>(upper), result);
    y[i] = std::bit_cast<float>(result);
  }
}

void keep_or_scale(const float* from, const std::uint8_t* bits, std::int64_t count, float slope, float* to,
                   destination) {
  alignas(run_alignment) std::uint8_t flags[run_elements];
  spread_bits(bits, count, flags);
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = kept_or_scaled(from[i], flags[i] != 0, slope);
}

void scale_with_bits(const float* x, std::int64_t count, float slope, float* y, std::uint8_t* bits,
                     destination) {
  pass_bits(x, count, framework_rule::tensorflow, bits);
  keep_or_scale(x, bits, count, slope, y, destination::caches);
}

void draw_bits(const philox_stream& stream, std::uint64_t first_block, std::int64_t count,
               std::uint32_t threshold, const float*, const float*, std::uint8_t* bits) {
  alignas(run_alignment) std::uint8_t flags[run_elements + 3];
  for (std::int64_t i = 0; i < count; i += 4) {
    const philox_counter drawn = stream.words(first_block + static_cast<std::uint64_t>(i / 4));
    for (std::size_t w = 0; w < drawn.size(); ++w)
      flags[i + static_cast<std::int64_t>(w)] = drawn[w] >= threshold ? 1 : 0;
  }
  pack_flags(flags, count, bits);
}

void narrow(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
            std::uint8_t* stored, destination) {
  general::narrow_values(values, count, format, underflow, stored);
}

void widen(const std::uint8_t* stored, std::int64_t count, value_format format, float* values, destination) {
  general::widen_values(stored, count, format, values);
}

void scale_kept(const float* from, const std::uint8_t* bits, std::int64_t count, float scale, float* to,
                destination) {
  alignas(run_alignment) std::uint8_t flags[run_elements];
  spread_bits(bits, count, flags);
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = masked(from[i] * scale, flags[i]);
}

bool expand_nothing(const std::uint8_t*, value_format, const std::uint8_t*, std::int64_t, float*,
                    destination) {
  return false;
}

template <class Elements, underflow_rule Underflow>
std::uint8_t narrow_any_group(const float* values, std::int64_t count, std::uint8_t* out) noexcept {
  const std::int32_t largest = count == mx_group ? largest_of_group(values, mx_group) : 0;
  return is_common_magnitude(largest) ? narrow_common_group<Elements, Underflow>(values, largest, out)
                                      : narrow_group<Elements, Underflow>(values, count, out);
}

void narrow_groups(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                   std::uint8_t* scales, std::uint8_t* elements) {
  with_mx_elements(format, [&](auto form) {
    using element = decltype(form);
    for (std::int64_t i = 0; i < count; i += mx_group) {
      const std::int64_t some = std::min(mx_group, count - i);
      std::uint8_t* out = elements + i * element::bits / 8;
      *scales++ = underflow == underflow_rule::keep_nonzero
                      ? narrow_any_group<element, underflow_rule::keep_nonzero>(values + i, some, out)
                      : narrow_any_group<element, underflow_rule::to_zero>(values + i, some, out);
    }
  });
}

void widen_groups(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                  value_format format, float* values, destination) {
  with_mx_elements(format, [&](auto form) {
    using element = decltype(form);
    for (std::int64_t i = 0; i < count; i += mx_group) {
      const std::int64_t some = std::min(mx_group, count - i);
      const std::uint8_t scale = *scales++;
      const std::uint8_t* in = elements + i * element::bits / 8;
      if (some == mx_group && is_common_scale(scale)) {
        widen_common_group<element>(scale, in, values + i);
      } else {
        widen_group<element>(scale, in, some, values + i);
      }
    }
  });
}

constexpr auto tensorflow = framework_rule::tensorflow;
constexpr auto pytorch = framework_rule::pytorch;

}  // namespace

const run_loops scalar_loops = {
    .stores_lines = false,
    .rectify = rectify,
    .pass_bits = pass_bits,
    .rectify_with_bits = rectify_with_bits,
    .keep = keep,
    .range_bits = range_bits,
    .clip = clip,
    .keep_or_scale = keep_or_scale,
    .scale_with_bits = scale_with_bits,
    .draw_bits = draw_bits,
    .scale_kept = scale_kept,
    .find_nonzero = find_nonzero,
    .count_bits = count_bits,
    .compact = compact,
    .copy = copy,
    .find_and_compact = find_and_compact,
    .find_and_list = find_and_list,
    .expand = expand,
    .expand_stored = expand_nothing,
    .columns_rise = columns_rise,
    .mark_columns = mark_columns,
    .narrow = narrow,
    .widen = widen,
    .narrow_exactly = general::narrow_values_exactly,
    .narrow_mx = narrow_groups,
    .widen_mx = widen_groups,
    .maximum = {{{general::max_kernel<tensorflow, false, argmax_bytes::none>::run,
                  general::max_kernel<tensorflow, false, argmax_bytes::taps>::run},
                 {general::max_kernel<tensorflow, true, argmax_bytes::none>::run,
                  general::max_kernel<tensorflow, true, argmax_bytes::taps>::run}},
                {{general::max_kernel<pytorch, false, argmax_bytes::none>::run,
                  general::max_kernel<pytorch, false, argmax_bytes::taps>::run},
                 {general::max_kernel<pytorch, true, argmax_bytes::none>::run,
                  general::max_kernel<pytorch, true, argmax_bytes::taps>::run}}},
    .maximum_with_codes = {general::max_kernel<tensorflow, true, argmax_bytes::codes>::run,
                           general::max_kernel<pytorch, true, argmax_bytes::codes>::run},
    .scatter = general::scatter_run,
    .list_taps = nullptr,
    .gather = nullptr};

}  // namespace stash::encoders
