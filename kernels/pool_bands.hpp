#pragma once
/// \file
/// Pooling with windows of 3 x 3 one apart and a row and a column of padding on every side, where channels
/// come first and rows may have any length. x and y have one shape, so window number i is the one around
/// element number i, and what is to the left, to the right, above and below lies 1 or a row's length away,
/// across the ends of rows and planes.
///
/// A block makes a stretch of the flat map that is a multiple of 32 values. It copies the band of the other
/// map that the stretch needs into shared memory, in 16-byte pieces as they come. There a thread goes down a
/// few columns, and so has the same distance from the borders on the left and on the right all the way. What
/// it makes stays in shared memory until it leaves in 16-byte pieces. What needs care (NaN, codes that name
/// no cell of x) makes the block do its stretch once more, by the loops of pool.hpp.

#include <cstdint>

#include "pool_pieces.hpp"

namespace stash::kernels {

inline constexpr unsigned band_threads = tuning::band_threads;

/// Values of a thread in a row: two words.
template <class Bits>
inline constexpr unsigned band_columns = 8 / sizeof(Bits);
/// The most values of a block, and of the band that it needs for them.
template <class Bits>
inline constexpr std::uint32_t most_stretch_values = 8192 / sizeof(Bits);
inline constexpr unsigned stretch_pieces = 8192 / 16;
template <class Bits>
inline constexpr std::uint32_t most_band_values = 12288 / sizeof(Bits);
inline constexpr unsigned band_pieces = 12288 / 16;
/// What is read behind the last value of a band, and written behind that of a stretch.
inline constexpr unsigned slack_pieces = 1;

/// How threads go down through a number of rows: each through `rows` of a few columns.
struct band_walk {
  divisor groups;       ///< of columns
  std::uint32_t rows;   ///< of a thread
  std::uint32_t units;  ///< threads, if there were so many
};
/// The walk that takes a block the least time. `columns`: of a thread.
inline band_walk band_walk_of(std::uint32_t rows, std::uint32_t width, std::uint32_t columns) {
  const auto parts = [](std::uint32_t all, std::uint32_t most) { return (all + most - 1) / most; };
  const std::uint32_t groups = parts(width, columns);
  std::uint32_t best = rows, least = 0;
  for (std::uint32_t strips = 1; strips <= rows && strips <= band_threads; ++strips) {
    const std::uint32_t own = parts(rows, strips);
    // A thread looks at a row above and at one below its own.
    const std::uint32_t time = parts(groups * parts(rows, own), band_threads) * (own + 2);
    if (least != 0 && time >= least) continue;
    least = time;
    best = own;
  }
  return {divisor_of(groups), best, groups * parts(rows, best)};
}

/// How a map is cut into stretches.
struct band_grid {
  std::uint64_t values;        ///< of x, and of y
  std::uint32_t block_values;  ///< a multiple of 32
  band_walk search;            ///< for maxima
  band_walk sum;               ///< for gradients
};
/// Rows that a stretch has a part of.
inline std::uint32_t rows_of_stretch(std::uint32_t values, std::uint32_t width) {
  return (values + 2 * width - 2) / width;
}
/// Whether rows of `width` elements of this size have bands: some rows have to fit into shared memory.
inline bool bands_fit(std::uint64_t width, std::size_t size) {
  return width >= 8 / size && width * size <= 1024;
}
inline band_grid band_grid_of(std::uint64_t values, std::uint32_t width, std::size_t size, bool backward) {
  const auto bytes = static_cast<std::uint32_t>(size);
  const std::uint32_t columns = 8 / bytes;
  // Maxima are found for whole rows, for gradients a row and a value more on either side; they need a row
  // above and one below. Pieces begin anywhere.
  const std::uint32_t beside = (backward ? 6 : 4) * width + 48 / bytes;
  const std::uint32_t stretch = std::min(8192 / bytes, (12288 / bytes - beside) / 32 * 32);
  const std::uint32_t searched = stretch + (backward ? 2 * width + 2 : 0);
  return {values, stretch, band_walk_of(rows_of_stretch(searched, width), width, columns),
          band_walk_of((stretch + width - 1) / width, width, columns)};
}

/// Where a block's stretch lies.
struct band_stretch {
  std::uint64_t first;          ///< value
  std::uint32_t count;          ///< values of the map in it
  std::uint32_t width, height;  ///< of a plane
  std::uint32_t row, column;    ///< in its plane, of the first value

