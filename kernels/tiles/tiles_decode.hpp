// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Reading tiles, whatever their bytes are: a payload is used only if it lies where payloads may lie, and
/// ranks never reach past the count from which its size was computed.

#include <cstdint>

#include "common/jobs.hpp"
#include "elementwise/relu.hpp"
#include "tiles/tiles.hpp"
#include "tiles/tiles_narrow.hpp"

namespace stash::kernels {

/// Where the payload of a tile with `bytes` > 0 of it lies, or null and the reason in `status`.
STASH_DEVICE const std::uint8_t* find_payload(const device_tiles& job, std::uint64_t tile,
                                              std::uint32_t bytes, std::uint32_t& status) {
  const std::uint32_t entry = job.table()[tile];
  const std::uint64_t offset = std::uint64_t{entry & 0x3fffffff} * 16;
  const std::uint32_t where = entry >> 30;
  if (where == entry_never_stored) {
    status = status_capacity;
    return nullptr;
  }
  const std::uint8_t* base = nullptr;
  std::uint64_t end = 0;
  if (where == entry_slot && offset >= job.fixed_bytes) {
    base = job.data;
    end = job.slot_end;
  } else if (where == entry_arena) {
    base = job.arena;
    end = job.arena_end;
  } else if (where == entry_host) {
    base = job.host;
    end = job.host_end;
  }
  const std::uint64_t size = (bytes + std::uint64_t{15}) / 16 * 16;
  if (base == nullptr || offset + size > end) {
    status = status_corrupt;
    return nullptr;
  }
  return base + offset;
}

/// What a warp knows of its tile. With a status there are no bits.
struct tile_seen {
  tile_bits bits;
  std::uint32_t count = 0;  ///< values in the image
  std::uint32_t status = status_ok;

  STASH_DEVICE void nothing() {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      bits.byte[r] = bits.rank[r] = 0;
  }
};

/// Bits of a lane's groups that belong to elements.
STASH_DEVICE std::uint32_t existing(const device_tiles& job, std::uint64_t index) {
  return (1U << group_length(job.dense.elements, index)) - 1;
}

/// Loads of a lane are in flight together. Narrow values rarely take more than two.
template <bool Narrow>
STASH_DEVICE void copy_payload(const std::uint8_t* payload, std::uint32_t bytes, vector16* image) {
  constexpr unsigned at_once = Narrow ? 2 : 4;
  const auto* from = reinterpret_cast<const vector16*>(payload);
  const std::uint32_t vectors = (bytes + 15) / 16;
  STASH_NO_UNROLL
  for (std::uint32_t u = thread_rank() % warp_lanes; u < vectors; u += at_once * warp_lanes) {
    vector16 v[at_once];
    STASH_UNROLL
    for (unsigned i = 0; i < at_once; ++i) {
      if (i == 0 || u + i * warp_lanes < vectors) v[i] = load_once(from + u + i * warp_lanes);
    }
    STASH_UNROLL
    for (unsigned i = 0; i < at_once; ++i) {
      if (i == 0 || u + i * warp_lanes < vectors) image[u + i * warp_lanes] = v[i];
    }
  }
  sync_warp();
}

/// The mask of a bitmap's tile.
STASH_DEVICE void see_mask(const device_tiles& job, std::uint64_t tile, tile_seen& seen) {
  const std::uint64_t first = tile * (tile_rows * row_groups) + thread_rank() % warp_lanes;
  if ((tile + 1) * tile_elements <= job.dense.elements) {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      seen.bits.byte[r] = job.data[first + r * row_groups];
  } else {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r) {
      const std::uint64_t at = first + r * row_groups;
      const std::uint32_t there = existing(job, at);
      seen.bits.byte[r] = there == 0 ? 0 : job.data[at] & there;
    }
  }
  rank_bits(seen.bits);
  seen.count = seen.bits.count();
}

/// A tile of a bitmap. With `values` they come into the image.
template <class Element, bool Narrow>
STASH_DEVICE void see_bitmap_tile(const device_tiles& job, std::uint64_t tile, bool values, vector16* image,
                                  tile_seen& seen) {
  see_mask(job, tile, seen);
  if (!values || seen.count == 0) return;
  const std::uint32_t stored = value_bytes<Element, Narrow>(job, seen.count);
  const std::uint8_t* payload = find_payload(job, tile, stored, seen.status);
  if (payload == nullptr) return seen.nothing();
  copy_payload<Narrow>(payload, stored, image + image_offset_to_read<Element, Narrow>(job, stored) / 16);
  if constexpr (Narrow) widen_image<Element>(job, reinterpret_cast<std::uint8_t*>(image), seen.count);
}

