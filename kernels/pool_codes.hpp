#pragma once
/// \file
/// Codes of pooling windows as words: taken apart, put together, and whether they are numbers of cells.

#include <cstdint>

#include "pool_backward.hpp"

namespace stash::kernels {

/// Bits of a cell's number in windows of Kernel x Kernel.
template <unsigned Kernel>
inline constexpr unsigned square_cell_bits = Kernel == 2 ? 2 : 4;

/// A bit of each of eight becomes four.
STASH_DEVICE std::uint32_t four_times(std::uint32_t bits) {
  bits = (bits | bits << 12) & 0x000f000fU;
  bits = (bits | bits << 6) & 0x03030303U;
  return ((bits | bits << 3) & 0x11111111U) * 15;
}

/// Whether one of codes of four bits is no cell of windows of 3 x 3: of those with the bit for 8, those that
/// have another one too, but not 15 where it stands for no gradient. `known`: the bits that are codes.
template <class Codes>
STASH_DEVICE bool any_beyond_cells(Codes codes, pass_source passing, Codes known = ~Codes{0}) {
  constexpr auto sevens = static_cast<Codes>(0x7777777777777777U);
  // Three low bits that are not zero carry into the high one, and with one more those that are all set.
  const Codes low = codes & sevens;
  const Codes none = low + (passing == pass_source::code ? sevens / 7 : 0);
  return ((low + sevens) & ~none & codes & known & ~sevens) != 0;
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
