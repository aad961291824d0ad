// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Pooling with windows of 3 x 3 with stride 2 in NCHW where rows of x are whole vec16s (16 bytes), with two
/// columns for each window: a thread has a vec16 of a few rows, or the windows that begin in it. What
/// neighbours read follows each other, nothing has to be moved, and nothing waits for another thread.
/// pool_halo_tiles.hpp takes other rows.

#include <cstdint>

#include "common/pairs.hpp"
#include "pool/pool.hpp"

namespace stash::kernels {

/// Windows that begin in a vec16.
template <class Bits>
inline constexpr unsigned vec16_windows = vec16_elements<Bits> / 2;

/// How maps are cut into vec16s of a few rows. Threads, and the values of a plane, are less than 2^31.
struct vec16_grid {
  divisor vec16s, groups;          ///< of a row; of rows in a plane
  std::int32_t first_row;          ///< of the first group
  std::uint32_t units;             ///< threads
  std::uint32_t x_plane, y_plane;  ///< values
};

/// Where a thread's vec16 lies.
struct row_vec16 {
  std::uint32_t plane;
  std::int32_t row, vec16;
  bool left, right;  ///< whether there are vec16s next to it
};
/// `Rows`: of a group.
template <unsigned Rows>
STASH_DEVICE row_vec16 position_of_vec16(const vec16_grid& grid, std::uint32_t unit) {
  row_vec16 position;
  position.plane = unit;
  position.vec16 = static_cast<std::int32_t>(take_small_digit(position.plane, grid.vec16s));
  position.row =
      static_cast<std::int32_t>(take_small_digit(position.plane, grid.groups) * Rows) + grid.first_row;
  position.left = position.vec16 > 0;
  position.right = position.vec16 + 1 < static_cast<std::int32_t>(grid.vec16s.value);
  return position;
}
/// The number of the thread among all.
STASH_DEVICE std::uint32_t thread_unit() {
  return static_cast<std::uint32_t>(block_rank()) * pool_threads + thread_rank();
}

/// What `Windows` windows have of a row of x: those that begin in a vec16, or one more, which comes before
/// them without padding and after them with it. f32: a column in a word. 16 bits: two; first taps lie in the
/// low halves without padding, with it in the high ones.
template <class Bits, unsigned Pad, unsigned Windows>
struct window_columns {
  static constexpr unsigned words = sizeof(Bits) == 4 ? 2 * Windows + 1 : Windows + 1;
  static constexpr bool one_more = Windows > vec16_windows<Bits>;
  static constexpr unsigned before = Pad == 1 ? 1 : one_more ? 2 : 0;
  static constexpr unsigned after = 2 * Windows + 1 - before - vec16_elements<Bits>;
  std::uint32_t word[words];

  /// A column outside of x is replaced by the one next to it.
  STASH_DEVICE void load(const Bits* vec16, bool left, bool right) {
    constexpr auto length = static_cast<std::int32_t>(vec16_elements<Bits>);
    constexpr auto more = static_cast<std::int32_t>(after);
    const Bits* const earlier = vec16 - (left ? static_cast<std::int32_t>(before) : 0);
    const Bits* const later = vec16 + (right ? length : length - more);
    constexpr unsigned first = sizeof(Bits) == 4 ? before : (before + 1) / 2;
    const vector16 v = *reinterpret_cast<const vector16*>(vec16);
    STASH_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      word[first + i] = v.word[i];
    if constexpr (sizeof(Bits) == 4) {
      load_words<before>(earlier, word);
      load_words<after>(later, word + first + 4);
    } else {
      if constexpr (before == 1) word[0] = std::uint32_t{*earlier} << 16;
      if constexpr (before == 2) word[0] = *reinterpret_cast<const std::uint32_t*>(earlier);
      if constexpr (after == 1) word[first + 4] = *later;
      if constexpr (after == 2) word[first + 4] = *reinterpret_cast<const std::uint32_t*>(later);
    }
  }

  /// Tap `k` of the row of window `w`, of 16 bits those of windows 2 w and 2 w + 1.
  STASH_DEVICE std::uint32_t tap(unsigned w, unsigned k) const {
    if constexpr (sizeof(Bits) == 4) {
      return word[2 * w + k];
    } else {
      const unsigned at = 2 * w + (k + Pad) / 2;
      constexpr unsigned last = words - 1;
      return pick_bytes(word[at], word[at < last ? at + 1 : last], (k + Pad) % 2 == 0 ? 0x5410 : 0x7632);
    }
  }

 private:
  template <unsigned Count>
  STASH_DEVICE static void load_words(const Bits* from, std::uint32_t* to) {
    if constexpr (Count == 1) to[0] = *from;
    if constexpr (Count == 2) {
      const vector8 v = *reinterpret_cast<const vector8*>(from);
      to[0] = v.word[0];
      to[1] = v.word[1];
    }
  }
};

/// Maxima of windows and where they are, in words: of f32 one each, of 16 bits two.
template <class Bits, unsigned Windows>
struct vec16_maxima {
  static constexpr unsigned words = sizeof(Bits) == 4 ? Windows : (Windows + 1) / 2;
  std::uint32_t value[words], tap[words];

