// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Pooling of small square windows in NCHW where rows may have any length. A block makes a tile of a flat map
/// that is a multiple of 32 values, wherever that begins in a row or a plane. It copies the part of the other
/// map that the tile needs, the halo tile, into shared memory, in vec16s (16 bytes) as they come. There a
/// thread goes down a few columns, and so has the same distance from the borders on the left and on the right
/// all the way. What it makes stays in shared memory until it leaves in vec16s (16 bytes). What needs care
/// (NaN, codes that name no tap of x) makes the block do its tile once more, by the loops of pool.hpp.

#include <algorithm>
#include <cstdint>

#include "pool/nchw/pool_halo_shape.hpp"
#include "pool/pool.hpp"

namespace stash::kernels {

using tuning::halo_threads;

/// Values of a thread in a row, and the words that they are: one element in each of f32, two of 16 bits.
inline constexpr unsigned halo_columns = 4;
template <class Bits>
inline constexpr unsigned halo_words = halo_columns * sizeof(Bits) / 4;

/// How threads go down through a number of rows: each through `rows` of a group of columns.
struct halo_walk {
  divisor inner;        ///< of what neighbouring threads differ in, groups of columns or segments of rows
  bool by_segments;     ///< whether neighbours differ in segments
  std::uint32_t rows;   ///< of a segment
  std::uint32_t units;  ///< threads, if there were so many