/// The row ends of a tile, checked.
struct row_counts {
  std::uint32_t end[tile_rows];
  bool legal = true;
};
STASH_DEVICE void read_row_ends(const device_tiles& job, std::uint64_t tile, row_counts& rows) {
  const std::uint64_t left = job.dense.elements - tile * tile_elements;
  const std::uint32_t here =
      left < tile_elements ? static_cast<std::uint32_t>(left) : static_cast<std::uint32_t>(tile_elements);
  // The padding completes the four of the last tile.
  const std::uint64_t ends = reinterpret_cast<const std::uint64_t*>(job.row_ends())[tile];
  std::uint32_t before = 0;
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    constexpr auto row = static_cast<std::uint32_t>(csr_row_elements);
    const std::uint32_t rest = here < r * row ? 0 : here - r * row;
    const std::uint32_t most = rest < row ? rest : row;
    rows.end[r] = rest == 0 ? before : static_cast<std::uint32_t>(ends >> (16 * r)) & 0xffff;
    // A fall is more than any row has, too.
    rows.legal = rows.legal && rows.end[r] - before <= most;
    before = rows.end[r];
  }
}

/// Shared memory of a warp that splits a tile of csr: a byte for each element.
inline constexpr unsigned mark_vectors = static_cast<unsigned>(tile_elements) / 16;

/// A tile of csr; `marks` are mark_vectors. With `values` they are elements in the image; else they are not
/// read.
template <class Element, bool Narrow>
STASH_DEVICE void see_csr_tile(const device_tiles& job, std::uint64_t tile, bool values, vector16* image,
                               vector16* marks, tile_seen& seen) {
  const unsigned lane = thread_rank() % warp_lanes;
  row_counts rows;
  read_row_ends(job, tile, rows);
  const auto& end = rows.end;
  seen.nothing();
  seen.count = end[tile_rows - 1];
  if (!rows.legal) {
    seen.status = status_corrupt;
    return;
  }
  if (seen.count == 0) return;
  const std::uint32_t stored = value_bytes<Element, Narrow>(job, seen.count);
  const std::uint8_t* payload = find_payload(job, tile, stored + seen.count, seen.status);
  if (payload == nullptr) return;
  STASH_UNROLL
  for (unsigned v = 0; v < mark_vectors; v += warp_lanes)
    marks[v + lane] = {};
  vector16* const read = image + image_offset_to_read<Element, Narrow>(job, stored) / 16;
  const std::uint32_t passed_over = values ? 0 : stored / 16;
  copy_payload<Narrow>(payload + 16 * passed_over, stored + seen.count - 16 * passed_over,
                       read + passed_over);
  const std::uint8_t* columns = reinterpret_cast<const std::uint8_t*>(read) + stored;
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    std::uint8_t* const of_row = reinterpret_cast<std::uint8_t*>(marks) + r * csr_row_elements;
    const std::uint8_t* column = columns + (r == 0 ? 0 : end[r - 1]) + lane;
    for (; column < columns + end[r]; column += warp_lanes)
      of_row[*column] = 1;
  }
  sync_warp();
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    const vector8 bytes = reinterpret_cast<const vector8*>(marks)[r * row_groups + lane];
    seen.bits.byte[r] = bits_of_bytes(bytes.word[0], bytes.word[1]);
  }
  if ((tile + 1) * tile_elements > job.dense.elements) {
    const std::uint64_t first = tile * (tile_rows * row_groups) + lane;
    bool past_end = false;
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      past_end |= (seen.bits.byte[r] & ~existing(job, first + r * row_groups)) != 0;
    if (ballot(all_lanes, past_end) != 0) {
      seen.status = status_corrupt;
      seen.nothing();
      return;
    }
  }
  if (Narrow && values) widen_image<Element>(job, reinterpret_cast<std::uint8_t*>(image), seen.count);
  rank_bits(seen.bits);
  // A column that comes twice must not move the values of other rows.
  STASH_UNROLL
  for (unsigned r = 1; r < tile_rows; ++r)
    seen.bits.rank[r] += end[r - 1] - seen.bits.row_end[r - 1];
}

/// Looks at a warp's tile. Nothing after the last tile.
template <class Element, bool Narrow, bool Columns>
STASH_DEVICE void see_tile(const device_tiles& job, std::uint64_t tile, bool values, vector16* image,
                           vector16* marks, tile_seen& seen) {
  if (tile >= job.tiles()) {
    seen.nothing();
    return;
  }
  if constexpr (Columns) {
    see_csr_tile<Element, Narrow>(job, tile, values, image, marks, seen);
  } else {
    see_bitmap_tile<Element, Narrow>(job, tile, values, image, seen);
  }
  if (seen.status != status_ok && thread_rank() % warp_lanes == 0)
    atomic_or(&job.report->status, seen.status);
}

