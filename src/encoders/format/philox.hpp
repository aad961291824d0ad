// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The counter-based generator Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
/// (SC'11). A pure function of counter and key; docs/format.md, "dropout", says what goes into them.

#include <array>
#include <cstdint>

namespace stash::encoders {

using philox_counter = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

inline constexpr int philox_rounds = 10;
inline constexpr std::array<std::uint32_t, 2> philox_multipliers = {0xD2511F53, 0xCD9E8D57};
inline constexpr philox_key philox_increments = {0x9E3779B9, 0xBB67AE85};

inline philox_counter philox_round(philox_counter c, philox_key k) noexcept {
  const std::uint64_t product0 = std::uint64_t{philox_multipliers[0]} * c[0];
  const std::uint64_t product1 = std::uint64_t{philox_multipliers[1]} * c[2];
  return {static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(product0)};
}

/// Four random words.
inline philox_counter philox4x32_10(philox_counter c, philox_key k) noexcept {
  for (int round = 0; round < philox_rounds; ++round) {
    c = philox_round(c, k);
    k[0] += philox_increments[0];
    k[1] += philox_increments[1];
  }
  return c;
}

/// The random words of one dropout layer in one step: word w of block b is that of the counter {b, fixed}.
struct philox_stream {
  philox_key key;
  std::array<std::uint32_t, 2> fixed;  ///< the counter's last two words

  philox_counter words(std::uint64_t block) const noexcept {
    return philox4x32_10(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), fixed[0], fixed[1]},
        key);
  }
};

}  // namespace stash::encoders