  /// Of a unit.
  STASH_DEVICE void find(std::uint32_t unit, std::uint32_t& segment, std::uint32_t& group) const {
    std::uint32_t outer = unit;
    const std::uint32_t own = take_small_digit(outer, inner);
    segment = by_segments ? own : outer;
    group = by_segments ? outer : own;
  }
};
/// How far threads are from each other in shared memory, in bytes: of two groups of columns, of two rows.
struct halo_steps {
  std::uint32_t group, row;
};
/// How many threads of the first warp meet in one bank of shared memory at most: so many times as long takes
/// each of their accesses.
inline std::uint32_t threads_in_bank(std::uint32_t units, std::uint32_t inner, std::uint32_t inner_step,
                                     std::uint32_t outer_step) {
  constexpr std::uint32_t banks = 32, bank_bytes = 4;
  std::uint8_t there[banks] = {};
  std::uint32_t most = 0, bank_byte = 0, start = 0;
  for (std::uint32_t lane = 0, digit = 0; lane < warp_lanes && lane < units; ++lane) {
    most = std::max<std::uint32_t>(most, ++there[bank_byte / bank_bytes % banks]);
    bank_byte += inner_step;
    if (++digit < inner) continue;
    digit = 0;
    bank_byte = start += outer_step;
  }
  return most;
}
/// The walk that takes a block the least time. `extra_rows`: rows that take a thread as long as all that it
/// does in addition to its own rows.
inline halo_walk halo_walk_of(std::uint32_t rows, std::uint32_t width, std::uint32_t extra_rows,
                              const halo_steps& steps) {
  const auto parts = [](std::uint32_t all, std::uint32_t most) { return (all + most - 1) / most; };
  const std::uint32_t groups = parts(width, halo_columns);
  const auto time_of = [&](std::uint32_t own) {
    return parts(groups * parts(rows, own), halo_threads) * (own + extra_rows);
  };
  std::uint32_t usual = rows, usual_time = time_of(rows);
  for (std::uint32_t segments = 2; segments <= rows && segments <= halo_threads; ++segments) {
    const std::uint32_t own = parts(rows, segments), time = time_of(own);
    if (time >= usual_time) continue;
    usual = own;
    usual_time = time;
  }
  // A row more or less may spare threads from meeting in banks. What a thread does with a row takes as long
  // as so many times its accesses would if none met.
  constexpr std::uint32_t computing = 4;
  halo_walk best{};
  std::uint32_t least = 0;
  for (const std::uint32_t own : {usual, usual + 1, usual + 2, usual - 1}) {
    if (own < 1 || own > rows) continue;
    const std::uint32_t segments = parts(rows, own), units = groups * segments, time = time_of(own);
    if (least != 0 && time * (computing + 1) >= least) continue;
    for (const bool by_segments : {false, true}) {
      const std::uint32_t segment_step = own * steps.row;
      const std::uint32_t meeting = by_segments ? threads_in_bank(units, segments, segment_step, steps.group)
                                                : threads_in_bank(units, groups, steps.group, segment_step);
      const std::uint32_t all = time * (computing + meeting);
      if (least != 0 && all >= least) continue;
      least = all;
      best = {divisor_of(by_segments ? segments : groups), by_segments, own, units};
    }
  }
  return best;
}

/// How a map is cut into tiles.
struct halo_grid {
  std::uint64_t values;        ///< of the map that is made
  std::uint64_t read_values;   ///< of the other map
  std::uint32_t block_values;  ///< a multiple of 32
  halo_walk search;            ///< for maxima, through rows of y
  halo_walk sum;               ///< for gradients
  divisor squares;             ///< pairs of rows of a plane, where gradients come in squares
};

/// The largest tile whose halo tiles fit; without values if none does. `size`: of an element. `searches`:
/// whether argmaxes are found again, going backward.
inline halo_grid halo_grid_of(const halo_shape& shape, std::uint64_t x_values, std::uint64_t y_values,
                              std::size_t size, bool backward, bool searches) {
  const auto bytes = static_cast<std::uint32_t>(size);
  const std::uint32_t extra_rows = shape.stride == 1 ? 2 : 1;
  const std::uint32_t values = halo_tile_values(shape, bytes, backward, searches);
  halo_grid grid{backward ? x_values : y_values, backward ? y_values : x_values, values, {}, {}, {}};
  if (values == 0) return grid;
  const std::uint32_t rows = halo_shape::rows_with(values, backward ? shape.width : shape.out_width);
  const std::uint32_t windows = backward ? shape.rows_of_y(rows) : rows;
  // Of x.
  const halo_steps steps{halo_columns * shape.stride * bytes, shape.width * shape.stride * bytes};
  if (!backward || searches) grid.search = halo_walk_of(windows, shape.out_width, extra_rows, steps);
  if (backward && shape.stride == 1)
    grid.sum = halo_walk_of((values + shape.width - 1) / shape.width, shape.width, extra_rows, steps);
  if (backward && shape.stride == 2) {
    // A plane may begin and end with half a square.
    const std::uint32_t squares = rows / 2 + (rows - 1) / shape.height + 2;
    // A row of squares is two of dx.
    grid.sum = halo_walk_of(squares, shape.width + shape.pad_columns, extra_rows,
                            {halo_columns * bytes, shape.width * 2 * bytes});
    grid.squares = divisor_of((shape.height + shape.pad_rows + 1) / 2);
  }
  return grid;
}

/// Where a block's tile lies in rows of `width` elements and planes of `height` rows.
struct out_tile {
  std::uint64_t first;  ///< value
  std::uint32_t count;  ///< values of the map in it
  std::uint64_t plane;  ///< of the first value
  std::uint32_t row, column;

  STASH_DEVICE out_tile(const halo_grid& grid, const divisor& width, const divisor& height)
      : first(block_rank() * grid.block_values), plane(first) {
    const std::uint64_t left = first < grid.values ? grid.values - first : 0;
    count = left < grid.block_values ? static_cast<std::uint32_t>(left) : grid.block_values;
    column = static_cast<std::uint32_t>(take_digit(plane, width));
    row = static_cast<std::uint32_t>(take_digit(plane, height));
  }
  /// The row of the last value, counted from the first one of the first value's plane. There are values.
  STASH_DEVICE std::uint32_t last_row(const divisor& width) const {
    return row + small_quotient(column + count - 1, width);
  }
};

/// Some of a flat map in shared memory. Number 0 there is the first element of a whole vec16.
struct shared_halo {
  std::int64_t first_vec16;  ///< of the map; before it if negative
  std::uint32_t vec16s;

