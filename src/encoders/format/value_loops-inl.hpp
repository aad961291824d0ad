// SPDX-License-Identifier: Apache-2.0
// The table of set bits for csr, and loops that compilers vectorise by themselves when they know the
// instruction set: conversions between f32 and stored values.
//
// Included once per instruction set, so it has no guard; the macros are those of pool_vector-inl.hpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "encoders/format/convert.hpp"
#include "encoders/format/mx.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::detail {
namespace STASH_LOOPS_NAMESPACE {
namespace {

/// For every byte of a mask: the numbers of its set bits, in order, as bytes, then zeros.
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

/// In two steps: in one, compilers compute in the width of the result and take many instructions to get
/// there.
template <class Format, underflow_rule Underflow>
void narrow_all(const float* __restrict values, std::int64_t count, std::uint8_t* stored) noexcept {
  constexpr std::int64_t some = 256;
  auto* __restrict out = reinterpret_cast<typename Format::storage*>(stored);
  std::uint32_t codes[some];
  for (std::int64_t begin = 0; begin < count; begin += some) {
    const std::int64_t n = std::min(some, count - begin);
    for (std::int64_t i = 0; i < n; ++i)
      codes[i] = narrow_bits<Format, Underflow>(values[begin + i]);
    for (std::int64_t i = 0; i < n; ++i)
      out[begin + i] = static_cast<typename Format::storage>(codes[i]);
  }
}

/// Three codes to a word.
template <underflow_rule Underflow>
void narrow_words(const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  alignas(run_alignment) std::uint32_t codes[run_elements + 2];
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = narrow_bits<fp10_format, Underflow>(values[i]);
  codes[count] = codes[count + 1] = 0;
  auto* words = reinterpret_cast<std::uint32_t*>(stored);
  for (std::int64_t w = 0; w < (count + 2) / 3; ++w)
    words[w] = codes[3 * w] | codes[3 * w + 1] << 10 | codes[3 * w + 2] << 20;
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
  alignas(run_alignment) std::uint16_t codes[run_elements + 2];
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

}  // namespace
}  // namespace STASH_LOOPS_NAMESPACE
}  // namespace stash::detail
