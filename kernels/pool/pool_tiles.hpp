// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Signs of a pooled map that is kept as a bitmap or csr, for the backward pass of joint ReLU and max
/// pooling. A thread looks up the values of its windows one group at a time. A bitmap without negative values
/// and NaN, as a ReLU leaves it, says them by its mask alone; all else searches for the values in their tile.

#include <cstdint>

#include "pool/pool_backward.hpp"
#include "tiles/tiles_decode.hpp"

namespace stash::kernels {

/// Argmaxes from window_index, signs from tiles.
struct tiled_argmaxes : encoded_argmaxes {
  static constexpr unsigned resident_blocks = tuning::pool_blocks_searching;
  device_tiles tiles;
  bool columns;  ///< csr
};

/// Whether value `rank` of a tile's `count` passes, given that it is not zero: a cast may have made it so.
template <class Bits>
STASH_DEVICE bool stored_value_passes(const device_tiles& job, const std::uint8_t* payload,
                                      std::uint32_t count, std::uint32_t rank, bool nan_passes) {
  if (!job.narrow) {
    const Bits value = reinterpret_cast<const Bits*>(payload)[rank];
    const std::uint32_t magnitude = value & job.type.magnitudes;
    return magnitude > job.type.infinity ? nan_passes : value == magnitude;
  }
  const std::uint32_t bits = as_bits(stored_value(job, payload, count, rank));
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  return magnitude > 0x7f800000U ? nan_passes : bits == magnitude;
}

/// How many bits of a bitmap's tile are set, in all and before position `position`.
struct mask_counts {
  std::uint32_t all, before;
};
STASH_DEVICE mask_counts count_mask(const device_tiles& job, std::uint64_t tile, std::uint32_t position) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(job.data + tile * (tile_elements / 8));
  const std::uint64_t first = tile * static_cast<std::uint64_t>(tile_elements);
  const std::uint64_t left = job.dense.elements - first;
  mask_counts counts{0, 0};
  for (std::uint32_t at = 0; at < tile_elements && at < left; at += 32) {
    std::uint32_t bits = words[at / 32];
    if (left - at < 32) bits &= (1U << (left - at)) - 1;
    counts.all += static_cast<std::uint32_t>(count_ones(bits));
    if (at >= position) continue;
    if (position - at < 32) bits &= (1U << (position - at)) - 1;
    counts.before += static_cast<std::uint32_t>(count_ones(bits));
  }
  return counts;
}

/// Pass bits of the `Width` elements from `first` on, which lie in one row.
template <class Bits, unsigned Width>
STASH_DEVICE std::uint32_t bitmap_passes(const device_tiles& job, std::uint64_t first, bool nan_passes,
                                         std::uint32_t& status) {
  const std::uint32_t present = std::uint32_t{job.data[first / 8]} >> (first % 8) & ((1U << Width) - 1);
  if (present == 0 || (job.report->flags & flag_mask_is_not_sign) == 0) return present;
  const std::uint64_t tile = first / tile_elements;
  const mask_counts counts = count_mask(job, tile, static_cast<std::uint32_t>(first % tile_elements));
  const std::uint8_t* payload = find_payload(job, tile, payload_bytes<false>(job, counts.all), status);
  if (payload == nullptr) return 0;
  std::uint32_t bits = 0;
  std::uint32_t rank = counts.before;
  for (unsigned i = 0; i < Width; ++i) {
    if ((present >> i & 1) == 0) continue;
    if (stored_value_passes<Bits>(job, payload, counts.all, rank++, nan_passes)) bits |= 1U << i;
  }
  return bits;
}

template <class Bits, unsigned Width>
STASH_DEVICE std::uint32_t csr_passes(const device_tiles& job, std::uint64_t first, bool nan_passes,
                                      std::uint32_t& status) {
  const std::uint64_t tile = first / tile_elements;
  row_counts rows;
  read_row_ends(job, tile, rows);
  if (!rows.legal) {
    status = status_corrupt;
    return 0;
  }
  const std::uint32_t count = rows.end[tile_rows - 1];
  if (count == 0) return 0;
  const std::uint8_t* payload = find_payload(job, tile, payload_bytes<true>(job, count), status);
  if (payload == nullptr) return 0;
  const std::uint8_t* columns = payload + value_bytes(job, count);
  // The last row of a tensor may be shorter: what lies after its end makes the tile corrupt.
  const auto ragged = static_cast<std::uint32_t>(job.dense.elements % csr_row_elements);
  if (ragged != 0 && tile + 1 == job.tiles()) {
    const auto last = static_cast<std::uint32_t>((job.rows() - 1) % tile_rows);
    const std::uint32_t begin = last == 0   ? 0
                                : last == 1 ? rows.end[0]
                                : last == 2 ? rows.end[1]
                                            : rows.end[2];
    for (std::uint32_t i = begin; i < count; ++i) {
      if (columns[i] < ragged) continue;
      status = status_corrupt;
      return 0;
    }
  }
  const auto row = static_cast<std::uint32_t>(first / csr_row_elements % tile_rows);
  const auto column = static_cast<std::uint32_t>(first % csr_row_elements);
  std::uint32_t begin = row == 0 ? 0 : row == 1 ? rows.end[0] : row == 2 ? rows.end[1] : rows.end[2];
  const std::uint32_t end = row == 0   ? rows.end[0]
                            : row == 1 ? rows.end[1]
                            : row == 2 ? rows.end[2]
                                       : rows.end[3];
  for (std::uint32_t until = end; begin < until;) {
    const std::uint32_t middle = begin + (until - begin) / 2;
    if (columns[middle] < column) {
      begin = middle + 1;
    } else {
      until = middle;
    }
  }
  const bool all_pass = (job.report->flags & flag_mask_is_not_sign) == 0;
  std::uint32_t bits = 0;
  for (; begin < end; ++begin) {
    const std::uint32_t i = columns[begin] - column;
    if (i >= Width) break;
    if (all_pass || stored_value_passes<Bits>(job, payload, count, begin, nan_passes)) bits |= 1U << i;
  }
  return bits;
}

template <class Bits, unsigned Width>
STASH_DEVICE void add_tiled_signs(const pool_job& job, const tiled_argmaxes& from, std::uint64_t first,
                                  argmaxes<Width>& w) {
  std::uint32_t status = status_ok;
  w.pass = from.columns ? csr_passes<Bits, Width>(from.tiles, first, job.nan_wins, status)
                        : bitmap_passes<Bits, Width>(from.tiles, first, job.nan_wins, status);
  if (status != status_ok) atomic_or(&from.tiles.report->status, status);
}

template <class Bits, unsigned Width, class P>
STASH_DEVICE argmaxes<Width> load_argmaxes(const pool_job& job, const tiled_argmaxes& from,
                                           const map_position<P>& o) {
  argmaxes<Width> w = load_taps<Width>(from, o.pixel * job.channels + o.channel);
  add_tiled_signs<Bits>(job, from, o.pixel * job.channels + o.channel, w);
  return w;
}

}  // namespace stash::kernels
