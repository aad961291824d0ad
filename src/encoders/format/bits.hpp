// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Between one flag per byte, which compilers vectorise over, and one flag per bit, which is stored.

#include <cstdint>
#include <cstring>

namespace stash::encoders {

/// Packs `count` flags (bytes, each 0 or 1) into bits, bit i mod 8 of byte i div 8; the unused bits of the
/// last byte are zero. Returns the number of ones.
inline std::uint32_t pack_flags(const std::uint8_t* flags, std::int64_t count, std::uint8_t* bits) {
  // Multiplying eight flags by this moves flag j to bit 56 + j; no two partial products meet in one bit.
  constexpr std::uint64_t gather = 0x0102040810204080;
  constexpr std::uint64_t ones = 0x0101010101010101;
  std::uint64_t total = 0;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + i, 8);
    bits[i / 8] = static_cast<std::uint8_t>((eight * gather) >> 56);
    total += (eight * ones) >> 56;
  }
  if (i < count) {
    std::uint64_t rest = 0;
    std::memcpy(&rest, flags + i, static_cast<std::size_t>(count - i));
    bits[i / 8] = static_cast<std::uint8_t>((rest * gather) >> 56);
    total += (rest * ones) >> 56;
  }
  return static_cast<std::uint32_t>(total);
}

/// Inverse of pack_flags: writes `count` bytes, 0 or 1. Bits past `count` are ignored.
inline void spread_bits(const std::uint8_t* bits, std::int64_t count, std::uint8_t* flags) {
  // Copies the byte to eight bytes, keeps bit j of copy j, and turns "not zero" into one (no carry leaves a
  // byte, since each holds at most 0x80 and 0x80 + 0x7f fits).
  const auto spread = [](std::uint8_t byte) {
    const std::uint64_t kept = (byte * std::uint64_t{0x0101010101010101}) & 0x8040201008040201;
    return ((kept + 0x7f7f7f7f7f7f7f7f) >> 7) & 0x0101010101010101;
  };
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint64_t eight = spread(bits[i / 8]);
    std::memcpy(flags + i, &eight, 8);
  }
  if (i < count) {
    const std::uint64_t rest = spread(bits[i / 8]);
    std::memcpy(flags + i, &rest, static_cast<std::size_t>(count - i));
  }
}

}  // namespace stash::encoders
