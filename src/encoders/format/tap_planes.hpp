// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Between one tap per byte and the planes of window_index and relu_pool (docs/format.md). `bits` is 2, 4
/// or 8.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "encoders/detail.hpp"
#include "encoders/format/bits.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {

constexpr int tap_bits(std::int64_t taps) noexcept {
  return taps <= 4 ? 2 : taps <= 16 ? 4 : 8;
}

/// codes[i] = taps[i] where passes[i] is 1, no_gradient_code where it is 0. Without a branch, because signs
/// are random.
inline void select_codes(const std::uint8_t* __restrict taps, const std::uint8_t* __restrict passes,
                         std::int64_t count, std::uint8_t* __restrict codes) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const int mask = -passes[i];
    codes[i] = static_cast<std::uint8_t>((taps[i] & mask) | (no_gradient_code & ~mask));
  }
}

/// Writes `count` codes at element `first` of a plane; `first` is a multiple of 8. `codes` must be readable,
/// and zero, up to a multiple of 4. With two bits no_gradient_code becomes 0.
inline void pack_taps(const std::uint8_t* __restrict codes, std::int64_t count, int bits, std::int64_t first,
                      std::uint8_t* plane) noexcept {
  std::uint8_t* __restrict out = plane + first * bits / 8;
  if (bits == 8) {
    std::memcpy(out, codes, static_cast<std::size_t>(count));
  } else if (bits == 4) {
    for (std::int64_t i = 0; i < (count + 1) / 2; ++i) {
      out[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  } else {
    for (std::int64_t i = 0; i < (count + 3) / 4; ++i) {
      std::uint32_t four;
      std::memcpy(&four, codes + 4 * i, 4);
      four &= ~(four >> 2) & 0x03030303U;
      out[i] = static_cast<std::uint8_t>(four | four >> 6 | four >> 12 | four >> 18);
    }
  }
}

/// The second plane of relu_pool for windows of up to 4 taps: one bit per code, set unless it is
/// no_gradient_code. `first` is a multiple of 8.
inline void pack_gradients(const std::uint8_t* __restrict codes, std::int64_t count, std::int64_t first,
                           std::uint8_t* plane) noexcept {
  alignas(run_alignment) std::uint8_t flags[run_elements];
  for (std::int64_t done = 0; done < count; done += run_elements) {
    const std::int64_t some = std::min(run_elements, count - done);
    for (std::int64_t i = 0; i < some; ++i)
      flags[i] = codes[done + i] != no_gradient_code;
    pack_flags(flags, some, plane + (first + done) / 8);
  }
}

/// Elements that the readers below may write before and after those that were asked for.
inline constexpr std::int64_t plane_slack = 16;

/// Reads elements [first, first + count) of a plane and returns where they start in `codes`, which holds
/// `count` + plane_slack bytes. Reads only the bytes that hold them.
inline const std::uint8_t* unpack_taps(const std::uint8_t* plane, int bits, std::int64_t first,
                                       std::int64_t count, std::uint8_t* __restrict codes) noexcept {
  if (bits == 8) return plane + first;
  const std::int64_t per_byte = 8 / bits;
  const std::int64_t skipped = first % per_byte;
  const std::int64_t bytes = (skipped + count + per_byte - 1) / per_byte;
  const std::uint8_t* __restrict in = plane + first / per_byte;
  if (bits == 4) {
    for (std::int64_t i = 0; i < bytes; ++i) {
      const auto two = static_cast<std::uint16_t>((in[i] | in[i] << 4) & 0x0f0f);
      std::memcpy(codes + 2 * i, &two, 2);
    }
  } else {
    for (std::int64_t i = 0; i < bytes; ++i) {
      const std::uint32_t byte = in[i];
      const std::uint32_t four = (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303;
      std::memcpy(codes + 4 * i, &four, 4);
    }
  }
  return codes + skipped;
}

/// The same for a plane of one bit per element; flags are 0 or 1.
inline const std::uint8_t* unpack_flags(const std::uint8_t* plane, std::int64_t first, std::int64_t count,
                                        std::uint8_t* flags) noexcept {
  const std::int64_t skipped = first % 8;
  spread_bits(plane + first / 8, skipped + count, flags);
  return flags + skipped;
}

/// Zeroes the last 16 bytes of a plane of `elements` > 0 elements, padding included, before they are written.
inline void clear_tail(std::uint8_t* plane, std::int64_t elements, int bits) noexcept {
  std::memset(plane + plane_bytes(elements, bits) - 16, 0, 16);
}

}  // namespace stash::encoders
