// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a block will read, fetched by the second-level cache while the kernel in front of it is ending
/// (begin_kernel()): between calls for small maps nobody reads otherwise. Bytes that others may still write
/// are as good as any, because it is their second-level cache, too.

#include <cstdint>

#include "common/elements.hpp"
#include "common/simt.hpp"
#include "common/tuning.hpp"

namespace stash::kernels {

/// Bytes [begin, begin + bytes) of those at `data`, as far as there are `all`.
STASH_DEVICE void fetch_bytes(const void* data, std::uint64_t all, std::uint64_t begin, std::uint64_t bytes) {
  if (begin >= all) return;
  const std::uint64_t left = all - begin;
  const auto whole = static_cast<std::uint32_t>((left < bytes ? left : bytes) & ~std::uint64_t{15});
  const auto* const from = static_cast<const std::uint8_t*>(data) + begin;
  if (whole != 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) fetch_ahead(from, whole);
}

/// Groups of a tensor without a pitch.
template <class Bits>
STASH_DEVICE void fetch_groups(const device_tensor& t, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t bytes = group_elements * sizeof(Bits);
  if (t.inner == t.pitch) fetch_bytes(t.data, t.elements * sizeof(Bits), first * bytes, count * bytes);
}

/// A bit for each element of groups of a plane for `elements`.
STASH_DEVICE void fetch_plane(const std::uint8_t* plane, std::uint64_t elements, std::uint64_t first,
                              std::uint64_t count) {
  fetch_bytes(plane, (elements + 127) / 128 * 16, first, count);
}

}  // namespace stash::kernels
