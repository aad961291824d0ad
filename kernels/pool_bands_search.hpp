#pragma once
/// \file
/// Maxima of windows in a band of x (pool_bands.hpp). What lies outside of x never wins.

#include <cstdint>
#include <type_traits>

#include "pool_bands.hpp"
#include "pool_pieces.hpp"

namespace stash::kernels {

/// Some windows of y, row after row from the first one's row on.
struct band_windows {
  std::int64_t first;  ///< window
  std::uint32_t count;
  std::uint64_t plane;        ///< of the first window
  std::uint32_t row, column;  ///< in its plane
};

/// What a thread's windows have of a row of x; and of dy, what a thread's elements have of a row of windows.
/// f32: one element in a word. 16 bits: two.
template <class Bits, unsigned Kernel, unsigned Stride>
struct band_row {
  static constexpr unsigned elements = (band_columns - 1) * Stride + Kernel;
  static constexpr unsigned words = sizeof(Bits) == 4 ? elements : (elements + 1) / 2;
  std::uint32_t word[words];

  /// `place`: of the first element in the band.
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
      return word[w * Stride + k];
    } else if constexpr (Stride == 1) {
      return k == 1 ? pick_bytes(word[w], word[w + 1], 0x5432) : word[w + k / 2];
    } else {
      const unsigned at = 2 * w + k / 2;
      return pick_bytes(word[at], word[at + 1 < words ? at + 1 : at], k == 1 ? 0x7632 : 0x5410);
    }
  }
};

/// Element `i` of a thread's in words.
template <class T>
STASH_DEVICE T element_of_words(const std::uint32_t (&words)[band_words<T>], unsigned i) {
  constexpr unsigned bits = 8 * sizeof(T), per_word = 32 / bits;
  return static_cast<T>(words[i / per_word] >> (bits * (i % per_word)));
}

/// Where a thread begins.
struct band_place {
  std::uint32_t at;       ///< of its first window among those that are wanted; very large before them
  std::uint32_t column;   ///< of that window
  std::uint32_t columns;  ///< of a row from there on: those behind them are not its own
  std::uint32_t rows;
  std::uint32_t plane, row;  ///< planes from the first window's; the row in its plane

  STASH_DEVICE band_place(const band_walk& walk, const band_windows& wanted, const divisor& width,
                          const divisor& height, std::uint32_t unit) {
    const auto length = static_cast<std::uint32_t>(width.value);
    std::uint32_t strip = unit;
    column = take_small_digit(strip, walk.groups) * band_columns;
    const std::uint32_t first_row = strip * walk.rows;
    at = first_row * length + column - wanted.column;
    columns = length - column;
    const std::uint32_t all = small_quotient(wanted.column + wanted.count + length - 1, width);
    rows = first_row >= all ? 0 : all - first_row < walk.rows ? all - first_row : walk.rows;
    plane = wanted.row + first_row;
    row = take_small_digit(plane, height);
  }
};

/// Lets the elements of a word compete with those before them, unless there are none; they win where there
/// are none before them.
template <class Bits>
STASH_DEVICE void compete_in_order(bool first, bool none, std::uint32_t word, std::uint32_t cell,
                                   std::uint32_t& best, std::uint32_t& best_cell) {
  if constexpr (sizeof(Bits) == 4) {
    const bool more = (as_float(word) > as_float(best) && !none) || first;
    best = more ? word : best;
    best_cell = more ? cell : best_cell;
  } else {
    const std::uint32_t more =
        (greater_masks(word, best) & (none ? 0 : 0xffffffffU)) | (first ? 0xffffffffU : 0);
    best = select_bits(more, word, best);
    best_cell = select_bits(more, cell, best_cell);
  }
}

/// Maxima of the windows of a thread's columns, row after row: windows of 3 x 3 around each element of x.
/// Rows of x are looked at once and serve three rows of windows.
template <class Bits>
class around_search {
 public:
  using bits = Bits;
  using row_maxima = piece_maxima<Bits, band_columns>;
  static constexpr unsigned unrolled = 3;  ///< rows of windows, so that those of x stay where they are

