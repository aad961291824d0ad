#pragma once
/// \file
/// Pooling where channels come first and windows are small squares: a thread has a run of values of one row.
/// What it reads of a row of the other map is a run too; it may start anywhere, so the thread loads the
/// 16-byte pieces that hold it and moves its elements to the front. Loads of all rows come before the first
/// use.
///
/// A block makes a stretch of the map that is a multiple of 16 values, whatever the length of its rows: runs
/// leave their values in shared memory, from where they go in 16-byte pieces. Threads whose values need more
/// than the short way (NaN, the last few elements of a map that ends within a piece) take that of pool.hpp.

#include <algorithm>
#include <cstdint>

#include "pool.hpp"

namespace stash::kernels {

/// A block's share of the map that is written, and what bounds the map that is read.
struct run_grid {
  std::uint64_t values;        ///< of the map that is written
  std::uint32_t block_values;  ///< a multiple of 16
  divisor by_runs;             ///< runs of a row
  std::uint64_t read_values;   ///< of the map that is read: a piece or more
  std::int32_t read_pieces;    ///< whole ones
};

/// Elements of a 16-byte piece.
template <class Bits>
inline constexpr unsigned piece_elements = 16 / sizeof(Bits);

/// Values of a thread. Going backward they are more, because dx is most of what moves where windows are two
/// apart.
template <class Bits>
inline constexpr unsigned forward_run = piece_elements<Bits>;
template <class Bits, unsigned Stride>
inline constexpr unsigned backward_run = Stride == 1 ? 8 : Stride* piece_elements<Bits>;

/// Bits of a cell's number in windows of Kernel x Kernel.
template <unsigned Kernel>
inline constexpr unsigned run_cell_bits = Kernel == 2 ? 2 : 4;

/// How a layer of rows of `length` values is cut into runs, of which the first of each row starts `shift`
/// values before it. `size` is that of an element.
inline run_grid run_grid_of(std::uint64_t values, std::uint64_t length, unsigned run, unsigned shift,
                            std::uint64_t read_values, std::size_t size) {
  const std::uint64_t runs = (length + shift + run - 1) / run;
  // A stretch covers whole rows, and parts of two.
  const auto threads = [&](std::uint64_t stretch) {
    return stretch / length * runs + stretch % length / run + 4;
  };
  std::uint32_t stretch = pool_threads * run;
  while (threads(stretch) > pool_threads)
    stretch -= 16;
  return {values, stretch, divisor_of(static_cast<std::int64_t>(runs)), read_values,
          static_cast<std::int32_t>(read_values * size / 16)};
}

/// Stretches, and so blocks, for so many values.
inline std::uint64_t stretches_of(const run_grid& grid, std::uint64_t values) {
  return (values + grid.block_values - 1) / grid.block_values;
}

/// Where a thread's run lies.
struct run_place {
  std::uint64_t plane;
  std::int32_t row, column;  ///< of its first value; the column may be negative
  std::int32_t at;           ///< of that value in the block's stretch; may be negative
  bool any;                  ///< whether the thread has any value
};

/// `length` divides by the values of a row, `height` by the rows of a plane.
template <unsigned Run>
STASH_DEVICE run_place place_of_run(const run_grid& grid, const divisor& length, const divisor& height,
                                    std::int32_t shift) {
  const std::uint64_t first = block_rank() * grid.block_values;
  std::uint64_t row = first;
  const auto column = static_cast<std::uint32_t>(take_digit(row, length));
  const std::uint32_t run = (column + static_cast<std::uint32_t>(shift)) / Run + thread_rank();
  const std::uint32_t rows = small_quotient(run, grid.by_runs);
  row += rows;
  run_place place;
  place.column =
      static_cast<std::int32_t>((run - rows * static_cast<std::uint32_t>(grid.by_runs.value)) * Run) - shift;
  const auto row_at = static_cast<std::int64_t>(row * length.value - first);
  place.at = static_cast<std::int32_t>(row_at) + place.column;
  // A run that starts before its row has a value behind it.
  const std::int64_t value_at = row_at + (place.column > 0 ? place.column : 0);
  const std::int64_t left = static_cast<std::int64_t>(grid.values - first);
  place.any = value_at < static_cast<std::int64_t>(grid.block_values) && value_at < left;
  place.plane = row;
  place.row = static_cast<std::int32_t>(take_digit(place.plane, height));
  return place;
}

/// Words that hold `Count` elements which start in the first one.
template <class Bits, unsigned Count>
inline constexpr unsigned run_words = sizeof(Bits) == 4 ? Count : Count / 2 + 1;
/// Pieces that hold them wherever they start in the first one.
template <class Bits, unsigned Count>
inline constexpr unsigned run_pieces = (run_words<Bits, Count> + 3 + 3) / 4;

/// `Count` elements of a row, before and after they are moved to the front.
template <class Bits, unsigned Count>
struct element_run {
  std::uint32_t word[4 * run_pieces<Bits, Count>];

