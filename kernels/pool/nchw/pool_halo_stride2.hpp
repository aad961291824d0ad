// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maxima of windows with stride 2 in a halo tile of x (pool_halo_tiles.hpp), with a row and a column of
/// padding at most before x.

#include <cstdint>

#include "pool/nchw/pool_halo_rows.hpp"

namespace stash::kernels {

/// Maxima of the windows of a thread's columns, row after row: windows with stride 2. Only the first window
/// of a row or of a column begins before x, and only the last one ends after it.
template <class Bits, unsigned Kernel>
class stride2_search {
 public:
  using bits = Bits;
  using row_maxima = vec16_maxima<Bits, halo_columns>;
  static constexpr unsigned unrolled = 1;

  /// Rows of x from the first one that the windows need to the last one, and some columns on either side.
  STASH_DEVICE static shared_halo halo_of(const pool_job& job, const halo_windows& windows) {
    const auto out = static_cast<std::uint32_t>(job.columns.out);
    const auto width = static_cast<std::int32_t>(job.columns.in),
               height = static_cast<std::int32_t>(job.rows.in);
    std::uint32_t plane =
        windows.row + small_quotient(windows.column + windows.count + out - 1, job.columns.by_out) - 1;
    const std::uint32_t last = take_small_digit(plane, job.rows.by_out);
    const std::int32_t first_row = nearest_in(top_of(job, windows.row), height);
    const std::int32_t last_row =
        nearest_in(top_of(job, last) + static_cast<std::int32_t>(Kernel) - 1, height);
    const std::int32_t rows = static_cast<std::int32_t>(plane) * height + last_row + 1 - first_row;
    return shared_halo::holding<Bits>(element_of_row(job, windows, first_row) - 1,
                                      static_cast<std::uint32_t>(rows * width) + 2);
  }

  STASH_DEVICE stride2_search(const pool_job& job, const vector16* halo, const shared_halo& in_halo,
                              const halo_windows& windows, const halo_position& position)
      : halo_(halo),
        width_(static_cast<std::int32_t>(job.columns.in)),
        height_(static_cast<std::int32_t>(job.rows.in)),
        first_top_(top_of(job, 0)),
        top_(top_of(job, position.row)),
        plane_rows_(static_cast<std::int32_t>(job.rows.out - position.row)),
        rows_out_(static_cast<std::int32_t>(job.rows.out)) {
    const auto column =
        static_cast<std::int32_t>(position.column * stride) - static_cast<std::int32_t>(job.columns.pad);
    left_ = column >= 0;
    inside_ = width_ - column;
    if constexpr (per_word == 2) {
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w) {
        STASH_UNROLL
        for (unsigned k = 1; k < Kernel; ++k)
          // Held in a register: compilers would rather find it out again for each row.
          outside_[k - 1][w] =
              anew((is_outside(2 * w, k) ? 0xffffU : 0) | (is_outside(2 * w + 1, k) ? 0xffff0000U : 0));
      }
    }
    plane_at_ = static_cast<std::int32_t>(in_halo.index_of<Bits>(element_of_row(job, windows, 0))) +
                static_cast<std::int32_t>(position.plane) * height_ * width_ + column;
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
      const bool past_end = row >= height_;
      const row_maxima next = of_row(plane_at_ + (past_end ? height_ - 1 : row) * width_);
      STASH_UNROLL
      for (unsigned w = 0; w < words; ++w) {
        const std::uint32_t tap = next.tap[w] + row_maxima::number(Kernel * k);
        compete_in_order<Bits>(k == 1 && before, past_end, next.value[w], tap, found.value[w], found.tap[w]);
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
  STASH_DEVICE std::uint32_t first_taps(unsigned w) const { return first_row_ + (w == 0 && !left_ ? 1 : 0); }

 private:
  static constexpr unsigned stride = 2, words = halo_words<Bits>, per_word = 4 / sizeof(Bits);
  const vector16* halo_;
  std::int32_t width_, height_;
  std::int32_t first_top_, top_;  ///< first row of the first windows of a plane, of the next ones
  std::int32_t plane_rows_;       ///< of windows, until the plane ends
  std::int32_t rows_out_;
  std::int32_t
      plane_at_;         ///< where the first element of the first window is, were it in the plane's first row
  bool left_;            ///< whether the first window begins in x
  std::int32_t inside_;  ///< columns of x from the first window's first tap on
  std::uint32_t outside_[Kernel - 1]
                        [words];  ///< of 16 bits: all bits of elements after a row, but for first taps
  std::uint32_t first_row_ = 0;
  row_maxima last_ = {};  ///< of the last row of the windows above
  bool fresh_ = true;     ///< whether there are none in the plane, or none were looked at

  STASH_DEVICE static std::int32_t top_of(const pool_job& job, std::uint32_t row) {
    return static_cast<std::int32_t>(row * stride) - static_cast<std::int32_t>(job.rows.pad);
  }
  /// Whether tap `k` of a row of window `n` is after the row of x.
  STASH_DEVICE bool is_outside(unsigned n, unsigned k) const {
    return static_cast<std::int32_t>(n * stride + k) >= inside_;
  }
  /// The first element of a row of the first window's plane.
  STASH_DEVICE static std::int64_t element_of_row(const pool_job& job, const halo_windows& windows,
                                                  std::int32_t row) {
    return (static_cast<std::int64_t>(windows.plane) * job.rows.in + row) * job.columns.in;
  }
  STASH_DEVICE row_maxima of_row(std::int32_t at) const {
    halo_row<Bits, Kernel, stride> row;
    row.load(halo_, static_cast<std::uint32_t>(at));
    row_maxima best;
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      best.value[w] = row.tap(w, 0);
      best.tap[w] = 0;
      STASH_UNROLL
      for (unsigned k = 1; k < Kernel; ++k) {
        const bool first = k == 1 && w == 0 && !left_;
        const std::uint32_t value = row.tap(w, k);
        if constexpr (sizeof(Bits) == 4) {
          compete_in_order<Bits>(first, is_outside(w, k), value, k, best.value[w], best.tap[w]);
        } else {
          std::uint32_t more = greater_masks(value, best.value[w]) & ~outside_[k - 1][w];
          if (k == 1 && w == 0) more |= left_ ? 0 : 0xffffU;
          best.value[w] = select_bits(more, value, best.value[w]);
          best.tap[w] =
              k == 1 ? more & row_maxima::number(1) : select_bits(more, row_maxima::number(k), best.tap[w]);
        }
      }
    }
    return best;
  }
};

}  // namespace stash::kernels