  /// The elements that the windows need.
  STASH_DEVICE static shared_band band_of(const pool_job& job, const band_windows& wanted) {
    const auto width = static_cast<std::uint32_t>(job.columns.in);
    const std::uint32_t rows = small_quotient(wanted.column + wanted.count + width - 1, job.columns.by_in);
    return shared_band::of<Bits>(wanted.first - wanted.column - width - 1, (rows + 2) * width + 2);
  }

  STASH_DEVICE around_search(const pool_job& job, const vector16* band, const shared_band& in_band,
                             const band_windows& wanted, const band_place& place)
      : band_(band),
        width_(static_cast<std::uint32_t>(job.columns.in)),
        height_(static_cast<std::uint32_t>(job.rows.in)),
        at_(in_band.place_of<Bits>(wanted.first) + place.at),
        row_(place.row),
        left_(place.column > 0) {
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        right_[i] = place.columns == i + 1 ? 0xffffffffU : 0;
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w)
        right_[w] = place.columns == 2 * w + 1 ? 0xffffU : place.columns == 2 * w + 2 ? 0xffff0000U : 0;
    }
    rows_[0] = of_row(at_ - width_);
    rows_[1] = of_row(at_);
  }

  /// Finds the next row of windows; `k` is its number.
  STASH_DEVICE row_maxima find(unsigned k) {
    const row_maxima &above = rows_[k % 3], &own = rows_[(k + 1) % 3];
    row_maxima& below = rows_[(k + 2) % 3];
    at_ += width_;
    below = of_row(at_);
    const bool top = row_ == 0;
    first_row_ = top ? row_maxima::number(3) : 0;
    ++row_;
    const bool bottom = row_ == height_;
    row_ = bottom ? 0 : row_;
    row_maxima found;
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      const std::uint32_t own_cell = own.cell[w] + row_maxima::number(3) - of_window(w);
      const std::uint32_t below_cell = below.cell[w] + row_maxima::number(6) - of_window(w);
      found.value[w] = above.value[w];
      found.cell[w] = above.cell[w] - of_window(w);
      compete_in_order<Bits>(top, false, own.value[w], own_cell, found.value[w], found.cell[w]);
      compete_in_order<Bits>(false, bottom, below.value[w], below_cell, found.value[w], found.cell[w]);
    }
    return found;
  }
  /// The first cells in x of the windows in word `w` of the row that was found last.
  STASH_DEVICE std::uint32_t first_cells(unsigned w) const { return first_row_ + (w == 0 && !left_ ? 1 : 0); }

 private:
  static constexpr unsigned words = band_words<Bits>;
  const vector16* band_;
  std::uint32_t width_, height_;
  std::uint32_t at_, row_;
  bool left_;
  std::uint32_t right_[words];  ///< all bits of elements of the last column
  std::uint32_t first_row_ = 0;
  row_maxima rows_[3];  ///< the numbers of their cells are those of columns

  /// Columns of f32 are counted from that of the first window, those of 16 bits from each window's own.
  STASH_DEVICE static std::uint32_t of_window(unsigned w) { return sizeof(Bits) == 4 ? w : 0; }

  STASH_DEVICE row_maxima of_row(std::uint32_t at) const {
    band_row<Bits, 3, 1> row;
    row.load(band_, at - 1);
    row_maxima best;
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned w = 0; w < words; w += 2) {
        // Two columns are the last ones of a window and the first ones of the next.
        std::uint32_t value = row.word[w + 1], cell = w + 1;
        compete_in_order<Bits>(false, right_[w] != 0, row.word[w + 2], w + 2, value, cell);
        best.value[w] = row.word[w];
        best.cell[w] = w;
        compete_in_order<Bits>(w == 0 && !left_, false, value, cell, best.value[w], best.cell[w]);
        best.value[w + 1] = value;
        best.cell[w + 1] = cell;
        compete_in_order<Bits>(false, right_[w + 1] != 0, row.word[w + 3], w + 3, best.value[w + 1],
                               best.cell[w + 1]);
      }
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w) {
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

/// The same of windows two apart, with a row and a column of padding at most before x. Only the first window
/// of a row or of a column begins before x, and only the last one ends behind it.
template <class Bits, unsigned Kernel>
class apart_search {
 public:
  using bits = Bits;
  using row_maxima = piece_maxima<Bits, band_columns>;
  static constexpr unsigned unrolled = 1;

  /// Rows of x from the first one that the windows need to the last one, and some columns on either side.
  STASH_DEVICE static shared_band band_of(const pool_job& job, const band_windows& wanted) {
    const auto out = static_cast<std::uint32_t>(job.columns.out);
    const auto width = static_cast<std::int32_t>(job.columns.in),
               height = static_cast<std::int32_t>(job.rows.in);
    std::uint32_t plane =
        wanted.row + small_quotient(wanted.column + wanted.count + out - 1, job.columns.by_out) - 1;
    const std::uint32_t last = take_small_digit(plane, job.rows.by_out);
    const std::int32_t first_row = nearest_in(top_of(job, wanted.row), height);
    const std::int32_t last_row =
        nearest_in(top_of(job, last) + static_cast<std::int32_t>(Kernel) - 1, height);
    const std::int32_t rows = static_cast<std::int32_t>(plane) * height + last_row + 1 - first_row;
    return shared_band::of<Bits>(element_of_row(job, wanted, first_row) - 1,
                                 static_cast<std::uint32_t>(rows * width) + 2);
  }

  STASH_DEVICE apart_search(const pool_job& job, const vector16* band, const shared_band& in_band,
                            const band_windows& wanted, const band_place& place)
      : band_(band),
        width_(static_cast<std::int32_t>(job.columns.in)),
        height_(static_cast<std::int32_t>(job.rows.in)),
        first_top_(top_of(job, 0)),
        top_(top_of(job, place.row)),
        plane_rows_(static_cast<std::int32_t>(job.rows.out - place.row)),
        rows_out_(static_cast<std::int32_t>(job.rows.out)) {
    const auto column =
        static_cast<std::int32_t>(place.column * stride) - static_cast<std::int32_t>(job.columns.pad);
    left_ = column >= 0;
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      STASH_UNROLL
      for (unsigned k = 1; k < Kernel; ++k) {
        outside_[k - 1][w] = 0;
        STASH_UNROLL
        for (unsigned i = 0; i < per_word; ++i) {
          const std::int32_t at = column + static_cast<std::int32_t>((w * per_word + i) * stride + k);
          outside_[k - 1][w] |= at >= width_ ? element_mask << (16 * i) : 0;
        }
      }
    }
    plane_at_ = static_cast<std::int32_t>(in_band.place_of<Bits>(element_of_row(job, wanted, 0))) +
                static_cast<std::int32_t>(place.plane) * height_ * width_ + column;
  }

  STASH_DEVICE row_maxima find(unsigned) {
    const bool before = top_ < 0;
    first_row_ = before ? row_maxima::number(Kernel) : 0;
    // Windows of 3 x 3 begin with the row that those above them end with.
    if (Kernel == 2 || fresh_) last_ = of_row(plane_at_ + (before ? 0 : top_ * width_));
    fresh_ = false;
    row_maxima found = last_;
    STASH_UNROLL
    for (unsigned k = 1; k < Kernel; ++k) {
      const std::int32_t row = top_ + static_cast<std::int32_t>(k);
      const bool behind = row >= height_;
      const row_maxima next = of_row(plane_at_ + (behind ? height_ - 1 : row) * width_);
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w) {
        const std::uint32_t cell = next.cell[w] + row_maxima::number(Kernel * k);
        compete_in_order<Bits>(k == 1 && before, behind, next.value[w], cell, found.value[w], found.cell[w]);
      }
      last_ = next;
    }
    --plane_rows_;
    top_ += static_cast<std::int32_t>(stride);
    if (plane_rows_ == 0) {
      plane_rows_ = rows_out_;
      plane_at_ += height_ * width_;
      top_ = first_top_;
      fresh_ = true;
    }
    return found;
  }
  STASH_DEVICE std::uint32_t first_cells(unsigned w) const { return first_row_ + (w == 0 && !left_ ? 1 : 0); }

 private:
  static constexpr unsigned stride = 2, words = band_words<Bits>, per_word = 4 / sizeof(Bits);
  static constexpr std::uint32_t element_mask = sizeof(Bits) == 4 ? 0xffffffffU : 0xffffU;
  const vector16* band_;
  std::int32_t width_, height_;
  std::int32_t first_top_, top_;  ///< first row of the first windows of a plane, of the next ones
  std::int32_t plane_rows_;       ///< of windows, until the plane ends
  std::int32_t rows_out_;
  std::int32_t
      plane_at_;  ///< where the first element of the first window is, were it in the plane's first row
  bool left_;     ///< whether the first window begins in x
  std::uint32_t outside_[Kernel - 1][words];  ///< all bits of elements behind a row, but for first cells
  std::uint32_t first_row_ = 0;
  row_maxima last_ = {};  ///< of the last row of the windows above
  bool fresh_ = true;     ///< whether there are none in the plane, or none were looked at

  STASH_DEVICE static std::int32_t top_of(const pool_job& job, std::uint32_t row) {
    return static_cast<std::int32_t>(row * stride) - static_cast<std::int32_t>(job.rows.pad);
  }
  /// The first element of a row of the first window's plane.
  STASH_DEVICE static std::int64_t element_of_row(const pool_job& job, const band_windows& wanted,
                                                  std::int32_t row) {
    return (static_cast<std::int64_t>(wanted.plane) * job.rows.in + row) * job.columns.in;
  }
  STASH_DEVICE row_maxima of_row(std::int32_t at) const {
    band_row<Bits, Kernel, stride> row;
    row.load(band_, static_cast<std::uint32_t>(at));
    row_maxima best;
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      best.value[w] = row.cell(w, 0);
      best.cell[w] = 0;
      STASH_UNROLL
      for (unsigned k = 1; k < Kernel; ++k) {
        const bool first = k == 1 && w == 0 && !left_;
        const std::uint32_t value = row.cell(w, k), outside = outside_[k - 1][w];
        if constexpr (sizeof(Bits) == 4) {
          compete_in_order<Bits>(first, outside != 0, value, k, best.value[w], best.cell[w]);
        } else {
          std::uint32_t more = greater_masks(value, best.value[w]) & ~outside;
          if (k == 1 && w == 0) more |= left_ ? 0 : 0xffffU;
          best.value[w] = select_bits(more, value, best.value[w]);
          best.cell[w] =
              k == 1 ? more & row_maxima::number(1) : select_bits(more, row_maxima::number(k), best.cell[w]);
        }
      }
    }
    return best;
  }
};

/// The search for windows of Kernel x Kernel that lie Stride apart.
template <class Bits, unsigned Kernel, unsigned Stride>
using band_search = std::conditional_t<Stride == 1, around_search<Bits>, apart_search<Bits, Kernel>>;

/// Calls each(number among the wanted windows, columns from there on that are the thread's, search, maxima)
/// for all rows of windows of this thread's.
template <class Search, class Each>
STASH_DEVICE void search_band(const pool_job& job, const band_walk& walk, const band_windows& wanted,
                              const vector16* band, const shared_band& in_band, const Each& each) {
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < walk.units; unit += band_threads) {
    const band_place place(walk, wanted, job.columns.by_out, job.rows.by_out, unit);
    if (place.rows == 0) return;
    std::uint32_t at = place.at;
    Search search(job, band, in_band, wanted, place);
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < place.rows; row += Search::unrolled) {
      STASH_UNROLL
      for (unsigned k = 0; k < Search::unrolled; ++k) {
        if (row + k >= place.rows) break;
        typename Search::row_maxima found = search.find(k);
        each(at, place.columns, search, found);
        at += static_cast<std::uint32_t>(job.columns.out);
      }
    }
  }
}

}  // namespace stash::kernels