  STASH_DEVICE band_stretch(const pool_job& job, const band_grid& grid)
      : first(block_rank() * grid.block_values),
        width(static_cast<std::uint32_t>(job.columns.in)),
        height(static_cast<std::uint32_t>(job.rows.in)) {
    const std::uint64_t left = first < grid.values ? grid.values - first : 0;
    count = left < grid.block_values ? static_cast<std::uint32_t>(left) : grid.block_values;
    std::uint64_t rows = first;
    column = static_cast<std::uint32_t>(take_digit(rows, job.columns.by_in));
    row = static_cast<std::uint32_t>(take_digit(rows, job.rows.by_in));
  }
};

/// Some of a flat map in shared memory. Number 0 there is the first element of a whole piece.
struct shared_band {
  std::int64_t first_piece;  ///< of the map; before it if negative
  std::uint32_t pieces;

  /// The pieces that hold `count` elements from `first` on.
  template <class Bits>
  STASH_DEVICE static shared_band of(std::int64_t first, std::uint32_t count) {
    constexpr unsigned shift = sizeof(Bits) == 4 ? 2 : 3;
    const std::int64_t piece = first >> shift;
    const auto skipped = static_cast<std::uint32_t>(first - (piece << shift));
    return {piece, (skipped + count + piece_elements<Bits> - 1) >> shift};
  }
  /// Where an element of the map is.
  template <class Bits>
  STASH_DEVICE std::uint32_t place_of(std::int64_t element) const {
    return static_cast<std::uint32_t>(element - first_piece * std::int64_t{piece_elements<Bits>});
  }

  /// Copies the pieces of a map of `values` elements; what lies outside of it is zero. All threads come. A
  /// sum of all that this thread copied.
  template <class Bits>
  STASH_DEVICE std::uint32_t load(const void* map, std::uint64_t values, vector16* to) const {
    const std::int64_t whole = static_cast<std::int64_t>(values / piece_elements<Bits>) - first_piece;
    const std::uint32_t begin = first_piece < 0 ? static_cast<std::uint32_t>(-first_piece) : 0;
    const std::uint32_t end = whole < std::int64_t{pieces} ? static_cast<std::uint32_t>(whole) : pieces;
    const auto* const from = static_cast<const vector16*>(map) + first_piece;
    std::uint32_t sum = 0;
    STASH_NO_UNROLL
    for (std::uint32_t round = thread_rank(); round < pieces; round += loads * band_threads) {
      vector16 v[loads];
      STASH_UNROLL
      for (unsigned k = 0; k < loads; ++k) {
        const std::uint32_t piece = round + k * band_threads;
        v[k] = piece >= begin && piece < end ? from[piece] : at_end<Bits>(map, values, piece);
      }
      STASH_UNROLL
      for (unsigned k = 0; k < loads; ++k) {
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w)
          sum = sum_of_words<Bits>(sum, v[k].word[w]);
        if (round + k * band_threads < pieces) to[round + k * band_threads] = v[k];
      }
    }
    return sum;
  }

 private:
  static constexpr unsigned loads = tuning::loads_in_flight;

  /// A piece that the map has a part of, or nothing.
  template <class Bits>
  STASH_DEVICE vector16 at_end(const void* map, std::uint64_t values, std::uint32_t piece) const {
    vector16 v = {};
    const std::int64_t first = (first_piece + piece) * std::int64_t{piece_elements<Bits>};
    if (first < 0 || first >= static_cast<std::int64_t>(values) || piece >= pieces) return v;
    STASH_UNROLL
    for (unsigned i = 0; i < piece_elements<Bits>; ++i) {
      const auto element = static_cast<std::uint64_t>(first) + i;
      const std::uint32_t bits = element < values ? static_cast<const Bits*>(map)[element] : 0;
      v.word[i * sizeof(Bits) / 4] |= bits << (8 * sizeof(Bits) * i % 32);
    }
    return v;
  }
};

/// Elements of a thread's columns in a row, and one on either side. f32: one in a word. 16 bits: two.
template <class Bits>
struct band_row {
  static constexpr unsigned words = sizeof(Bits) == 4 ? 4 : 3;
  std::uint32_t word[words];

  /// `place`: of the element on the left.
  STASH_DEVICE void load(const vector16* band, std::uint32_t place) {
    const auto* const from = reinterpret_cast<const std::uint32_t*>(band);
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        word[i] = from[place + i];
    } else {
      std::uint32_t whole[words + 1];
      STASH_UNROLL
      for (unsigned i = 0; i < words + 1; ++i)
        whole[i] = from[place / 2 + i];
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        word[i] = funnel_right(whole[i], whole[i + 1], place % 2 * 16);
    }
  }
  /// Cell `k` of a row of the windows in word `w`.
  STASH_DEVICE std::uint32_t cell(unsigned w, unsigned k) const {
    if constexpr (sizeof(Bits) == 4) {
      return word[w + k];
    } else {
      return k == 1 ? pick_bytes(word[w], word[w + 1], 0x5432) : word[w + k / 2];
    }
  }
};