  /// The vec16s that hold `count` elements from `first` on.
  template <class Bits>
  STASH_DEVICE static shared_halo holding(std::int64_t first, std::uint32_t count) {
    constexpr unsigned shift = sizeof(Bits) == 4 ? 2 : 3;
    const std::int64_t vec16 = first >> shift;
    const auto skipped = static_cast<std::uint32_t>(first - (vec16 << shift));
    return {vec16, (skipped + count + vec16_elements<Bits> - 1) >> shift};
  }
  /// Where an element of the map is.
  template <class Bits>
  STASH_DEVICE std::uint32_t index_of(std::int64_t element) const {
    return static_cast<std::uint32_t>(element - first_vec16 * std::int64_t{vec16_elements<Bits>});
  }

  /// Copies what there is of the vec16s in a map of `values` elements; there are at most `Most`, and all are
  /// under way before the first is used. All threads come. A sum of all that this thread copied, for
  /// is_nan_sum().
  template <class Bits, unsigned Most>
  STASH_DEVICE std::uint32_t load(const void* map, std::uint64_t values, vector16* to) const {
    constexpr unsigned loads = Most / halo_threads;
    static_assert(Most % halo_threads == 0);
    const std::int64_t whole = static_cast<std::int64_t>(values / vec16_elements<Bits>) - first_vec16;
    const std::uint32_t begin = first_vec16 < 0 ? static_cast<std::uint32_t>(-first_vec16) : 0;
    const std::uint32_t end = whole < std::int64_t{vec16s} ? static_cast<std::uint32_t>(whole) : vec16s;
    std::uint32_t sum = 0;
    if (begin + thread_rank() < end) {
      const auto* const from = static_cast<const vector16*>(map) + first_vec16;
      vector16 v[loads];
      STASH_UNROLL
      for (unsigned k = 0; k < loads; ++k) {
        const std::uint32_t vec16 = begin + thread_rank() + k * halo_threads;
        v[k] = from[vec16 < end - 1 ? vec16 : end - 1];
      }
      STASH_UNROLL
      for (unsigned k = 0; k < loads; ++k) {
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w)
          sum = sum_of_words<Bits>(sum, v[k].word[w]);
        const std::uint32_t vec16 = begin + thread_rank() + k * halo_threads;
        if (vec16 < end) to[vec16] = v[k];
      }
    }
    // A map may end within a vec16.
    const std::uint32_t rest = end < vec16s ? static_cast<std::uint32_t>(values % vec16_elements<Bits>) : 0;
    if (thread_rank() < rest) {
      const std::uint64_t element = values - rest + thread_rank();
      const Bits bits = static_cast<const Bits*>(map)[element];
      reinterpret_cast<Bits*>(to + end)[thread_rank()] = bits;
      sum = sum_of_words<Bits>(sum, bits);
    }
    return sum;
  }
};

/// Writes a block's tile, of which `vec16s` fit into shared memory.
template <class Bits, unsigned Capacity>
STASH_DEVICE void store_out_tile(const out_tile& tile, const vector16* staged, void* to) {
  Bits* const out = static_cast<Bits*>(to) + tile.first;
  const std::uint32_t whole = tile.count / vec16_elements<Bits>;
  STASH_UNROLL
  for (unsigned round = 0; round < Capacity; round += halo_threads) {
    const std::uint32_t vec16 = round + thread_rank();
    if (vec16 < whole) store_vector(reinterpret_cast<vector16*>(out) + vec16, staged[vec16]);
  }
  // A map may end within a vec16.
  const std::uint32_t value = whole * vec16_elements<Bits> + thread_rank();
  if (value < tile.count) out[value] = reinterpret_cast<const Bits*>(staged)[value];
}

/// Notes for all threads of a block that one of them needs care. All come; the answer is there after the
/// block has met.
STASH_DEVICE void note_care(std::uint32_t* notes, bool careful) {
  const std::uint32_t lanes = ballot(all_lanes, careful);
  if (thread_rank() % warp_lanes == 0) notes[thread_rank() / warp_lanes] = lanes;
}
STASH_DEVICE bool any_care(const std::uint32_t* notes) {
  std::uint32_t all = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < halo_threads / warp_lanes; ++w)
    all |= notes[w];
  return all != 0;
}

}  // namespace stash::kernels
