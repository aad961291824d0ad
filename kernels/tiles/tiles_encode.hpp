// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Writing tiles: the non-zeros of a tile are packed in shared memory, the tiles of a block claim their space
/// with one addition, and what was packed leaves in vec16s (16 bytes).

#include <cstdint>

#include "common/jobs.hpp"
#include "tiles/tiles.hpp"
#include "tiles/tiles_narrow.hpp"

namespace stash::kernels {

/// Claims `bytes` bytes of a region at once, for the tiles of a block that have no space yet: their entries
/// are never_stored. Returns the bytes of those that still have none.
STASH_DEVICE std::uint64_t claim_region(std::uint32_t where, std::uint64_t* claimed, std::uint64_t end,
                                        std::uint64_t bytes, const std::uint32_t* sizes,
                                        std::uint32_t* entries) {
  if (claimed == nullptr || bytes == 0) return bytes;
  std::uint64_t at = atomic_add(claimed, bytes);
  if (at > end) return bytes;  // sums from there on might go through zero
  std::uint64_t rest = 0;
  for (unsigned w = 0; w < tile_warps; ++w) {
    if (entries[w] >> 30 != entry_never_stored) continue;
    const std::uint64_t size = std::uint64_t{sizes[w]} * 16;
    if (at + size <= end) {
      entries[w] = make_entry(where, at);
    } else {
      rest += size;
    }
    at += size;
  }
  return rest;
}

/// Places the tiles of a block: entries[w] for sizes[w] units of 16 bytes, `total` bytes in all. One thread's
/// work. The slot's cursor is report->slot_bytes, which starts at the fixed part's size. In order, `before`
/// bytes lie before the block's first payload, and the cursor only counts.
///
/// Out of order the first claim that goes past the end closes the slot: its block uses what space there was,
/// and gives back only what lies beyond the end. Later claims find the cursor there, or past it, and give
/// back all. A claim that was returned below the end would be claimed again while others lie above it.
STASH_DEVICE void claim_tiles(const device_tiles& job, const std::uint32_t* sizes, std::uint64_t total,
                              std::uint64_t before, std::uint32_t* entries) {
  std::uint64_t* const cursor = &job.report->slot_bytes;
  atomic_max(cursor, job.fixed_bytes);
  const bool ordered = job.sums.words != nullptr;
  const std::uint64_t end = job.slot_end;
  const std::uint64_t begin = ordered ? job.fixed_bytes + before : atomic_add(cursor, total);
  std::uint64_t at = begin;
  std::uint64_t rest = 0;
  for (unsigned w = 0; w < tile_warps; ++w) {
    const std::uint64_t size = std::uint64_t{sizes[w]} * 16;
    const bool fits = size == 0 || at + size <= end;
    // An empty tile lies where the next one would.
    entries[w] = fits ? make_entry(entry_slot, at < end ? at : end) : make_entry(entry_never_stored, 0);
    if (!fits) rest += size;
    if (fits || ordered) at += size;
  }
  if (ordered) {
    atomic_add(cursor, total - rest);
  } else if (rest != 0) {
    atomic_add(cursor, ~(begin < end ? begin + total - end : total) + 1);
  }
  if (rest == 0) return;
  if (job.overflows) atomic_add(&job.report->overflow_bytes, rest);
  rest = claim_region(entry_arena, job.claimed, job.arena_end, rest, sizes, entries);
  rest = claim_region(entry_host, job.host_claimed, job.host_end, rest, sizes, entries);
  if (rest != 0) atomic_or(&job.report->status, static_cast<std::uint32_t>(status_capacity));
}

/// What a lane moves of the four rows of a whole tile, the first group being number `first`.
template <class Element>
STASH_DEVICE void load_rows(const device_tensor& from, std::uint64_t first,
                            packed_group<Element> (&in)[tile_rows]) {
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r)
    in[r] = packed(load_halves<Element, neighbours>(from, first + r * row_groups));
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r)
    in[r] = packed(shared_halves<neighbours>(first + r * row_groups, unpacked(in[r])));
}

template <bool Narrow, unsigned Most>
inline constexpr unsigned encode_blocks = (Narrow && Most > 1) ? tuning::narrow_encode_blocks_of_many
                                                               : tuning::encode_blocks;