/// The rows of windows that maxima are found for: those that `count` windows in a row have a part of.
struct band_rows {
  std::uint32_t count;
  std::uint32_t row, column;  ///< in its plane, of the first window

  /// Elements of x that they need: from `before` the first window on.
  STASH_DEVICE std::uint32_t before(const band_stretch& stretch) const { return column + stretch.width + 1; }
  STASH_DEVICE std::uint32_t needed(const pool_job& job, const band_stretch& stretch) const {
    return (rows(job, stretch) + 2) * stretch.width + 2;
  }
  STASH_DEVICE std::uint32_t rows(const pool_job& job, const band_stretch& stretch) const {
    return small_quotient(column + count + stretch.width - 1, job.columns.by_in);
  }
};

/// Where a thread begins, and which of its columns have something beside them.
template <class Bits>
struct band_place {
  std::int32_t at;        ///< of its first window among those that are wanted; may lie before them
  std::uint32_t columns;  ///< that are its own; those behind them are in the next row
  std::uint32_t rows;
  std::uint32_t row;  ///< in its plane
  bool left;          ///< whether there is a column to the left

  STASH_DEVICE band_place(const pool_job& job, const band_walk& walk, const band_stretch& stretch,
                          const band_rows& wanted, std::uint32_t unit) {
    std::uint32_t strip = unit;
    const std::uint32_t behind = take_small_digit(strip, walk.groups) * band_columns<Bits>;
    const std::uint32_t first_row = strip * walk.rows;
    at = static_cast<std::int32_t>(first_row * stretch.width + behind) -
         static_cast<std::int32_t>(wanted.column);
    columns = stretch.width - behind;
    const std::uint32_t all_rows = wanted.rows(job, stretch);
    rows = first_row >= all_rows ? 0 : all_rows - first_row < walk.rows ? all_rows - first_row : walk.rows;
    std::uint32_t plane = wanted.row + first_row;
    row = take_small_digit(plane, job.rows.by_in);
    left = behind > 0;
  }
};

/// Of two words of elements the first, where it is greater or `only` says so, else the second; and its
/// number.
template <class Bits>
STASH_DEVICE void take_last_or(bool only, std::uint32_t word, std::uint32_t cell, std::uint32_t earlier,
                               std::uint32_t earlier_cell, std::uint32_t& best, std::uint32_t& best_cell) {
  if constexpr (sizeof(Bits) == 4) {
    const bool more = only || as_float(word) > as_float(earlier);
    best = more ? word : earlier;
    best_cell = more ? cell : earlier_cell;
  } else {
    const std::uint32_t more = greater_masks(word, earlier) | (only ? 0xffffffffU : 0);
    best = select_bits(more, word, earlier);
    best_cell = select_bits(more, cell, earlier_cell);
  }
}
/// Lets the elements of a word compete, unless they are not there.
template <class Bits>
STASH_DEVICE void compete_unless(bool none, std::uint32_t word, std::uint32_t cell, std::uint32_t& best,
                                 std::uint32_t& best_cell) {
  if constexpr (sizeof(Bits) == 4) {
    const bool more = as_float(word) > as_float(best) && !none;
    best = more ? word : best;
    best_cell = more ? cell : best_cell;
  } else {
    const std::uint32_t more = greater_masks(word, best) & (none ? 0 : 0xffffffffU);
    best = select_bits(more, word, best);
    best_cell = select_bits(more, cell, best_cell);
  }
}

/// Maxima of the windows around a thread's columns, row after row. What lies outside of x never wins.
template <class Bits>
class band_search {
 public:
  using row_maxima = piece_maxima<Bits, band_columns<Bits>>;

