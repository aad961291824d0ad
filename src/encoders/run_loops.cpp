// Compiled once per instruction set; STASH_RUN_LOOPS is the name under which this version is known. Nothing
// that another file could share may come out of here (inline functions included), or the linker might pick a
// version that the processor does not run: what is defined here is local, what is included is inlined.

#include "run_loops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "bits.hpp"
#include "convert.hpp"
#include "masked.hpp"
#include "mx.hpp"
#include "pool_vector.hpp"
#include "sign.hpp"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace stash::detail {
namespace {

bool nonzero(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) != 0;
}

// --- whole groups of eight values, with what the instruction set offers ----------------------------------
//
// Each function below handles some values from the first on, a multiple of eight or all, and returns how many
// these are.

#ifdef __AVX2__

/// For every mask of eight lanes: the numbers of the set ones, in order, as bytes.
constexpr auto chosen_lanes = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned shift = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      table[mask] |= std::uint64_t{lane} << shift;
      shift += 8;
    }
  }
  return table;
}();

/// For every mask of eight lanes: for each lane, how many set ones are before it.
constexpr auto lanes_before = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned before = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      table[mask] |= std::uint64_t{before} << (8 * lane);
      before += mask >> lane & 1;
    }
  }
  return table;
}();

__m256i load(const float* p) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
void store(float* p, __m256i v) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
/// One bit per lane.
std::uint8_t bits_of(__m256i lanes) noexcept {
  return static_cast<std::uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}
/// All ones in the lanes whose bit is set.
__m256i lanes_of_bits(std::uint8_t bits) noexcept {
  const __m256i one_each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), one_each), one_each);
}
__m256i lane_numbers(std::uint64_t bytes) noexcept {
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
}

/// Integer comparisons, as in sign.hpp.
__m256i passing(__m256i v, bool nan_passes) noexcept {
  const __m256i positive = _mm256_cmpgt_epi32(v, _mm256_setzero_si256());
  const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(v, _mm256_set1_epi32(f32_magnitude_mask)),
                                         _mm256_set1_epi32(f32_infinity));
  return nan_passes ? _mm256_or_si256(positive, nan) : _mm256_andnot_si256(nan, positive);
}

std::int64_t rectify_groups(const float* x, std::int64_t count, float* y) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i v = load(x + i);
    store(y + i, _mm256_and_si256(v, passing(v, true)));
  }
  return i;
}

std::int64_t pass_groups(const float* values, std::int64_t count, bool nan_passes,
                         std::uint8_t* bits) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    bits[i / 8] = bits_of(passing(load(values + i), nan_passes));
  return i;
}

std::int64_t keep_groups(const float* from, const std::uint8_t* bits, std::int64_t count,
                         float* to) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    store(to + i, _mm256_and_si256(load(from + i), lanes_of_bits(bits[i / 8])));
  return i;
}

std::int64_t find_nonzero_groups(const float* values, std::int64_t count, std::uint8_t* bits,
                                 nonzero_bits& found) noexcept {
  __m256i largest = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i v = load(values + i);
    largest = _mm256_max_epu32(largest, v);
    const auto zeros = bits_of(_mm256_cmpeq_epi32(v, _mm256_setzero_si256()));
    bits[i / 8] = static_cast<std::uint8_t>(~zeros);
  }
  for (std::int64_t b = 0; b < i / 8; ++b)
    found.count += static_cast<std::uint32_t>(std::popcount(bits[b]));
  // As unsigned numbers, NaN and everything with a sign lie above infinity.
  const __m256i bound = _mm256_set1_epi32(f32_infinity);
  const __m256i not_above = _mm256_cmpeq_epi32(_mm256_max_epu32(largest, bound), bound);
  found.any_not_positive |= bits_of(not_above) != 0xff;
  return i;
}

std::int64_t compact_groups(const float* values, const std::uint8_t* bits, std::int64_t count,
                            float*& packed) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint8_t mask = bits[i / 8];
    store(packed, _mm256_permutevar8x32_epi32(load(values + i), lane_numbers(chosen_lanes[mask])));
    packed += std::popcount(mask);
  }
  return i;
}

std::int64_t expand_groups(const float*& packed, const std::uint8_t* bits, std::int64_t count,
                           float* values) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint8_t mask = bits[i / 8];
    const __m256i spread = _mm256_permutevar8x32_epi32(load(packed), lane_numbers(lanes_before[mask]));
    store(values + i, _mm256_and_si256(spread, lanes_of_bits(mask)));
    packed += std::popcount(mask);
  }
  return i;
}

#else

// The general loops need flags as bytes on the way between values and bits.

template <class Test>
std::uint32_t test_groups(const float* values, std::int64_t count, std::uint8_t* bits,
                          const Test& test) noexcept {
  std::uint8_t flags[run_elements];
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
/// known to be apart.
const float* apart(const float* from, std::int64_t count, const float* to, float* copy) noexcept {
  if (from != to) return from;
  std::memcpy(copy, from, static_cast<std::size_t>(count) * sizeof(float));
  return copy;
}

void select_positive(const float* __restrict x, std::int64_t count, float* __restrict y) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = masked(x[i], passes<framework_rule::pytorch>(x[i]) ? 1 : 0);
}

