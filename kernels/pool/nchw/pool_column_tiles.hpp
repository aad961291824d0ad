// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Pooling with windows of 3 x 3 with stride 1 in NCHW where rows of x are whole vec16s (16 bytes), with a
/// column of y for each of x: a thread goes down a column tile, a vec16 of each row of x or y, and makes two
/// rows at a time. Maxima of a row's three taps are found once and serve three rows of windows. What
/// neighbours read follows each other, nothing has to be moved, and nothing waits for another thread.
/// pool_halo_tiles.hpp takes other rows.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_vec16.hpp"

namespace stash::kernels {

/// How maps are cut into column tiles. Threads, and the values of a plane, are less than 2^31.
struct column_tile_grid {
  divisor vec16s, groups;          ///< of a row; column tiles below each other
  std::uint32_t rows;              ///< of a column tile: an even number up to 32
  std::uint32_t units;             ///< threads
  std::uint32_t x_plane, y_plane;  ///< values
};
STASH_DEVICE row_vec16 column_tile_position(const column_tile_grid& grid, std::uint32_t unit) {
  row_vec16 position;
  position.plane = unit;
  position.vec16 = static_cast<std::int32_t>(take_small_digit(position.plane, grid.vec16s));
  // Left to itself, the compiler divides once more in every round.
  position.row = static_cast<std::int32_t>(anew(take_small_digit(position.plane, grid.groups) * grid.rows));
  position.left = position.vec16 > 0;
  position.right = position.vec16 + 1 < static_cast<std::int32_t>(grid.vec16s.value);
  return position;
}

/// The same address `rows` further down.
template <class T>
STASH_DEVICE T* row_below(T* from, std::int32_t rows, std::uint32_t row_bytes) {
  using byte = std::conditional_t<std::is_const_v<T>, const std::uint8_t, std::uint8_t>;
  return reinterpret_cast<T*>(reinterpret_cast<byte*>(from) +
                              wide_product(static_cast<std::uint32_t>(rows), row_bytes));
}

/// A column tile's vec16 of the first row of a map, and what lies next to it: `Side` elements on either side,
/// the outermost ones of the vec16 itself where there are no others.
template <class Bits, unsigned Side>
struct column_tile_map {
  const Bits *vec16, *left, *right;
  std::uint32_t row_bytes;

  STASH_DEVICE column_tile_map(const void* map, std::uint32_t plane_values, std::uint32_t columns,
                               const row_vec16& position)
      : row_bytes(columns * static_cast<std::uint32_t>(sizeof(Bits))) {
    constexpr auto length = static_cast<std::int32_t>(vec16_elements<Bits>);
    constexpr auto side = static_cast<std::int32_t>(Side);
    vec16 = anew(static_cast<const Bits*>(map) + std::uint64_t{position.plane} * plane_values +
                 position.vec16 * length);
    left = anew(vec16 - (position.left ? side : 0));
    right = anew(vec16 + (position.right ? length : length - side));
  }
  /// The same of another row.
  STASH_DEVICE const Bits* at(std::int32_t row, const Bits* of_first_row) const {
    return row_below(of_first_row, row, row_bytes);
  }
};

/// What `Windows` windows have of a row of x: those of a vec16, or one more on either side. f32: a column in
/// a word. 16 bits: two.
template <class Bits, unsigned Windows>
struct column_tile_columns {
  static constexpr bool wider = Windows > vec16_elements<Bits>;
  static constexpr unsigned side = wider ? 2 : 1;
  static constexpr unsigned words = sizeof(Bits) == 4 ? Windows + 2 : 6;
  static constexpr unsigned first = sizeof(Bits) == 4 ? side : 1;  ///< of the vec16
  std::uint32_t word[words];

  STASH_DEVICE void load(const column_tile_map<Bits, side>& map, std::int32_t row) {
    const vector16 v = *reinterpret_cast<const vector16*>(map.at(row, map.vec16));
    STASH_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      word[first + i] = v.word[i];
    load_side(map.at(row, map.left), word);
    load_side(map.at(row, map.right), word + first + 4);
  }
  /// Replaces the columns before x by the first one in it.
  STASH_DEVICE void begin_at_border(bool left) {
    if constexpr (!wider) return;
    if constexpr (sizeof(Bits) == 4) {
      word[1] = left ? word[1] : word[0];
    } else {
      word[0] = pick_bytes(word[0], 0, left ? 0x3210 : 0x1010);
    }
  }

  /// Tap `k` of the row of window `w`, of 16 bits those of windows 2 w and 2 w + 1.
  STASH_DEVICE std::uint32_t tap(unsigned w, unsigned k) const {
    if constexpr (sizeof(Bits) == 4) {
      return word[w + k];
    } else if constexpr (wider) {
      return k == 1 ? pick_bytes(word[w], word[w + 1], 0x5432) : word[w + k / 2];
    } else {
      if (k == 1) return word[w + 1];
      const unsigned at = w + k / 2;
      // The column before the vec16 is alone in its word.
      return pick_bytes(word[at], word[at + 1], at == 0 ? 0x5410 : 0x5432);
    }
  }

 private:
  STASH_DEVICE static void load_side(const Bits* from, std::uint32_t* to) {
    if constexpr (side == 1) {
      *to = *from;
    } else if constexpr (sizeof(Bits) == 2) {
      *to = *reinterpret_cast<const std::uint32_t*>(from);
    } else {
      const vector8 v = *reinterpret_cast<const vector8*>(from);
      to[0] = v.word[0];
      to[1] = v.word[1];
    }
  }
};

/// The maxima of two rows of windows after the other two, and where they are.
template <class Bits, unsigned Windows>
class column_tile_search {
 public:
  using row_maxima = vec16_maxima<Bits, Windows>;
  using columns = column_tile_columns<Bits, Windows>;