  /// The same number for all windows of a word.
  STASH_DEVICE static std::uint32_t number(std::uint32_t tap) { return sizeof(Bits) == 4 ? tap : both(tap); }
  STASH_DEVICE void see(unsigned w, std::uint32_t candidate, std::uint32_t numbers) {
    compete_words<Bits>(candidate, numbers, value[w], tap[w]);
  }
  /// Taps in four bits each.
  STASH_DEVICE std::uint32_t codes() const {
    if constexpr (sizeof(Bits) == 4) {
      std::uint32_t all = 0;
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w)
        all |= tap[w] << (4 * w);
      return all;
    } else if constexpr (words == 4) {
      const std::uint32_t first = tap[0] | tap[1] << 8, last = tap[2] | tap[3] << 8;
      return pick_bytes(first, last, 0x5410) | pick_bytes(first, last, 0x7632) << 4;
    } else {
      const std::uint32_t bytes = tap[0] | tap[1] << 8;
      const std::uint32_t four = (bytes | bytes >> 12) & 0xffff;
      if constexpr (words == 2) return four;
      return four | tap[words - 1] << 16;
    }
  }
};

/// The maxima of rows of windows, of which the first one begins in row `top`, and their first taps in x.
/// Before x lies a row at most.
template <class Bits, unsigned Pad, unsigned Windows, unsigned Rows>
struct vec16_search {
  static constexpr unsigned rows = 2 * Rows + 1;
  using row_maxima = vec16_maxima<Bits, Windows>;
  row_maxima found[Rows];
  std::uint32_t first_row[Rows];  ///< the first tap in x, but for padding on the left
  std::uint32_t padded;           ///< 1 if the first window begins before x
  bool numbers;  ///< without NaN, and for bf16 without numbers that are NaN of f16; else nothing is found

  STASH_DEVICE vec16_search(const pool_job& job, const vec16_grid& grid, const void* x,
                            const row_vec16& position, std::int32_t top) {
    window_columns<Bits, Pad, Windows> columns[rows];
    const auto length = static_cast<std::int32_t>(job.columns.in);
    const Bits* const plane = static_cast<const Bits*>(x) + std::uint64_t{position.plane} * grid.x_plane;
    const std::int32_t column = position.vec16 * static_cast<std::int32_t>(vec16_elements<Bits>);
    STASH_UNROLL
    for (unsigned k = 0; k < rows; ++k) {
      const std::int32_t row =
          nearest_in(top + static_cast<std::int32_t>(k), static_cast<std::int32_t>(job.rows.in));
      columns[k].load(plane + static_cast<std::uint32_t>(row * length + column), position.left,
                      position.right);
    }
    padded = Pad == 1 && !position.left ? 1 : 0;
    look_for_nan(columns);
    if (!numbers) return;

    STASH_UNROLL
    for (unsigned r = 0; r < Rows; ++r) {
      first_row[r] = top + static_cast<std::int32_t>(2 * r) < 0 ? 3 : 0;
      if (r == 0) found[0] = of_row(columns[0], first_row[0]);
      add(found[r], of_row(columns[2 * r + 1], 3));
      const row_maxima last = of_row(columns[2 * r + 2], 6);
      add(found[r], last);
      if (r + 1 == Rows) break;
      // The last row of windows is the first one of the next.
      const std::uint32_t first = top + static_cast<std::int32_t>(2 * r + 2) < 0 ? 3 : 0;
      found[r + 1] = last;
      STASH_UNROLL
      for (unsigned w = 0; w < row_maxima::words; ++w)
        found[r + 1].tap[w] -= row_maxima::number(6 - first);
    }
  }

  /// The first tap in x of the windows in a word of a row.
  STASH_DEVICE std::uint32_t first_taps(unsigned r, unsigned w) const {
    return numbers_from(first_row[r], w);
  }

 private:
  STASH_DEVICE std::uint32_t numbers_from(std::uint32_t row, unsigned w) const {
    return row_maxima::number(row) + (w == 0 ? padded : 0);
  }
  /// Whether one of the numbers is a NaN: then their sum is one, too. That it is of infinities as well costs
  /// nothing but time.
  STASH_DEVICE void look_for_nan(const window_columns<Bits, Pad, Windows> (&columns)[rows]) {
    constexpr unsigned words = window_columns<Bits, Pad, Windows>::words;
    // Sums of rows first, none of which waits for another one.
    std::uint32_t sums = 0;
    STASH_UNROLL
    for (unsigned k = 0; k < rows; ++k) {
      std::uint32_t sum = columns[k].word[0];
      STASH_UNROLL
      for (unsigned i = 1; i < words; ++i)
        sum = sum_of_words<Bits>(sum, columns[k].word[i]);
      sums = k == 0 ? sum : sum_of_words<Bits>(sums, sum);
    }
    numbers = !is_nan_sum<Bits>(sums);
  }
  /// Maxima among the taps of a row, of which the first one in x has this number.
  STASH_DEVICE vec16_maxima<Bits, Windows> of_row(const window_columns<Bits, Pad, Windows>& columns,
                                                  std::uint32_t number) const {
    vec16_maxima<Bits, Windows> best;
    STASH_UNROLL
    for (unsigned w = 0; w < vec16_maxima<Bits, Windows>::words; ++w) {
      best.value[w] = columns.tap(w, 0);
      best.tap[w] = numbers_from(number, w);
      STASH_UNROLL
      for (unsigned k = 1; k < 3; ++k)
        best.see(w, columns.tap(w, k), vec16_maxima<Bits, Windows>::number(number + k));
    }
    return best;
  }
  STASH_DEVICE static void add(vec16_maxima<Bits, Windows>& best, const vec16_maxima<Bits, Windows>& row) {
    STASH_UNROLL
    for (unsigned w = 0; w < vec16_maxima<Bits, Windows>::words; ++w)
      best.see(w, row.value[w], row.tap[w]);
  }
};

}  // namespace stash::kernels