/// Encodes a tensor as bitmap, or with Columns as csr. Grid: a block for every tile_warps tiles.
template <class Element, bool Narrow, bool Columns, unsigned Most>
STASH_KERNEL(tile_threads, encode_blocks<Narrow, Most>)
encode_tiles(STASH_PARAMETER(job_list<device_tiles, Most>) list) {
  begin_kernel(tuning::blocks_ahead, [&] {
    constexpr std::uint64_t groups = tile_warps * tile_rows * row_groups;
    std::uint64_t own;
    const auto& all = job_of_block(list, own);
    fetch_groups<Element>(all.dense, own * groups, groups);
  });
  std::uint64_t block;
  const device_tiles& job = job_of_block(list, block);
  constexpr unsigned bytes = image_bytes<Element, Columns> + (Narrow ? 16 : 0);
  STASH_SHARED(vector16, images, tile_warps * bytes / 16);
  STASH_SHARED(std::uint32_t, sizes, tile_warps);
  STASH_SHARED(std::uint32_t, counts, tile_warps);
  STASH_SHARED(std::uint32_t, signs, tile_warps);
  // Read before the barrier after which the entries are written. Without sharing the offset, three blocks of
  // f32 with narrow values would miss the 100 KiB of some multiprocessors by 128 bytes.
  STASH_SHARED(std::uint64_t, ticket, tile_warps / 2);
  auto* const entries = reinterpret_cast<std::uint32_t*>(ticket);
  const unsigned warp = thread_rank() / warp_lanes;
  const unsigned lane = thread_rank() % warp_lanes;
  const bool ordered = job.sums.words != nullptr;
  if (ordered) block = take_ticket(job.sums, ticket);
  const std::uint64_t tile = block * tile_warps + warp;
  const std::uint64_t first = tile * (tile_rows * row_groups) + lane;

  packed_group<Element> in[tile_rows];
  if (job.dense.vectors && (tile + 1) * tile_elements <= job.dense.elements) {
    if (job.dense.inner == job.dense.pitch) {
      load_rows(without_pitch(job.dense), first, in);
    } else {
      load_rows(job.dense, first, in);
    }
  } else {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      in[r] = packed(load_elements<Element>(job.dense, first + r * row_groups));
  }
  tile_bits bits;
  std::uint32_t largest = 0;
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    bits.byte[r] = nonzero_bits(in[r]);
    largest = larger_of(in[r], largest);
  }
  // What is no number above zero, and not +0, is above infinity.
  const bool negative = any_above<Element>(largest, job.type.infinity);
  // A register for what stays until the end.
  const std::uint32_t plane = pick_bytes(pick_bytes(bits.byte[0], bits.byte[1], 0x0040),
                                         pick_bytes(bits.byte[2], bits.byte[3], 0x0040), 0x5410);
  rank_bits(bits);
  const std::uint32_t count = bits.count();

  vector16* const vectors = images + warp * (bytes / 16);
  auto* const image = reinterpret_cast<std::uint8_t*>(vectors);
  const std::uint32_t stored = value_bytes<Element, Narrow>(job, count);
  const std::uint32_t column_offset = image_offset_to_write<Element, Narrow>(stored);
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    shared_cursor to(reinterpret_cast<Element*>(image) + bits.rank[r]);
    shared_cursor column(image + column_offset + stored + bits.rank[r]);
    for_each_element(in[r], [&](unsigned i, std::uint32_t value, std::uint32_t there) {
      if constexpr (Columns) {
        append(to, value, column, lane * group_elements + i, there);
      } else {
        append(to, value, there);
      }
    });
  }
  sync_warp();
  const bool as_codes = Narrow && leave_as_codes(job);
  if (Narrow && !as_codes) narrow_image<Element>(job, image, count);
  const std::uint32_t used = stored + (Columns ? count : 0);
  const std::uint32_t units = (used + 15) / 16;
  if (used + lane < units * 16) image[column_offset + used + lane] = 0;
  const std::uint32_t any_negative = ballot(all_lanes, negative);
  if (lane == 0) {
    sizes[warp] = units;
    counts[warp] = count;
    signs[warp] = any_negative;
  }
  sync_block();

  if (warp == 0) {
    std::uint64_t bytes_of_block = 0;
    std::uint64_t total = 0;
    std::uint32_t sign = 0;
    for (unsigned w = 0; w < tile_warps; ++w) {
      bytes_of_block += std::uint64_t{sizes[w]} * 16;
      total += counts[w];
      sign |= signs[w];
    }
    const std::uint64_t before = ordered ? sum_before(job.sums, block, bytes_of_block) : 0;
    if (lane == 0) {
      claim_tiles(job, sizes, bytes_of_block, before, entries);
      atomic_add(&job.report->nonzeros, total);
      if (sign != 0) atomic_or(&job.report->flags, static_cast<std::uint32_t>(flag_mask_is_not_sign));
    }
  }
  sync_block();

  if (tile >= job.tiles()) return;
  const std::uint32_t entry = entries[warp];
  if (entry >> 30 != entry_never_stored) {
    std::uint8_t* const base = entry >> 30 == entry_slot    ? job.data
                               : entry >> 30 == entry_arena ? job.arena
                                                            : job.host;
    auto* const payload = reinterpret_cast<vector16*>(base) + (entry & 0x3fffffff);
    const vector16* const from = vectors + column_offset / 16;
    std::uint32_t u = lane;
    if (as_codes && job.code_bits == 16) {
      for (; u * group_elements < count; u += warp_lanes) {
        const Element* const values = reinterpret_cast<const Element*>(image) + u * group_elements;
        store_once(payload + u, halves_vec16(job, values, count - u * group_elements, from[u]));
      }
    } else if (as_codes) {
      for (; u * 16 < count; u += warp_lanes) {
        const Element* const values = reinterpret_cast<const Element*>(image) + u * 16;
        store_once(payload + u, fp8_vec16(job, values, count - u * 16, from[u]));
      }
    }
    STASH_NO_UNROLL
    for (; u < units; u += warp_lanes)
      store_once(payload + u, from[u]);
  }
  if (lane == 0) job.table()[tile] = entry;
  if constexpr (Columns) {
    const std::uint64_t row = tile * tile_rows + lane;
    if (lane < tile_rows && row < job.rows()) {
      const std::uint32_t first_two = pick_bytes(bits.row_end[0], bits.row_end[1], 0x5410);
      const std::uint32_t last_two = pick_bytes(bits.row_end[2], bits.row_end[3], 0x5410);
      const std::uint32_t end = pick_bytes_at(first_two, last_two, 0x10 + 0x22 * lane);
      job.row_ends()[row] = static_cast<std::uint16_t>(end);
    }
  } else {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r) {
      const std::uint64_t at = first + r * row_groups;
      if (at < job.table_offset) job.data[at] = static_cast<std::uint8_t>(plane >> (8 * r));
    }
  }
  if (tile + 1 == job.tiles()) pad_fixed_part<Columns>(job);
}

