// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maxima of windows two apart in a band of x (pool_bands.hpp), with a row and a column of padding at most
/// before x.

#include <cstdint>

#include "pool/nchw/pool_bands_rows.hpp"

namespace stash::kernels {

/// Maxima of the windows of a thread's columns, row after row: windows two apart. Only the first window
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
        const std::uint32_t tap = next.tap[w] + row_maxima::number(Kernel * k);
        compete_in_order<Bits>(k == 1 && before, behind, next.value[w], tap, found.value[w], found.tap[w]);
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
  static constexpr unsigned stride = 2, words = band_words<Bits>, per_word = 4 / sizeof(Bits);
  const vector16* band_;
  std::int32_t width_, height_;
  std::int32_t first_top_, top_;  ///< first row of the first windows of a plane, of the next ones
  std::int32_t plane_rows_;       ///< of windows, until the plane ends
  std::int32_t rows_out_;
  std::int32_t
      plane_at_;         ///< where the first element of the first window is, were it in the plane's first row
  bool left_;            ///< whether the first window begins in x
  std::int32_t inside_;  ///< columns of x from the first window's first tap on
  std::uint32_t outside_[Kernel - 1]
                        [words];  ///< of 16 bits: all bits of elements behind a row, but for first taps
  std::uint32_t first_row_ = 0;
  row_maxima last_ = {};  ///< of the last row of the windows above
  bool fresh_ = true;     ///< whether there are none in the plane, or none were looked at

  STASH_DEVICE static std::int32_t top_of(const pool_job& job, std::uint32_t row) {
    return static_cast<std::int32_t>(row * stride) - static_cast<std::int32_t>(job.rows.pad);
  }
  /// Whether tap `k` of a row of window `n` is behind the row of x.
  STASH_DEVICE bool is_outside(unsigned n, unsigned k) const {
    return static_cast<std::int32_t>(n * stride + k) >= inside_;
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