std::int64_t rectify_groups(const float* x, std::int64_t count, float* y) noexcept {
  float copy[run_elements];
  select_positive(apart(x, count, y, copy), count, y);
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
  std::uint8_t flags[run_elements];
  spread_bits(bits, whole, flags);
  float copy[run_elements];
  select(apart(from, whole, to, copy), flags, whole, to);
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

std::int64_t compact_groups(const float*, const std::uint8_t*, std::int64_t, float*&) noexcept {
  return 0;
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

#endif

// --- the loops -------------------------------------------------------------------------------------------

bool bit_at(const std::uint8_t* bits, std::int64_t i) noexcept {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

bool gradient_passes(float value, bool nan_passes) noexcept {
  return nan_passes ? passes<framework_rule::pytorch>(value) : passes<framework_rule::tensorflow>(value);
}

void rectify(const float* x, std::int64_t count, float* y) {
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

void keep(const float* from, const std::uint8_t* bits, std::int64_t count, float* to) {
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

void compact(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed) {
  for (std::int64_t i = compact_groups(values, bits, count, packed); i < count; ++i) {
    *packed = values[i];
    packed += bit_at(bits, i) ? 1 : 0;
  }
}

void expand(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values) {
  for (std::int64_t i = expand_groups(packed, bits, count, values); i < count; ++i) {
    const bool set = bit_at(bits, i);
    values[i] = masked(*packed, set ? 1 : 0);
    packed += set ? 1 : 0;
  }
}

/// Totally ordered like the numbers, both zeros being one; NaN lies outside the infinities.
std::int32_t ordered(float value) noexcept {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & f32_magnitude_mask;
  return choose(bits < 0, -magnitude, magnitude);
}

void range_bits(const float* values, std::int64_t count, float lower, float upper, framework_rule rule,
                std::uint8_t* bits) {
  const std::int32_t low = ordered(lower);
  const std::int32_t high = ordered(upper);
  const bool nan_passes = rule == framework_rule::pytorch;
  std::uint8_t flags[run_elements];
  fill_flags(values, count, flags, [=](float v) {
    const std::int32_t key = ordered(v);
    const bool nan = is_nan(v);
    return (!nan & (key > low) & (key < high)) | (nan & nan_passes);
  });
  pack_flags(flags, count, bits);
}

void clip(const float* x, std::int64_t count, float lower, float upper, float* y) {
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

void keep_or_scale(const float* from, const std::uint8_t* bits, std::int64_t count, float slope, float* to) {
  std::uint8_t flags[run_elements];
  spread_bits(bits, count, flags);
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = from[i];
    const auto kept = std::bit_cast<std::int32_t>(value);
    const auto scaled = std::bit_cast<std::int32_t>(slope * value);
    // A NaN keeps its bits.
    to[i] = std::bit_cast<float>(choose((flags[i] != 0) | is_nan(value), kept, scaled));
  }
}

/// For every byte of a mask: the numbers of its set bits, in order, as bytes.
constexpr auto set_bits = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned shift = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1) == 0) continue;
      table[mask] |= std::uint64_t{bit} << shift;
      shift += 8;
    }
  }
  return table;
}();

void list_columns(const std::uint8_t* bits, std::int64_t count, std::uint8_t* columns) {
  const std::int64_t bytes = (count + 7) / 8;
  for (std::int64_t b = 0; b < bytes; ++b) {
    const std::uint8_t mask = bits[b];
    const std::uint64_t base = static_cast<std::uint64_t>(b % 32 * 8) * 0x0101010101010101;
    const std::uint64_t eight = set_bits[mask] + base;
    std::memcpy(columns, &eight, 8);
    columns += std::popcount(mask);
  }
}

template <class Format, underflow_rule Underflow>
void narrow_all(const float* __restrict values, std::int64_t count, std::uint8_t* stored) noexcept {
  auto* __restrict out = reinterpret_cast<typename Format::storage*>(stored);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = narrow<Format, Underflow>(values[i]);
}

/// Three codes to a word.
template <underflow_rule Underflow>
void narrow_words(const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  std::uint16_t codes[run_elements + 2];
  narrow_all<fp10_format, Underflow>(values, count, reinterpret_cast<std::uint8_t*>(codes));
  codes[count] = codes[count + 1] = 0;
  auto* words = reinterpret_cast<std::uint32_t*>(stored);
  for (std::int64_t w = 0; w < (count + 2) / 3; ++w) {
    const std::uint16_t* three = codes + 3 * w;
    words[w] =
        three[0] | static_cast<std::uint32_t>(three[1]) << 10 | static_cast<std::uint32_t>(three[2]) << 20;
  }
}