/// Has fetched what says where the payloads of a block's tiles are, and where their values belong.
template <bool Columns>
STASH_DEVICE void fetch_tables(const device_tiles& job, std::uint64_t block) {
  constexpr std::uint64_t bytes = Columns ? tile_rows * sizeof(std::uint16_t) : tile_elements / 8;
  constexpr std::uint64_t entry = sizeof(std::uint32_t);
  const std::uint64_t first = block * tile_warps;
  fetch_bytes(job.data, job.table_offset, first * bytes, tile_warps * bytes);
  fetch_bytes(job.data + job.table_offset, job.tiles() * entry, first * entry, tile_warps * entry);
}

/// And the payloads, where the tables of an encoder say that they are, in one access. They may still be
/// written: what they say then is as good as any address of the slot. Sizes are not in them, so the last tile
/// is taken to be as large as the others.
STASH_DEVICE void fetch_payloads(const device_tiles& job, std::uint64_t block) {
  constexpr std::uint64_t most = tile_warps * tile_elements * 2 * sizeof(std::uint32_t);
  const std::uint64_t first = block * tile_warps, left = job.tiles() - first;
  const std::uint64_t others = (left < tile_warps ? left : tile_warps) - 1;
  if (others == 0) return;
  const std::uint32_t from = load_early(job.table() + first), to = load_early(job.table() + first + others);
  if (from >> 30 != entry_slot || to >> 30 != entry_slot || to <= from) return;
  const std::uint64_t bytes = std::uint64_t{to - from} * 16 / others * (others + 1);
  fetch_bytes(job.data, job.slot_end, std::uint64_t{from} * 16, bytes < most ? bytes : most);
}

/// Decodes a bitmap, or with Columns csr, into job.dense. Grid: a block for every tile_warps tiles.
template <class Element, bool Narrow, bool Columns, unsigned Most>
STASH_KERNEL(tile_threads, tuning::decode_blocks)
decode_tiles(STASH_PARAMETER(job_list<device_tiles, Most>) list) {
  begin_kernel(tuning::blocks_ahead, [&] {
    std::uint64_t own;
    const auto& all = job_of_block(list, own);
    fetch_tables<Columns>(all, own);
    fetch_payloads(all, own);
  });
  std::uint64_t block;
  const device_tiles& job = job_of_block(list, block);
  constexpr unsigned bytes = image_bytes<Element, Columns>;
  STASH_SHARED(vector16, images, tile_warps * bytes / 16);
  STASH_SHARED(vector16, marks, tile_warps * mark_vectors);
  const unsigned warp = thread_rank() / warp_lanes;
  const std::uint64_t tile = block * tile_warps + warp;
  vector16* const image = images + warp * (bytes / 16);
  tile_seen seen;
  see_tile<Element, Narrow, Columns>(job, tile, true, image, marks + warp * mark_vectors, seen);
  if (tile >= job.tiles()) return;

  const std::uint64_t first = tile * (tile_rows * row_groups) + thread_rank() % warp_lanes;
  const bool whole = job.dense.vectors && (tile + 1) * tile_elements <= job.dense.elements;
  const auto store = [&](unsigned r, const packed_group<Element>& g) {
    const std::uint64_t number = first + r * row_groups;
    if (whole) {
      store_halves<neighbours>(job.dense, number, shared_halves<neighbours>(number, unpacked(g)));
    } else {
      store_elements(job.dense, number, unpacked(g));
    }
  };
  if (Narrow && come_as_codes(job) && job.code_bits == 16) {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      store(r, group_of_halves<Element>(job, image, seen.bits.byte[r], seen.bits.rank[r]));
  } else if (Narrow && come_as_codes(job)) {
    // f32 of all rows at once would be too many registers.
    constexpr unsigned at_once = has_halves<Element> ? 1 : tile_rows;
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; r += at_once) {
      packed_group<Element> out[at_once];
      groups_of_fp8(job, image, seen.bits.byte + r, seen.bits.rank + r, out);
      STASH_UNROLL
      for (unsigned i = 0; i < at_once; ++i)
        store(r + i, out[i]);
    }
  } else {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      store(r, group_of_elements<Element>(image, seen.bits.byte[r], seen.bits.rank[r]));
  }
}

/// For launches.hpp.
template <class Element, bool Narrow, bool Columns>
struct decode_tiles_kernels {
  using job = device_tiles;
  static constexpr unsigned threads = tile_threads;
  template <unsigned Most>
  static constexpr auto kernel = &decode_tiles<Element, Narrow, Columns, Most>;
};

