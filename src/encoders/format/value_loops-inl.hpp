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
#include "encoders/format/value_codec.hpp"

namespace stash::encoders {
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
template <class Format, underflow_rule Underflow>
void narrow_words(const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  alignas(run_alignment) std::uint32_t codes[run_elements + 2];
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = narrow_bits<Format, Underflow>(values[i]);
  codes[count] = codes[count + 1] = 0;
  auto* words = reinterpret_cast<std::uint32_t*>(stored);
  for (std::int64_t w = 0; w < (count + 2) / 3; ++w)
    words[w] = codes[3 * w] | codes[3 * w + 1] << 10 | codes[3 * w + 2] << 20;
}

/// Codes that fill no whole bytes, one after the other.
template <class Format, underflow_rule Underflow>
void narrow_bit_string(const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  std::uint64_t waiting = 0;
  int bits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    waiting |= std::uint64_t{narrow_bits<Format, Underflow>(values[i])} << bits;
    for (bits += Format::bits; bits >= 8; bits -= 8, waiting >>= 8)
      *stored++ = static_cast<std::uint8_t>(waiting);
  }
  if (bits != 0) *stored = static_cast<std::uint8_t>(waiting);
}

template <underflow_rule Underflow>
void narrow_in(value_format format, const float* values, std::int64_t count, std::uint8_t* stored) noexcept {
  with_stored_format(format, [&](auto form) STASH_LOOPS_ATTR {
    using stored_as = decltype(form);
    if constexpr (stored_as::scaled) {
      // narrow_mx() has these.
    } else if constexpr (in_words(stored_as::format)) {
      narrow_words<stored_as, Underflow>(values, count, stored);
    } else if constexpr (stored_as::bits % 8 == 0) {
      narrow_all<stored_as, Underflow>(values, count, stored);
    } else {
      narrow_bit_string<stored_as, Underflow>(values, count, stored);
    }
  });
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

template <class Format>
void widen_words(const std::uint8_t* stored, std::int64_t count, float* values) noexcept {
  const auto* words = reinterpret_cast<const std::uint32_t*>(stored);
  alignas(run_alignment) std::uint16_t codes[run_elements + 2];
  for (std::int64_t w = 0; w < (count + 2) / 3; ++w) {
    codes[3 * w] = words[w] & 0x3ff;
    codes[3 * w + 1] = (words[w] >> 10) & 0x3ff;
    codes[3 * w + 2] = (words[w] >> 20) & 0x3ff;
  }
  widen_all<Format>(reinterpret_cast<const std::uint8_t*>(codes), count, values);
}

template <class Format>
void widen_bit_string(const std::uint8_t* stored, std::int64_t count, float* values) noexcept {
  std::uint64_t read = 0;
  int bits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    for (; bits < Format::bits; bits += 8)
      read |= std::uint64_t{*stored++} << bits;
    values[i] = widen<Format>(static_cast<typename Format::storage>(read & ((1U << Format::bits) - 1)));
    read >>= Format::bits;
    bits -= Format::bits;
  }
}

void widen_values(const std::uint8_t* stored, std::int64_t count, value_format format, float* values) {
  with_stored_format(format, [&](auto form) STASH_LOOPS_ATTR {
    using stored_as = decltype(form);
    if constexpr (stored_as::scaled) {
      // widen_mx() has these.
    } else if constexpr (in_words(stored_as::format)) {
      widen_words<stored_as>(stored, count, values);
    } else if constexpr (stored_as::bits % 8 == 0) {
      widen_all<stored_as>(stored, count, values);
    } else {
      widen_bit_string<stored_as>(stored, count, values);
    }
  });
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
}  // namespace stash::encoders
