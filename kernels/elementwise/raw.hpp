// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// raw on a device: the elements as they are, without a pitch.

#include <cstdint>

#include "common/each_group.hpp"
#include "common/elements.hpp"
#include "stash/status.hpp"

namespace stash::kernels {

/// Copies elements; where the output has more, zeros. `report` may be null.
template <class Bits>
struct copy_body {
  using loaded = group<Bits>;
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor input, output;
  encode_report* report;

  STASH_DEVICE bool vectors() const { return input.vectors && output.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_halves<Bits, half_warps>(input, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Bits>(input, index); }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Bits>(input, first, count);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& g) const {
    store_halves<half_warps>(output, index, g);
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& g) const {
    store_elements(output, index, g);
  }
  STASH_DEVICE void finish(bool first) const {
    if (first && report != nullptr) atomic_add(&report->slot_bytes, output.elements * sizeof(Bits));
  }
};

}  // namespace stash::kernels