  /// Loads elements from `first` on. What lies outside the map's whole pieces is anything.
  STASH_DEVICE void load(const void* map, std::int64_t first, std::int32_t pieces) {
    const auto piece = static_cast<std::int32_t>(first >> (sizeof(Bits) == 4 ? 2 : 3));
    STASH_UNROLL
    for (unsigned p = 0; p < run_pieces<Bits, Count>; ++p) {
      const std::int32_t wanted = piece + static_cast<std::int32_t>(p);
      const std::int32_t last = wanted < pieces ? wanted : pieces - 1;
      const vector16 v = static_cast<const vector16*>(map)[last > 0 ? last : 0];
      STASH_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        word[4 * p + i] = v.word[i];
    }
  }

  /// Moves element `first` to the front.
  STASH_DEVICE void move(std::int64_t first) {
    constexpr unsigned words = run_words<Bits, Count>;
    const std::uint32_t place = static_cast<std::uint32_t>(first) % piece_elements<Bits>;
    constexpr unsigned per_word = 4 / sizeof(Bits);
    const std::uint32_t skipped = place / per_word;
    STASH_UNROLL
    for (unsigned i = 0; i < words + 1; ++i)
      word[i] = (skipped & 2) != 0 ? word[i + 2] : word[i];
    STASH_UNROLL
    for (unsigned i = 0; i < words; ++i)
      word[i] = (skipped & 1) != 0 ? word[i + 1] : word[i];
    if constexpr (sizeof(Bits) == 2) {
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        word[i] = funnel_right(word[i], i + 1 < words ? word[i + 1] : 0, place % 2 * 16);
    }
  }

  STASH_DEVICE Bits element(unsigned i) const {
    if constexpr (sizeof(Bits) == 4) {
      return word[i];
    } else {
      return static_cast<Bits>(word[i / 2] >> (16 * (i % 2)));
    }
  }
  /// Its rank (rank_of()).
  STASH_DEVICE float rank(unsigned i) const {
    if constexpr (sizeof(Bits) == 4) {
      return as_float(word[i]);
    } else {
      return as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000U);
    }
  }
};

/// Which values of a run a block stages: [begin, end), those in their row, its stretch, and the map.
struct staged_part {
  std::int32_t begin, end;
};
STASH_DEVICE staged_part staged_part_of(const run_grid& grid, const run_place& place, std::int32_t length,
                                        std::int32_t run) {
  const std::int32_t before = place.at < 0 ? -place.at : 0;
  const std::int32_t outside = place.column < 0 ? -place.column : 0;
  const std::int32_t room = static_cast<std::int32_t>(grid.block_values) - place.at;
  const std::int32_t row = length - place.column;
  const std::int32_t end = room < row ? room : row;
  return {before > outside ? before : outside, end < run ? end : run};
}

/// Leaves these values of a run that starts at `at` in the block's stretch.
template <class T, unsigned Run>
STASH_DEVICE void stage_run(vector16* staged, std::int32_t at, const staged_part& part,
                            const T (&values)[Run]) {
  constexpr auto run = static_cast<std::int32_t>(Run);
  if (part.begin == 0 && part.end == run && at % run == 0) {
    constexpr unsigned words = sizeof(T) * Run / 4;
    constexpr unsigned per_word = 4 / sizeof(T);
    std::uint32_t word[words] = {};
    STASH_UNROLL
    for (unsigned i = 0; i < Run; ++i)
      word[i / per_word] |= static_cast<std::uint32_t>(values[i]) << (8 * sizeof(T) * (i % per_word));
    auto* const to = reinterpret_cast<std::uint32_t*>(staged) + static_cast<unsigned>(at) / per_word;
    STASH_UNROLL
    for (unsigned i = 0; i < words; i += 4) {
      if constexpr (words % 4 == 0) {
        *reinterpret_cast<vector16*>(to + i) = {{word[i], word[i + 1], word[i + 2], word[i + 3]}};
      } else {
        for (unsigned k = i; k < words; ++k)
          to[k] = word[k];
      }
    }
    return;
  }
  T* const to = reinterpret_cast<T*>(staged);
  STASH_UNROLL
  for (std::int32_t i = 0; i < run; ++i) {
    if (i >= part.begin && i < part.end) to[at + i] = values[i];
  }
}

/// Writes the block's stretch.
template <class Bits>
STASH_DEVICE void store_stretch(const run_grid& grid, const vector16* staged, unsigned pieces, void* to) {
  const std::uint64_t first = block_rank() * grid.block_values;
  STASH_UNROLL
  for (unsigned round = 0; round < pieces; round += pool_threads) {
    const std::uint32_t value = (round + thread_rank()) * piece_elements<Bits>;
    if (value >= grid.block_values) return;
    Bits* const out = static_cast<Bits*>(to) + first + value;
    if (first + value + piece_elements<Bits> <= grid.values) {
      *reinterpret_cast<vector16*>(out) = staged[round + thread_rank()];
    } else {
      const auto* const from = reinterpret_cast<const Bits*>(staged) + value;
      for (unsigned i = 0; first + value + i < grid.values; ++i)
        out[i] = from[i];
    }
  }
}

}  // namespace stash::kernels
