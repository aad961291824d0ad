// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// An entry of the tile table of bitmap and csr: where the payload of a tile lies (docs/format.md).

#include <cstdint>

namespace stash::encoders {

/// Bits 31..30 of an entry; bits 29..0 are an offset in units of 16 bytes.
enum class tile_location : std::uint32_t { slot = 0, arena = 1, host = 2, never_stored = 3 };

inline constexpr std::uint32_t entry_offset_mask = (1u << 30) - 1;
/// What 30 bits of 16-byte units can address.
inline constexpr std::uint64_t entry_reach = std::uint64_t{1} << 34;

constexpr std::uint32_t make_entry(tile_location where, std::uint64_t bytes) noexcept {
  return (static_cast<std::uint32_t>(where) << 30) | static_cast<std::uint32_t>(bytes / 16);
}
constexpr tile_location kind_of(std::uint32_t entry) noexcept {
  return static_cast<tile_location>(entry >> 30);
}
constexpr std::uint64_t offset_of(std::uint32_t entry) noexcept {
  return std::uint64_t{entry & entry_offset_mask} * 16;
}

}  // namespace stash::encoders