template <underflow_rule Underflow>
void narrow_in(value_format format, const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  switch (format) {
    case value_format::fp16:
      return narrow_all<fp16_format, Underflow>(values, count, stored);
    case value_format::bf16:
      return narrow_all<bf16_format, Underflow>(values, count, stored);
    case value_format::fp8_e4m3:
      return narrow_all<fp8_e4m3_format, Underflow>(values, count, stored);
    case value_format::fp8_e5m2:
      return narrow_all<fp8_e5m2_format, Underflow>(values, count, stored);
    case value_format::fp10:
      return narrow_words<Underflow>(values, count, stored);
    default:
      return;
  }
}

void narrow_values(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                   std::uint8_t* stored) {
  if (underflow == underflow_rule::keep_nonzero) {
    narrow_in<underflow_rule::keep_nonzero>(format, values, count, stored);
  } else {
    narrow_in<underflow_rule::to_zero>(format, values, count, stored);
  }
}

template <class Format>
void widen_all(const std::uint8_t* stored, std::int64_t count, float* __restrict values) noexcept {
  const auto* __restrict in = reinterpret_cast<const typename Format::storage*>(stored);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = widen<Format>(in[i]);
}

void widen_words(const std::uint8_t* stored, std::int64_t count, float* values) noexcept {
  const auto* words = reinterpret_cast<const std::uint32_t*>(stored);
  std::uint16_t codes[run_elements + 2];
  for (std::int64_t w = 0; w < (count + 2) / 3; ++w) {
    codes[3 * w] = words[w] & 0x3ff;
    codes[3 * w + 1] = (words[w] >> 10) & 0x3ff;
    codes[3 * w + 2] = (words[w] >> 20) & 0x3ff;
  }
  widen_all<fp10_format>(reinterpret_cast<const std::uint8_t*>(codes), count, values);
}

void widen_values(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) {
  switch (format) {
    case value_format::fp16:
      return widen_all<fp16_format>(stored, count, values);
    case value_format::bf16:
      return widen_all<bf16_format>(stored, count, values);
    case value_format::fp8_e4m3:
      return widen_all<fp8_e4m3_format>(stored, count, values);
    case value_format::fp8_e5m2:
      return widen_all<fp8_e5m2_format>(stored, count, values);
    case value_format::fp10:
      return widen_words(stored, count, values);
    default:
      return;
  }
}

template <class Format>
void narrow_all_exactly(const float* __restrict values, std::int64_t count,
                        std::uint16_t* __restrict out) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = narrow_exactly<Format>(values[i]);
}

void narrow_values_exactly(const float* values, std::int64_t count, dtype type, std::uint16_t* out) {
  if (type == dtype::f16) {
    narrow_all_exactly<fp16_format>(values, count, out);
  } else {
    narrow_all_exactly<bf16_format>(values, count, out);
  }
}

void narrow_groups(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                   std::uint8_t* scales, std::uint8_t* elements) {
  with_mx_elements(format, [&](auto form) {
    using element = decltype(form);
    for (std::int64_t i = 0; i < count; i += 32) {
      const std::int64_t some = std::min<std::int64_t>(32, count - i);
      std::uint8_t* out = elements + i * element::bits / 8;
      *scales++ = underflow == underflow_rule::keep_nonzero
                      ? narrow_group<element, underflow_rule::keep_nonzero>(values + i, some, out)
                      : narrow_group<element, underflow_rule::to_zero>(values + i, some, out);
    }
  });
}

void widen_groups(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                  value_format format, float* values) {
  with_mx_elements(format, [&](auto form) {
    using element = decltype(form);
    for (std::int64_t i = 0; i < count; i += 32) {
      const std::int64_t some = std::min<std::int64_t>(32, count - i);
      widen_group<element>(*scales++, elements + i * element::bits / 8, some, values + i);
    }
  });
}

constexpr auto tensorflow = framework_rule::tensorflow;
constexpr auto pytorch = framework_rule::pytorch;

}  // namespace

extern const run_loops STASH_RUN_LOOPS;
const run_loops STASH_RUN_LOOPS = {
    .rectify = rectify,
    .pass_bits = pass_bits,
    .keep = keep,
    .range_bits = range_bits,
    .clip = clip,
    .keep_or_scale = keep_or_scale,
    .find_nonzero = find_nonzero,
    .count_bits = count_bits,
    .compact = compact,
    .expand = expand,
    .list_columns = list_columns,
    .narrow = narrow_values,
    .widen = widen_values,
    .narrow_exactly = narrow_values_exactly,
    .narrow_mx = narrow_groups,
    .widen_mx = widen_groups,
    .maximum = {{{max_kernel<tensorflow, false, false>::run, max_kernel<tensorflow, false, true>::run},
                 {max_kernel<tensorflow, true, false>::run, max_kernel<tensorflow, true, true>::run}},
                {{max_kernel<pytorch, false, false>::run, max_kernel<pytorch, false, true>::run},
                 {max_kernel<pytorch, true, false>::run, max_kernel<pytorch, true, true>::run}}},
    .scatter = scatter_run};

}  // namespace stash::detail