  /// `at`: where the element of the first window is in the band.
  STASH_DEVICE band_search(const vector16* band, std::uint32_t at, const band_place<Bits>& place,
                           const band_stretch& stretch)
      : band_(band),
        width_(stretch.width),
        height_(stretch.height),
        at_(at),
        row_(place.row),
        left_(place.left) {
    constexpr unsigned columns = band_columns<Bits>;
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned i = 0; i < columns; ++i)
        right_[i] = place.columns == i + 1 ? 0xffffffffU : 0;
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < 2; ++w)
        right_[w] = place.columns == 2 * w + 1 ? 0xffffU : place.columns == 2 * w + 2 ? 0xffff0000U : 0;
    }
    rows_[0] = of_row(at - width_);
    rows_[1] = of_row(at);
  }

  /// Finds the next row of windows; `k` is its number.
  STASH_DEVICE void find(unsigned k, row_maxima& found) {
    const row_maxima &above = rows_[k % 3], &own = rows_[(k + 1) % 3];
    row_maxima& below = rows_[(k + 2) % 3];
    at_ += width_;
    below = of_row(at_);
    const bool top = row_ == 0;
    first_row_ = top ? row_maxima::number(3) : 0;
    ++row_;
    const bool bottom = row_ == height_;
    row_ = bottom ? 0 : row_;
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      const std::uint32_t own_cell = own.cell[w] + row_maxima::number(3) - of_window(w);
      const std::uint32_t below_cell = below.cell[w] + row_maxima::number(6) - of_window(w);
      take_last_or<Bits>(top, own.value[w], own_cell, above.value[w], above.cell[w] - of_window(w),
                         found.value[w], found.cell[w]);
      compete_unless<Bits>(bottom, below.value[w], below_cell, found.value[w], found.cell[w]);
    }
  }
  /// The first cells in x of the windows in word `w` of the row that was found last.
  STASH_DEVICE std::uint32_t first_cells(unsigned w) const { return first_row_ + (w == 0 && !left_ ? 1 : 0); }

 private:
  const vector16* band_;
  std::uint32_t width_, height_;
  std::uint32_t at_, row_;
  bool left_;
  std::uint32_t right_[2];  ///< all bits of elements of the last column
  std::uint32_t first_row_ = 0;
  row_maxima rows_[3];  ///< the numbers of their cells are those of columns

  /// Columns of f32 are counted from that of the first window, those of 16 bits from each window's own.
  STASH_DEVICE static std::uint32_t of_window(unsigned w) { return sizeof(Bits) == 4 ? w : 0; }

  STASH_DEVICE row_maxima of_row(std::uint32_t at) const {
    band_row<Bits> row;
    row.load(band_, at - 1);
    row_maxima best;
    if constexpr (sizeof(Bits) == 4) {
      // Two columns are the last ones of a window and the first ones of the next.
      std::uint32_t value = row.word[1], cell = 1;
      compete_unless<Bits>(right_[0] != 0, row.word[2], 2, value, cell);
      take_last_or<Bits>(!left_, value, cell, row.word[0], 0, best.value[0], best.cell[0]);
      best.value[1] = value;
      best.cell[1] = cell;
      compete_unless<Bits>(right_[1] != 0, row.word[3], 3, best.value[1], best.cell[1]);
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < 2; ++w) {
        const std::uint32_t first = row.cell(w, 0), own = row.cell(w, 1), last = row.cell(w, 2);
        const std::uint32_t later = greater_masks(own, first) | (w == 0 && !left_ ? 0xffffU : 0);
        const std::uint32_t value = select_bits(later, own, first);
        const std::uint32_t more = greater_masks(last, value) & ~right_[w];
        best.value[w] = select_bits(more, last, value);
        best.cell[w] = select_bits(more, row_maxima::number(2), later & row_maxima::number(1));
      }
    }
    return best;
  }
};

/// Writes a block's stretch.
template <class Bits>
STASH_DEVICE void store_band(const band_stretch& stretch, const vector16* staged, void* to) {
  Bits* const out = static_cast<Bits*>(to) + stretch.first;
  const std::uint32_t whole = stretch.count / piece_elements<Bits>;
  STASH_UNROLL
  for (unsigned round = 0; round < stretch_pieces; round += band_threads) {
    const std::uint32_t piece = round + thread_rank();
    if (piece < whole) store_vector(reinterpret_cast<vector16*>(out) + piece, staged[piece]);
  }
  // A map may end within a piece.
  const std::uint32_t value = whole * piece_elements<Bits> + thread_rank();
  if (value < stretch.count) out[value] = reinterpret_cast<const Bits*>(staged)[value];
}

/// Cell numbers of two words of windows, one after the other.
template <class Bits>
STASH_DEVICE std::uint32_t cell_of(const std::uint32_t (&cells)[2], unsigned i) {
  if constexpr (sizeof(Bits) == 4) {
    return cells[i];
  } else {
    return i % 2 == 0 ? cells[i / 2] & 0xffff : cells[i / 2] >> 16;
  }
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
  for (unsigned w = 0; w < band_threads / warp_lanes; ++w)
    all |= notes[w];
  return all != 0;
}

}  // namespace stash::kernels