/// Pass bits of a group from what a tile says: present and without a sign, NaN by the rule. Presence, not the
/// value, says "not zero", because a cast may have turned a small value into zero.
struct present_test {
  element_type type;
  bool nan_passes;
  static constexpr bool presence_can_do = true;

  STASH_DEVICE bool operator()(std::uint32_t value) const {
    const std::uint32_t magnitude = value & type.magnitudes;
    return magnitude > type.infinity ? nan_passes : value == magnitude;
  }
  STASH_DEVICE std::uint32_t flags(std::uint32_t pair) const {
    return ruled_flags(~pair, pair, type, nan_passes);
  }
  template <class Element>
  STASH_DEVICE std::uint32_t bits(std::uint32_t present, const group<Element>& g) const {
    return predicate_bits(g, *this) & present;
  }
};

/// Pass bits from the values themselves.
template <class Predicate>
struct value_test {
  Predicate predicate;
  static constexpr bool presence_can_do = false;

  template <class Element>
  STASH_DEVICE std::uint32_t bits(std::uint32_t, const group<Element>& g) const {
    return predicate_bits(g, predicate);
  }
};

/// dx = gate(dy, bit) with the bits of a bitmap or csr. job.dense is dx.
template <class Element, bool Narrow, bool Columns, class Test>
STASH_KERNEL(tile_threads, has_halves<Element> ? tuning::gate_blocks : tuning::narrow_gate_blocks)
gate_tiles(device_tiles job, device_tensor dy, gate function, Test test) {
  begin_kernel(tuning::blocks_ahead, [&] {
    constexpr std::uint64_t groups = tile_warps * tile_rows * row_groups;
    fetch_groups<Element>(dy, block_rank() * groups, groups);
    fetch_tables<Columns>(job, block_rank());
  });
  constexpr unsigned bytes = image_bytes<Element, Columns>;
  STASH_SHARED(vector16, images, tile_warps * bytes / 16);
  STASH_SHARED(vector16, marks, tile_warps * mark_vectors);
  const unsigned warp = thread_rank() / warp_lanes;
  const std::uint64_t tile = block_rank() * tile_warps + warp;
  vector16* const image = images + warp * (bytes / 16);

  const bool whole = dy.vectors && job.dense.vectors && (tile + 1) * tile_elements <= job.dense.elements;
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint64_t first =
      tile * (tile_rows * row_groups) + (whole ? group_of_thread<has_halves<Element>>(lane) : lane);
  packed_group<Element> in[tile_rows];
  if (whole) {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      in[r] = packed(load_halves<Element, half_warps>(dy, first + r * row_groups));
  } else {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r)
      in[r] = packed(load_elements<Element>(dy, first + r * row_groups));
  }
  const bool values = !Test::presence_can_do || (job.report->flags & flag_mask_is_not_sign) != 0;
  tile_seen seen;
  see_tile<Element, Narrow, Columns>(job, tile, values, image, marks + warp * mark_vectors, seen);
  if (tile >= job.tiles()) return;

  std::uint32_t(&bits)[tile_rows] = seen.bits.byte;
  // 16-bit codes say what presence cannot without becoming elements, for which registers would not do.
  constexpr bool codes_can_do = Narrow && Test::presence_can_do;
  const bool half_codes = codes_can_do && job.code_bits == 16;
  if (values && half_codes && seen.status == status_ok) {
    if constexpr (codes_can_do) {
      const auto* const codes = reinterpret_cast<const std::uint16_t*>(image);
      Test of_codes = test;
      of_codes.type.infinity = job.conversion.infinity;
      of_codes.type.magnitudes = 0x7fff;
      STASH_UNROLL
      for (unsigned r = 0; r < tile_rows; ++r)
        bits[r] = of_codes.bits(bits[r], unpacked(spread(bits[r], codes + seen.bits.rank[r])));
    }
  } else if (values && seen.status == status_ok) {
    STASH_UNROLL
    for (unsigned r = 0; r < tile_rows; ++r) {
      bits[r] = test.bits(bits[r], unpacked(group_of_image<Element, Narrow, !codes_can_do>(
                                       job, image, bits[r], seen.bits.rank[r])));
    }
  }
  STASH_UNROLL
  for (unsigned r = 0; r < tile_rows; ++r) {
    const std::uint64_t number = first + r * row_groups;
    if (has_halves<Element> && whole) bits[r] = bits_of_halves(bits[r]);
    const group<Element> out = unpacked(function(in[r], bits[r]));
    if (whole) {
      store_halves<half_warps>(job.dense, number, out);
    } else {
      store_elements(job.dense, number, out);
    }
  }
}

}  // namespace stash::kernels
