// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling from codes in NHWC, for windows of 3 x 3 with stride 1. A pixel tile
/// (pool_pixel_tiles.hpp) is two pixel tiles, whose four windows of a row are read once: their
/// gradients go to the row of dx that the windows complete, which leaves, and to the two below it, whose sums
/// stay in registers.

#include <cstdint>
#include <type_traits>

#include "pool/nhwc/pool_last_backward.hpp"
#include "pool/nhwc/pool_pixel_tiles_backward.hpp"

namespace stash::kernels {

/// Windows of a row that cover the columns of a pixel tile.
inline constexpr unsigned coded_windows = covering_windows<3, 1, coded_columns>::columns;

/// Codes of a vec16's channels.
template <class Bits>
using vec16_codes = std::conditional_t<sizeof(Bits) == 4, std::uint16_t, std::uint32_t>;

/// Rows of windows as they lie in memory, read ahead.
template <class Bits>
class coded_rows {
 public:
  STASH_DEVICE coded_rows(const pool_job& job, const pixel_tile_grid& grid, const void* dy,
                          const encoded_argmaxes& source, const pixel_tile_position& position)
      : rows_(static_cast<std::int32_t>(job.rows.out)),
        pad_(static_cast<std::int32_t>(job.rows.pad)),
        y_(static_cast<const vector16*>(dy), grid.y, job.rows.out, position),
        taps_(reinterpret_cast<const vec16_codes<Bits>*>(source.taps), grid.x, job.rows.out, position) {
    const auto before = static_cast<std::int32_t>(windows_before<1>);
    STASH_UNROLL
    for (unsigned w = 0; w < coded_windows; ++w) {
      const std::int32_t column = position.column - before + static_cast<std::int32_t>(w) +
                                  static_cast<std::int32_t>(job.columns.pad);
      const std::int32_t at = nearest_in(column, static_cast<std::int32_t>(job.columns.out));
      hidden_[w] = at == column ? 0 : 0xffffffffU;
      in_y_[w] = y_.in_row(at);
      in_taps_[w] = taps_.in_row(at);
    }
  }

  /// Loads a window of the row whose first one in x is `top`, or of any.
  STASH_DEVICE void load(std::int32_t top, unsigned w) {
    const std::int32_t row = nearest_in(top + pad_, rows_);
    gradients[w] = *y_.at(row, in_y_[w]);
    codes[w] = *taps_.at(row, in_taps_[w]);
  }
  /// The codes where the plane says that gradients do not pass are 15, which is no tap.
  STASH_DEVICE std::uint32_t passing(const encoded_argmaxes& source, std::int32_t top, unsigned w,
                                     std::uint32_t taps) const {
    const auto* const at =
        reinterpret_cast<const std::uint8_t*>(taps_.at(nearest_in(top + pad_, rows_), in_taps_[w]));
    const auto value = static_cast<std::uint64_t>(at - source.taps) * 2;
    return taps | ~four_times(source.plane[value / 8] >> value % 8 & 0xffU);
  }
  /// All bits if there is no such window.
  STASH_DEVICE std::uint32_t hidden(std::int32_t top, unsigned w) const {
    const std::int32_t row = top + pad_;
    return row >= 0 && row < rows_ ? hidden_[w] : 0xffffffffU;
  }

  vector16 gradients[coded_windows];
  std::uint32_t codes[coded_windows];

 private:
  std::int32_t rows_, pad_;
  pixel_tile_vec16s<const vector16> y_;
  pixel_tile_vec16s<const vec16_codes<Bits>> taps_;
  std::uint32_t hidden_[coded_windows], in_y_[coded_windows], in_taps_[coded_windows];
};

/// pool_backward() for windows of 3 x 3 with stride 1, where gradients pass by a tap's code or a plane. Grid:
/// threads for all vec16s of all pixel tiles.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, tuning::pool_blocks_of_three_rows)
pool_backward_coded_pixel_tiles(pool_job job, pixel_tile_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned length = vec16_elements<Bits>, columns = coded_columns, kernel = 3;
  constexpr auto before = static_cast<std::int32_t>(windows_before<1>);
  static_assert(tuning::long_pool_tile_rows <= 32);
  const auto unit = static_cast<std::uint32_t>(block_rank() * pool_threads + thread_rank());
  if (unit >= grid.units) return;
  pixel_tile_position position = position_of_pixel_tile<columns, 1>(grid, unit);
  // Left to itself, the compiler divides once more in every round.
  position.row = static_cast<std::int32_t>(anew(static_cast<std::uint32_t>(position.row)));
  position.column = static_cast<std::int32_t>(anew(static_cast<std::uint32_t>(position.column)));
  const pixel_tile_rows rows = rows_of_pixel_tile<1>(job, grid, position);
  const auto in_rows = static_cast<std::int32_t>(job.rows.in);
  const auto in_columns = static_cast<std::int32_t>(job.columns.in);
  const pixel_tile_vec16s<vector16> to(static_cast<vector16*>(dx), grid.dx, job.rows.in, position);
  // Of each window three columns, a bit each: where it reaches out of x on the left or on the right.
  std::uint32_t outside = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < coded_windows; ++w)
    outside |= positions_outside(position.column + static_cast<std::int32_t>(w) - before, in_columns)
               << (3 * w);

