// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Codes of pooling windows as words: split, put together, and whether they are numbers of taps.

#include <cstdint>

#include "pool/pool_backward.hpp"

namespace stash::kernels {

/// Bits of a tap's number in windows of Kernel x Kernel.
template <unsigned Kernel>
inline constexpr unsigned square_tap_bits = Kernel == 2 ? 2 : 4;

/// A bit of each of eight becomes four.
STASH_DEVICE std::uint32_t four_times(std::uint32_t bits) {
  bits = (bits | bits << 12) & 0x000f000fU;
  bits = (bits | bits << 6) & 0x03030303U;
  return ((bits | bits << 3) & 0x11111111U) * 15;
}

/// Whether one of codes of four bits is no tap of windows of 3 x 3: of those with the bit for 8, those that
/// have another one too, but not 15 where it stands for no gradient. `known`: the bits that are codes.
template <class Codes>
STASH_DEVICE bool any_beyond_taps(Codes codes, pass_source passing, Codes known = ~Codes{0}) {
  constexpr auto sevens = static_cast<Codes>(0x7777777777777777U);
  // Three low bits that are not zero carry into the high one, and with one more those that are all set.
  const Codes low = codes & sevens;
  const Codes none = low + (passing == pass_source::code ? sevens / 7 : 0);
  return ((low + sevens) & ~none & codes & known & ~sevens) != 0;
}

/// Tells codes of four bits that are no tap of a window of 3 x 3 in x: of those up to 7 by the lowest bit of
/// a byte each, of those above by the highest bits.
class tap_table {
 public:
  /// Bits of `outside` are taps that lie outside of x.
  STASH_DEVICE tap_table(pass_source passing, std::uint32_t outside)
      : low_(0x80808000U), high_(passing == pass_source::code ? 0x00808080U : 0x80808080U) {
    if (outside == 0) return;
    const auto spread = [](std::uint32_t four) { return four * 0x00204081U & 0x01010101U; };
    low_ |= spread(outside & 15) | outside >> 8 << 7;
    high_ |= spread(outside >> 4 & 15);
  }
  /// Not zero if one of eight codes is none.
  STASH_DEVICE std::uint32_t any_outside(std::uint32_t codes) const {
    return (pick_bytes_or_signs(low_, high_, codes) | pick_bytes_or_signs(low_, high_, codes >> 16)) &
           0x01010101U;
  }

 private:
  std::uint32_t low_, high_;
};
/// Of three neighbouring positions, the first at `first`, those outside of [0, count), a bit each.
STASH_DEVICE std::uint32_t positions_outside(std::int32_t first, std::int32_t count) {
  std::uint32_t outside = 0;
  STASH_UNROLL
  for (std::int32_t k = 0; k < 3; ++k)
    outside |= static_cast<std::uint32_t>(first + k) >= static_cast<std::uint32_t>(count) ? 1U << k : 0;
  return outside;
}
/// Taps of a window of 3 x 3 in these rows, or in these columns.
STASH_DEVICE std::uint32_t taps_of_rows(std::uint32_t rows) {
  return ((rows & 1) | (rows & 2) << 2 | (rows & 4) << 4) * 7;
}
STASH_DEVICE std::uint32_t taps_of_columns(std::uint32_t columns) {
  return columns * 0x49;
}

/// Eight codes of `Width` bits out of the bytes of two words, whose other bits are zero.
template <unsigned Width>
STASH_DEVICE std::uint32_t packed_codes(std::uint32_t low, std::uint32_t high) {
  const auto pairs = [](std::uint32_t word) { return word | word >> (8 - Width); };
  if constexpr (Width == 4) {
    return pick_bytes(pairs(low), pairs(high), 0x6420);
  } else {
    constexpr std::uint32_t four = (1U << 4 * Width) - 1;
    const auto fours = [&](std::uint32_t word) {
      return (pairs(word) | pairs(word) >> (16 - 2 * Width)) & four;
    };
    return fours(low) | fours(high) << (4 * Width);
  }
}

}  // namespace stash::kernels