/// For launches.hpp.
template <class Element, bool Narrow, bool Columns>
struct encode_tiles_kernels {
  using job = device_tiles;
  static constexpr unsigned threads = tile_threads;
  template <unsigned Most>
  static constexpr auto kernel = &encode_tiles<Element, Narrow, Columns, Most>;
};

/// Only counts: non-zeros, and bytes of the canonical form. Grid: as encode_tiles. A block adds its sums
/// once: additions to one word come one after the other.
template <class Element, bool Columns>
STASH_KERNEL(tile_threads)
count_tiles(device_tiles job) {
  begin_kernel();
  STASH_SHARED(std::uint32_t, counts, tile_warps);
  const unsigned warp = thread_rank() / warp_lanes;
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint64_t tile = block_rank() * tile_warps + warp;
  const std::uint64_t first = tile * (tile_rows * row_groups) + lane;
  std::uint32_t count = 0;
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    const group<Element> in = load_elements<Element>(job.dense, first + r * row_groups);
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      count += in.value[i] != 0 ? 1 : 0;
  }
  STASH_UNROLL
  for (unsigned bit = 1; bit < warp_lanes; bit *= 2)
    count += shuffle_xor(all_lanes, count, bit);
  if (lane == 0) counts[warp] = count;
  sync_block();
  if (thread_rank() != 0) return;
  std::uint64_t nonzeros = 0;
  std::uint64_t bytes = block_rank() == 0 ? job.fixed_bytes : 0;
  for (unsigned w = 0; w < tile_warps; ++w) {
    nonzeros += counts[w];
    bytes += (payload_bytes<Columns>(job, counts[w]) + std::uint64_t{15}) / 16 * 16;
  }
  atomic_add(&job.report->nonzeros, nonzeros);
  atomic_add(&job.report->slot_bytes, bytes);
}

}  // namespace stash::kernels
