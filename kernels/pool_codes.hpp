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

/// The low `Width` bits of the bytes of two words, one behind the other.
template <unsigned Width>
STASH_DEVICE std::uint32_t packed_bytes(std::uint32_t low, std::uint32_t high) {
  const auto packed = [](std::uint32_t word) {
    const std::uint32_t pairs = word | word >> (8 - Width);
    return (pairs & ((1U << 2 * Width) - 1)) |
           (pairs >> (16 - 2 * Width) & (((1U << 2 * Width) - 1) << 2 * Width));
  };
  constexpr std::uint32_t fields = ((1U << Width) - 1) * 0x01010101U;
  return packed(low & fields) | packed(high & fields) << (4 * Width % 32);
}

}  // namespace stash::kernels
