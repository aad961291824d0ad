// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling of vec16s (pool_vec16.hpp).

#include <cstdint>

#include "pool/nchw/pool_vec16.hpp"
#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// Writes the codes of two, four or eight windows from `first` on, in four bits each.
template <unsigned Windows>
STASH_DEVICE void store_vec16_codes(const code_plane& plane, std::uint64_t first, std::uint32_t codes) {
  static_assert(Windows == 2 || Windows == 4 || Windows == 8);
  if (plane.data == nullptr) return;
  if constexpr (Windows == 2) {
    plane.data[first / 2] = static_cast<std::uint8_t>(codes);
  } else if constexpr (Windows == 4) {
    *reinterpret_cast<std::uint16_t*>(plane.data + first / 2) = static_cast<std::uint16_t>(codes);
  } else {
    *reinterpret_cast<std::uint32_t*>(plane.data + first / 2) = codes;
  }
}

/// Searches windows of a row of y with all rules, from `o` on, which is the first among all, and writes what
/// is found and the codes.
template <class Bits, unsigned Windows>
STASH_DEVICE void pool_vec16_with_care(const pool_job& job, bool relu, const void* x, void* y,
                                       const pool_planes& planes, map_position<std::int32_t> o,
                                       std::uint64_t first) {
  std::uint32_t taps = 0, chosen = 0;
  STASH_NO_UNROLL
  for (unsigned i = 0; i < Windows; ++i, ++o.x) {
    maxima<1> one;
    const std::uint32_t first_tap = find_maxima<Bits, 1>(job, x, 1, o, one);
    if (relu) rectify_maxima<Bits, 1>(job, first_tap, one);
    const Bits value = element_of<Bits>(one.rank[0]);
    static_cast<Bits*>(y)[first + i] = value;
    taps |= one.tap[0] << (4 * i);
    chosen |= (passes(value, job.type, job.nan_wins) ? one.tap[0] : no_gradient) << (4 * i);
  }
  store_vec16_codes<Windows>(planes.index, first, taps);
  store_vec16_codes<Windows>(planes.code, first, chosen);
}

/// Zeros after the last codes of four bits.
STASH_DEVICE void pad_plane(const code_plane& plane, std::uint64_t values) {
  if (plane.data == nullptr) return;
  STASH_NO_UNROLL
  for (std::uint64_t at = values / 2; at < plane.bytes; ++at)
    plane.data[at] = 0;
}

/// pool_forward() for windows of 3 x 3 with stride 2, `Pad` columns before x. Grid: threads for the windows
/// of all vec16s, in two rows of y.
template <class Bits, unsigned Pad>
STASH_KERNEL(pool_threads, tuning::pool_blocks_of_vec16)
pool_forward_vec16(pool_job job, vec16_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  constexpr unsigned count = vec16_windows<Bits>;
  const std::uint32_t unit = thread_unit();
  if (unit >= grid.units) return;
  if (unit == 0) {
    report_planes(planes);
    pad_plane(planes.index, job.y_units);
    pad_plane(planes.code, job.y_units);
  }
  const row_vec16 position = position_of_vec16<2>(grid, unit);
  const std::int32_t top = 2 * position.row - static_cast<std::int32_t>(job.rows.pad);
  vec16_search<Bits, Pad, count, 2> search(job, grid, x, position, top);
  const auto length = static_cast<std::uint32_t>(job.columns.out);
  const std::uint32_t in_plane =
      static_cast<std::uint32_t>(position.row) * length + static_cast<std::uint32_t>(position.vec16) * count;
  const std::uint64_t first = std::uint64_t{position.plane} * grid.y_plane + in_plane;
  const bool second_row = position.row + 1 < job.rows.out;
  if (search.numbers) {
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      if (r == 1 && !second_row) break;
      vec16_maxima<Bits, count>& found = search.found[r];
      vec16_maxima<Bits, count> chosen = found;
      if (relu) {
        STASH_UNROLL
        for (unsigned w = 0; w < 2; ++w) {
          const std::uint32_t kept = positive_masks<Bits>(found.value[w]);
          found.value[w] &= kept;
          found.tap[w] = select_bits(kept, found.tap[w], search.first_taps(r, w));
          chosen.tap[w] = select_bits(kept, found.tap[w], found.number(no_gradient));
        }
      }
      const std::uint64_t at = first + r * length;
      *reinterpret_cast<vector8*>(static_cast<Bits*>(y) + at) = {{found.value[0], found.value[1]}};
      store_vec16_codes<count>(planes.index, at, found.codes());
      store_vec16_codes<count>(planes.code, at, chosen.codes());
    }
    return;
  }
  STASH_NO_UNROLL
  for (unsigned r = 0; r < (second_row ? 2U : 1U); ++r) {
    const map_position<std::int32_t> o{position.plane,
                                       0,
                                       0,
                                       0,
                                       position.row + static_cast<std::int32_t>(r),
                                       position.vec16 * static_cast<std::int32_t>(count)};
    pool_vec16_with_care<Bits, count>(job, relu, x, y, planes, o, first + r * length);
  }
}

}  // namespace stash::kernels
