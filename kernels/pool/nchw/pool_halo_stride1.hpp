// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maxima of windows of 3 x 3 around each element of x in a halo tile (pool_halo_tiles.hpp).

#include <cstdint>

#include "pool/nchw/pool_halo_rows.hpp"

namespace stash::kernels {

/// Maxima of the windows of a thread's columns, row after row: windows of 3 x 3 around each element of x.
/// Rows of x are looked at once and serve three rows of windows.
template <class Bits>
class stride1_search {
 public:
  using bits = Bits;
  using row_maxima = vec16_maxima<Bits, halo_columns>;
  static constexpr unsigned unrolled = 3;  ///< rows of windows, so that those of x stay where they are

  /// The elements that the windows need.
  STASH_DEVICE static shared_halo halo_of(const pool_job& job, const halo_windows& windows) {
    const auto width = static_cast<std::uint32_t>(job.columns.in);
    const std::uint32_t rows = small_quotient(windows.column + windows.count + width - 1, job.columns.by_in);
    return shared_halo::holding<Bits>(windows.first - windows.column - width - 1, (rows + 2) * width + 2);
  }

  STASH_DEVICE stride1_search(const pool_job& job, const vector16* halo, const shared_halo& in_halo,
                              const halo_windows& windows, const halo_position& position)
      : halo_(halo),
        width_(static_cast<std::uint32_t>(job.columns.in)),
        height_(static_cast<std::uint32_t>(job.rows.in)),
        at_(in_halo.index_of<Bits>(windows.first) + position.at),
        row_(position.row),
        left_(position.column > 0) {
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        right_[i] = position.columns == i + 1 ? 0xffffffffU : 0;
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w)
        right_[w] = position.columns == 2 * w + 1 ? 0xffffU : position.columns == 2 * w + 2 ? 0xffff0000U : 0;
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
      const std::uint32_t own_tap = own.tap[w] + row_maxima::number(3) - of_window(w);
      const std::uint32_t below_tap = below.tap[w] + row_maxima::number(6) - of_window(w);
      found.value[w] = above.value[w];
      found.tap[w] = above.tap[w] - of_window(w);
      compete_in_order<Bits>(top, false, own.value[w], own_tap, found.value[w], found.tap[w]);
      compete_in_order<Bits>(false, bottom, below.value[w], below_tap, found.value[w], found.tap[w]);
    }
    return found;
  }
  /// The first taps in x of the windows in word `w` of the row that was found last.
  STASH_DEVICE std::uint32_t first_taps(unsigned w) const { return first_row_ + (w == 0 && !left_ ? 1 : 0); }

 private:
  static constexpr unsigned words = halo_words<Bits>;
  const vector16* halo_;
  std::uint32_t width_, height_;
  std::uint32_t at_, row_;
  bool left_;
  std::uint32_t right_[words];  ///< all bits of elements of the last column
  std::uint32_t first_row_ = 0;
  row_maxima rows_[3];  ///< the numbers of their taps are those of columns

  /// Columns of f32 are counted from that of the first window, those of 16 bits from each window's own.
  STASH_DEVICE static std::uint32_t of_window(unsigned w) { return sizeof(Bits) == 4 ? w : 0; }

  STASH_DEVICE row_maxima of_row(std::uint32_t at) const {
    halo_row<Bits, 3, 1> row;
    row.load(halo_, at - 1);
    row_maxima best;
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned w = 0; w < words; w += 2) {
        // Two columns are the last ones of a window and the first ones of the next.
        std::uint32_t value = row.word[w + 1], tap = w + 1;
        compete_in_order<Bits>(false, right_[w] != 0, row.word[w + 2], w + 2, value, tap);
        best.value[w] = row.word[w];
        best.tap[w] = w;
        compete_in_order<Bits>(w == 0 && !left_, false, value, tap, best.value[w], best.tap[w]);
        best.value[w + 1] = value;
        best.tap[w + 1] = tap;
        compete_in_order<Bits>(false, right_[w + 1] != 0, row.word[w + 3], w + 3, best.value[w + 1],
                               best.tap[w + 1]);
      }
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w) {
        const std::uint32_t first = row.tap(w, 0), own = row.tap(w, 1), last = row.tap(w, 2);
        const std::uint32_t later = greater_masks(own, first) | (w == 0 && !left_ ? 0xffffU : 0);
        const std::uint32_t value = select_bits(later, own, first);
        const std::uint32_t more = greater_masks(last, value) & ~right_[w];
        best.value[w] = select_bits(more, last, value);
        best.tap[w] = select_bits(more, row_maxima::number(2), later & row_maxima::number(1));
      }
    }
    return best;
  }
};

}  // namespace stash::kernels
