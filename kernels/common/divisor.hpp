// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Division by numbers that the host knows before a kernel starts: from a number of an element to its
/// position.

#include <bit>
#include <cstdint>

#include "common/simt.hpp"

namespace stash::kernels {

/// A positive number that is divided by, without a division. With d binary digits of value - 1 the
/// multipliers are 2^(63 + d) / value and 2^(31 + d) / value, rounded up: exact for dividends below 2^63 and
/// 2^31.
struct divisor {
  std::uint64_t value = 1, multiplier = std::uint64_t{1} << 63;
  std::uint32_t small_multiplier = 0x80000000U;  ///< 0 if the value is above all small dividends
  std::uint32_t digits = 0;
};

STASH_DEVICE std::uint32_t small_quotient(std::uint32_t n, const divisor& d) {
  return static_cast<std::uint32_t>((std::uint64_t{n} * d.small_multiplier >> 31) >> d.digits);
}
STASH_DEVICE std::uint64_t quotient(std::uint64_t n, const divisor& d) {
  if (n >> 31 == 0) return small_quotient(static_cast<std::uint32_t>(n), d);
  return multiply_high(2 * n, d.multiplier) >> d.digits;
}
/// Leaves the quotient in n and gives the remainder.
STASH_DEVICE std::uint64_t take_digit(std::uint64_t& n, const divisor& d) {
  const std::uint64_t rest = quotient(n, d);
  const std::uint64_t digit = n - rest * d.value;
  n = rest;
  return digit;
}

/// The same of dividends below 2^31.
STASH_DEVICE std::uint32_t take_small_digit(std::uint32_t& n, const divisor& d) {
  const std::uint32_t rest = small_quotient(n, d);
  const std::uint32_t digit = n - rest * static_cast<std::uint32_t>(d.value);
  n = rest;
  return digit;
}

/// Of a positive number up to 2^56.
inline divisor divisor_of(std::int64_t value) {
  divisor d;
  d.value = static_cast<std::uint64_t>(value);
  d.digits = static_cast<std::uint32_t>(std::bit_width(d.value - 1));
  // Long division; what is divided starts as 2^digits, and 63 zeros follow.
  d.multiplier = 0;
  std::uint64_t rest = std::uint64_t{1} << d.digits;
  for (int i = 0; i < 64; ++i) {
    const bool one = rest >= d.value;
    d.multiplier = 2 * d.multiplier + (one ? 1 : 0);
    rest = 2 * (one ? rest - d.value : rest);
  }
  if (rest != 0) ++d.multiplier;
  const bool small = d.value >> 31 == 0;
  d.small_multiplier = small ? static_cast<std::uint32_t>((d.multiplier + 0xffffffffU) >> 32) : 0;
  return d;
}

}  // namespace stash::kernels
