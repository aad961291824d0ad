// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The tile container of bitmap and csr on a device (docs/format.md). A warp has a tile: lane l holds, of
/// each of the four rows of 256, the eight elements from 8 l on, so a row's mask is one byte per lane and
/// ranks are a scan over the warp.

#include <cstdint>

#include "common/elements.hpp"
#include "common/look_back.hpp"
#include "common/packed.hpp"
#include "common/stored_values.hpp"
#include "common/tuning.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

using tuning::tile_warps;
inline constexpr unsigned tile_threads = tile_warps * warp_lanes;
inline constexpr unsigned tile_rows = 4;
inline constexpr unsigned row_groups = 32;  ///< groups of eight: one per lane

/// One encoded tensor and its dense form.
struct device_tiles {
  device_tensor dense;
  element_type type;
  value_conversion conversion;  ///< of narrow values
  unsigned code_bits;           ///< of a stored value; 10 means three to a word
  bool narrow;                  ///< values are not stored as elements
  bool scaled;
  std::uint8_t* data;                       ///< the slot
  std::uint64_t table_offset, fixed_bytes;  ///< docs/format.md: where the table and the payloads start
  std::uint64_t slot_end;                   ///< after the last byte that payloads can use
  std::uint8_t* arena;
  std::uint64_t arena_end;  ///< 0 without one
  std::uint64_t* claimed;   ///< null without one
  std::uint8_t* host;       ///< the host overflow, likewise
  std::uint64_t host_end;
  std::uint64_t* host_claimed;
  bool overflows;  ///< there is one of them
  encode_report* report;
  block_sums sums;  ///< writing: the tiles are placed in order. Null: as blocks come

  STASH_DEVICE std::uint64_t tiles() const { return (dense.elements + tile_elements - 1) / tile_elements; }
  STASH_DEVICE std::uint64_t rows() const {
    return (dense.elements + csr_row_elements - 1) / csr_row_elements;
  }
  STASH_DEVICE std::uint32_t* table() const { return reinterpret_cast<std::uint32_t*>(data + table_offset); }
  STASH_DEVICE std::uint16_t* row_ends() const { return reinterpret_cast<std::uint16_t*>(data); }
};

// Bits 31..30 of a table entry.
inline constexpr std::uint32_t entry_slot = 0, entry_arena = 1, entry_host = 2, entry_never_stored = 3;

STASH_DEVICE std::uint32_t make_entry(std::uint32_t where, std::uint64_t bytes) {
  return where << 30 | static_cast<std::uint32_t>(bytes / 16);
}

/// Scales of `count` values that have some; each is a byte.
STASH_DEVICE std::uint32_t scales_of(std::uint32_t count) {
  return (count + scaled_group - 1) / scaled_group;
}
/// Bytes of the values of a payload, and of the scales before them.
STASH_DEVICE std::uint32_t scale_bytes(const device_tiles& job, std::uint32_t count) {
  return job.scaled ? scales_of(count) : 0;
}
STASH_DEVICE std::uint32_t value_bytes(const device_tiles& job, std::uint32_t count) {
  const std::uint32_t codes = job.code_bits == 10 ? (count + 2) / 3 * 4 : (count * job.code_bits + 7) / 8;
  return scale_bytes(job, count) + codes;
}
/// The same where it is known whether values are narrow.
template <class Element, bool Narrow>
STASH_DEVICE std::uint32_t value_bytes(const device_tiles& job, std::uint32_t count) {
  return Narrow ? value_bytes(job, count) : count * static_cast<std::uint32_t>(sizeof(Element));
}
/// Bytes of a payload without padding.
template <bool Columns>
STASH_DEVICE std::uint32_t payload_bytes(const device_tiles& job, std::uint32_t count) {
  return value_bytes(job, count) + (Columns ? count : 0);
}

/// Shared memory of a warp: elements, and after them columns.
template <class Element, bool Columns>
inline constexpr unsigned image_bytes = static_cast<unsigned>(tile_elements) *
                                        (static_cast<unsigned>(sizeof(Element)) + (Columns ? 1 : 0));

/// The bits of a lane's four groups, and how many of a tile come before each of them.
struct tile_bits {
  std::uint32_t byte[tile_rows];
  std::uint32_t rank[tile_rows];
  std::uint32_t row_end[tile_rows];

  STASH_DEVICE std::uint32_t count() const { return row_end[tile_rows - 1]; }
};

/// Completes `bits.byte`. All lanes come.
STASH_DEVICE void rank_bits(tile_bits& bits) {
  const unsigned lane = thread_rank() % warp_lanes;
  // A byte for each row: before the last group of a row are at most 248.
  std::uint32_t own = 0;
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r)
    own |= static_cast<std::uint32_t>(count_ones(bits.byte[r])) << (8 * r);
  std::uint32_t before = shuffle_up(all_lanes, own, 1);
  if (lane == 0) before = 0;
  STASH_UNROLL
  for (unsigned distance = 1; distance < warp_lanes; distance *= 2)
    add_from_below(before, distance);
  const std::uint32_t last = shuffle(all_lanes, before, warp_lanes - 1);
  const std::uint32_t last_own = shuffle(all_lanes, own, warp_lanes - 1);
  // Rows have up to 256.
  constexpr std::uint32_t bytes = 0x00ff00ffU;
  const std::uint32_t even = (last & bytes) + (last_own & bytes);
  const std::uint32_t odd = (last >> 8 & bytes) + (last_own >> 8 & bytes);
  bits.row_end[0] = even & 0xffff;
  bits.row_end[1] = bits.row_end[0] + (odd & 0xffff);
  bits.row_end[2] = bits.row_end[1] + (even >> 16);
  bits.row_end[3] = bits.row_end[2] + (odd >> 16);
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r)
    bits.rank[r] = (before >> (8 * r) & 0xff) + (r == 0 ? 0 : bits.row_end[r - 1]);
}

/// Calls body(index of a bit, its rank) for every set bit of a lane's group.
template <class Body>
STASH_DEVICE void for_each_set(std::uint32_t byte, std::uint32_t rank, const Body& body) {
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    if ((byte >> i & 1) != 0) body(i, rank++);
  }
}

/// The padding of the row ends and of the table, which the warp of the last tile writes.
template <bool Columns>
STASH_DEVICE void pad_fixed_part(const device_tiles& job) {
  const unsigned lane = thread_rank() % warp_lanes;
  if (Columns && job.rows() + lane < job.table_offset / 2) job.row_ends()[job.rows() + lane] = 0;
  if (job.tiles() + lane < (job.fixed_bytes - job.table_offset) / 4) job.table()[job.tiles() + lane] = 0;
}

}  // namespace stash::kernels
