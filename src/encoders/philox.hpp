#pragma once
/// \file
/// The counter-based generator Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
/// (SC'11). A pure function of counter and key; docs/format.md, "dropout", says what goes into them.

#include <array>
#include <cstdint>

namespace stash::detail {

using philox_counter = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

/// Four random words. Integer multiplications make up the time, and one counter at a time keeps the scalar
/// multiplier as busy as vectors of 128 bits would.
inline philox_counter philox4x32_10(philox_counter c, philox_key k) noexcept {
  constexpr std::uint64_t multiplier0 = 0xD2511F53;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57;
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t product0 = multiplier0 * c[0];
    const std::uint64_t product1 = multiplier1 * c[2];
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(product0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

}  // namespace stash::detail