  /// `top`: the first row of x of the first windows. `end`: no row from there on is read.
  STASH_DEVICE column_tile_search(const pool_job& job, const column_tile_grid& grid, const void* x,
                                  const row_vec16& position, std::int32_t top, std::int32_t end)
      : x_(x, grid.x_plane, static_cast<std::uint32_t>(job.columns.in), position),
        rows_(end < static_cast<std::int32_t>(job.rows.in) ? end : static_cast<std::int32_t>(job.rows.in)),
        left_(position.left) {
    columns first[2];
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      first[r].load(x_, row_at(top + static_cast<std::int32_t>(r)));
      ahead_[r].load(x_, row_at(top + static_cast<std::int32_t>(r) + 2));
    }
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r)
      last_[r] = of_row(first[r]);
  }

  /// Finds the windows whose first rows are `top` and the next. To the numbers of their taps `hidden` is
  /// added.
  STASH_DEVICE void find(std::int32_t top, const std::uint32_t (&hidden)[2], row_maxima (&found)[2]) {
    const row_maxima next[2] = {of_row(ahead_[0]), of_row(ahead_[1])};
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r)
      ahead_[r].load(x_, row_at(top + static_cast<std::int32_t>(r) + 4));
    const std::uint32_t first = number_of_first_row(top) + hidden[0];
    const std::uint32_t second = number_of_first_row(top + 1);
    STASH_UNROLL
    for (unsigned w = 0; w < row_maxima::words; ++w) {
      // Two rows are the last ones of a window and the first ones of the one below it.
      row_maxima& lower = found[1];
      lower.value[w] = last_[1].value[w];
      lower.tap[w] = last_[1].tap[w] + (second - of_window(w));
      lower.see(w, next[0].value[w], next[0].tap[w] + (row_maxima::number(3) - of_window(w)));
      found[0].value[w] = last_[0].value[w];
      found[0].tap[w] = last_[0].tap[w] + (first - of_window(w));
      found[0].see(w, lower.value[w], lower.tap[w] + (row_maxima::number(3) + hidden[0]));
      lower.tap[w] += hidden[1];
      lower.see(w, next[1].value[w], next[1].tap[w] + (row_maxima::number(6) + hidden[1] - of_window(w)));
    }
    last_[0] = next[0];
    last_[1] = next[1];
  }

  /// The first taps in x of the windows in word `w`, whose first row is `top`.
  STASH_DEVICE std::uint32_t first_taps(std::int32_t top, unsigned w) const {
    return number_of_first_row(top) + (w == 0 && !left_ ? 1 : 0);
  }

  /// Whether there may be a NaN among the last rows but `skipped`, in `count` rows: a NaN, or in bf16 a
  /// number that is NaN of f16. Then nothing is found there. That it may be infinities as well costs nothing
  /// but time.
  STASH_DEVICE bool needs_care(unsigned skipped, unsigned count) const {
    return (nan_rows_ >> skipped & ((1U << count) - 1)) != 0;
  }

 private:
  column_tile_map<Bits, columns::side> x_;
  std::int32_t rows_;
  bool left_;
  columns ahead_[2];
  row_maxima last_[2];          ///< of rows, whose taps are numbers of columns
  std::uint32_t nan_rows_ = 0;  ///< a bit for each row that was read, the last one the lowest

  // A row or a column outside of x is replaced by the nearest one inside, which is one of each window's, too.
  // That stands first and has its own number where it stands for others before it. What replaces others after
  // it is never above it, whatever its number.

  STASH_DEVICE std::int32_t row_at(std::int32_t number) const { return nearest_in(number, rows_); }
  /// The number of the first tap in x of windows that begin in row `top`, for all of a word.
  STASH_DEVICE static std::uint32_t number_of_first_row(std::int32_t top) {
    return row_maxima::number(top < 0 ? static_cast<std::uint32_t>(-3 * top) : 0);
  }
  /// Columns of f32 are counted from that of the first window, those of 16 bits from each window's own.
  STASH_DEVICE static std::uint32_t of_window(unsigned w) { return sizeof(Bits) == 4 ? w : 0; }

  STASH_DEVICE row_maxima of_row(columns row) {
    row.begin_at_border(left_);
    std::uint32_t sum = row.word[0];
    STASH_UNROLL
    for (unsigned i = 1; i < columns::words; ++i)
      sum = sum_of_words<Bits>(sum, row.word[i]);
    nan_rows_ = nan_rows_ << 1 | (is_nan_sum<Bits>(sum) ? 1U : 0U);
    row_maxima best;
    const std::uint32_t padded = left_ ? 0 : 1;
    if constexpr (sizeof(Bits) == 4) {
      const auto number = [&](unsigned k) { return k + 1 == columns::side ? k + padded : k; };
      STASH_UNROLL
      for (unsigned w = 0; w < Windows; w += 2) {
        // Two columns are the last ones of a window and the first ones of the next.
        best.value[w + 1] = row.word[w + 1];
        best.tap[w + 1] = number(w + 1);
        best.see(w + 1, row.word[w + 2], number(w + 2));
        best.value[w] = row.word[w];
        best.tap[w] = number(w);
        best.see(w, best.value[w + 1], best.tap[w + 1]);
        best.see(w + 1, row.word[w + 3], number(w + 3));
      }
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < row_maxima::words; ++w) {
        best.value[w] = row.tap(w, 0);
        best.tap[w] = w == 0 ? padded << (columns::wider ? 16 : 0) : 0;
        STASH_UNROLL
        for (unsigned k = 1; k < 3; ++k)
          best.see(w, row.tap(w, k), row_maxima::number(k));
      }
    }
    return best;
  }
};

}  // namespace stash::kernels