  std::int32_t top = position.row - before;
  coded_rows<Bits> windows(job, grid, dy, source, position);
  STASH_UNROLL
  for (unsigned w = 0; w < coded_windows; ++w)
    windows.load(top, w);
  float sums[kernel][columns][length] = {};  // of rows of dx, one after the other
  std::uint32_t careful = 0;                 // rows that need more than sums, a bit each
  std::uint32_t corrupt = 0;                 // not zero if a code is no tap
  STASH_NO_UNROLL
  for (; top < rows.end; top += static_cast<std::int32_t>(kernel)) {
    STASH_UNROLL
    for (unsigned r = 0; r < kernel; ++r) {
      const std::int32_t own = top + static_cast<std::int32_t>(r);
      if (own >= rows.end) break;
      STASH_UNROLL
      for (unsigned p = 0; p < columns; ++p) {
        STASH_UNROLL
        for (unsigned i = 0; i < length; ++i)
          sums[(r + 2) % kernel][p][i] = 0;
      }
      const std::uint32_t rows_outside =
          own < 0 || own + 3 > in_rows ? taps_of_rows(positions_outside(own, in_rows)) : 0;
      STASH_UNROLL
      for (unsigned w = 0; w < coded_windows; ++w) {
        float gradient[length];
        floats_of_vec16<Bits>(windows.gradients[w], job.type, gradient);
        std::uint32_t codes = windows.codes[w];
        windows.load(own + 1 < rows.end ? own + 1 : own, w);
        const std::uint32_t hidden = windows.hidden(own, w);
        // Windows that begin in other pixel tiles are looked at there, but for those before the map.
        if (w >= windows_before<1> || position.column == 0) {
          const tap_table table(source.passing, rows_outside | taps_of_columns(outside >> (3 * w) & 7));
          // Those of four channels count twice.
          corrupt |= table.any_outside(sizeof(Bits) == 4 ? both(codes) : codes) & ~hidden;
        }
        if constexpr (std::is_same_v<Source, plane_argmaxes>) codes = windows.passing(source, own, w, codes);
        codes |= hidden;
        STASH_UNROLL
        for (unsigned i = 0; i < length / 2; ++i) {
          // Two codes of a byte, one in each half, the second sixteen times as large.
          const std::uint32_t pair = pick_bytes(codes, 0, 0x4040 + 0x101 * i) & 0x00f0000fU;
          STASH_UNROLL
          for (unsigned p = 0; p < columns; ++p) {
            // Unsigned: a column that the window does not have is above all others.
            const unsigned kx = p + windows_before<1> - w;
            if (kx >= kernel) continue;
            STASH_UNROLL
            for (unsigned ky = 0; ky < kernel; ++ky) {
              float(&row_sums)[length] = sums[(r + ky) % kernel][p];
              add_if_equal(row_sums[2 * i], row_sums[2 * i + 1], gradient[2 * i], gradient[2 * i + 1], pair,
                           (ky * kernel + kx) * 0x00100001U);
            }
          }
        }
      }
      vector16 pixels[columns];
      // NaN keeps its bits only in gather(). Where one is among the sums, it is their sum, too.
      std::uint32_t sum = 0;
      STASH_UNROLL
      for (unsigned p = 0; p < columns; ++p) {
        pixels[p] = vec16_of_sums<Bits>(sums[r][p], job.type);
        STASH_UNROLL
        for (unsigned i = 0; i < 4; ++i)
          sum = sum_of_words<Bits>(sum, pixels[p].word[i]);
      }
      const bool numbers = !is_nan_sum<Bits>(sum), inside = own >= position.row;
      careful |= inside && !numbers ? 1U << (own - position.row) : 0;
      STASH_UNROLL
      for (unsigned p = 0; p < columns; ++p) {
        const std::int32_t column = position.column + static_cast<std::int32_t>(p);
        const std::uint32_t(&word)[4] = pixels[p].word;
        if (numbers && inside && column < in_columns)
          store_vector(to.at(own, to.in_row(column)), {{word[0], word[1], word[2], word[3]}});
      }
    }
  }
  if (corrupt != 0) atomic_or(&source.report->status, status_corrupt);
  if (careful != 0) gather_pixel_tile<Bits, 1, columns>(job, grid, dy, source, dx, anew(unit), careful);
}

}  // namespace stash::kernels
