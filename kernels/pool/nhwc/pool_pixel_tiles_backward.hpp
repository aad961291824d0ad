// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling from x in NHWC, for windows of 3 x 3 with stride 1 or 2 (pool_pixel_tiles.hpp). A
/// row of windows is done with once its gradients are added: to the rows of dx that it completes, which
/// leave, and to those that wait for the next row of windows, whose sums stay in registers.
///
/// Not here: windows of other sizes and distances, with dilation or depth, and maps whose channels are no
/// groups of eight or not aligned, or which have more pixels than 31 bits count. They take pool_backward().

#include <cstdint>

#include "pool/nchw/pool_vec16_backward.hpp"
#include "pool/nhwc/pool_packed_backward.hpp"
#include "pool/nhwc/pool_pixel_tiles.hpp"

namespace stash::kernels {

/// Gradients of one row of windows after the other.
template <class Bits, unsigned Stride>
class pixel_tile_gradients {
 public:
  static constexpr unsigned windows = pixel_tile_windows<Bits, Stride>, before = windows_before<Stride>;

  STASH_DEVICE pixel_tile_gradients(const pool_job& job, const pixel_tile_map& y, const void* dy,
                                    const pixel_tile_position& position)
      : job_(job),
        y_(static_cast<const vector16*>(dy), y, job.rows.out, position),
        column_(static_cast<std::uint32_t>(position.column)) {}

  /// Loads those of the windows whose first row in x is `top`. Which of them there are, a bit each.
  STASH_DEVICE std::uint32_t load(std::int32_t top, vector16 (&gradients)[windows]) const {
    const std::int32_t row = number_of(job_.rows, top);
    const std::int32_t row_at = nearest_in(row, static_cast<std::int32_t>(job_.rows.out));
    const std::int32_t first =
        number_of(job_.columns, static_cast<std::int32_t>(anew(column_))) - static_cast<std::int32_t>(before);
    std::uint32_t there = 0;
    STASH_UNROLL
    for (unsigned c = 0; c < windows; ++c) {
      const std::int32_t column = first + static_cast<std::int32_t>(c);
      const std::int32_t at = nearest_in(column, static_cast<std::int32_t>(job_.columns.out));
      gradients[c] = *y_.at(row_at, y_.in_row(at));
      there |= at == column ? 1U << c : 0;
    }
    return row == row_at ? there : 0;
  }

 private:
  const pool_job& job_;
  pixel_tile_vec16s<const vector16> y_;
  std::uint32_t column_;

  /// Of the window with this first tap.
  STASH_DEVICE static std::int32_t number_of(const window_axis& a, std::int32_t tap) {
    return (tap + static_cast<std::int32_t>(a.pad)) >> (Stride - 1);
  }
};

/// Sums of f32: rows of dx that the windows so far have not completed.
template <class Bits, unsigned Stride>
class pixel_tile_sums {
 public:
  static constexpr unsigned windows = pixel_tile_windows<Bits, Stride>,
                            columns = pixel_tile_columns<Bits, Stride>;
  static constexpr unsigned length = vec16_elements<Bits>;

  /// Adds the gradients of a row of windows and gives the rows of dx that it completes. False if there may be
  /// a NaN.
  STASH_DEVICE bool add(const element_type& type, const std::uint32_t (&codes)[windows],
                        const vector16 (&gradients)[windows], vector16 (&pixels)[Stride][columns]) {
    float gradient[windows][length];
    STASH_UNROLL
    for (unsigned c = 0; c < windows; ++c)
      floats_of_vec16<Bits>(gradients[c], type, gradient[c]);
    float sum_of_all = 0;
    const auto complete = [&](unsigned row, const row_sums& sums) {
      STASH_UNROLL
      for (unsigned p = 0; p < columns; ++p) {
        STASH_UNROLL
        for (unsigned i = 0; i < length; ++i)
          sum_of_all += sums.pixel[p][i];
        pixels[row][p] = vec16_of_sums<Bits>(sums.pixel[p], type);
      }
    };
    add_row(0, codes, gradient, open_[0]);
    complete(0, open_[0]);
    if constexpr (Stride == 1) {
      open_[0] = open_[1];
      add_row(1, codes, gradient, open_[0]);
    } else {
      row_sums second = {};
      add_row(1, codes, gradient, second);
      complete(1, second);
    }
    open_[before - 1] = {};
    add_row(2, codes, gradient, open_[before - 1]);
    return sum_of_all == sum_of_all;
  }

 private:
  static constexpr unsigned before = windows_before<Stride>;
  struct row_sums {
    float pixel[columns][length];
  };
  row_sums open_[before] = {};

  /// Adds to the row that has taps `ky` of the windows.
  STASH_DEVICE static void add_row(unsigned ky, const std::uint32_t (&codes)[windows],
                                   const float (&gradient)[windows][length], row_sums& sums) {
    STASH_UNROLL
    for (unsigned p = 0; p < columns; ++p) {
      STASH_UNROLL
      for (unsigned c = 0; c < windows; ++c) {
        // Unsigned: a column that the window does not have is above all others.
        const unsigned kx = p + before * Stride - c * Stride;
        if (kx >= 3) continue;
        const std::uint32_t other = codes[c] ^ (ky * 3 + kx) * 0x11111111U;
        STASH_UNROLL
        for (unsigned i = 0; i < length; ++i)
          add_unless(sums.pixel[p][i], gradient[c][i], other & 0xfU << (4 * i));
      }
    }
  }
};

/// The same of 16-bit elements and windows with stride 2, two elements at a time (sum_block()): what is kept
/// are the windows before.
template <>
class pixel_tile_sums<std::uint16_t, 2> {
 public:
  STASH_DEVICE bool add(const element_type& type, const std::uint32_t (&codes)[2],
                        const vector16 (&gradients)[2], vector16 (&pixels)[2][2]) {
    STASH_UNROLL
    for (unsigned c = 0; c < 2; ++c) {
      windows_.gradient[c] = windows_.gradient[2 + c];
      windows_.codes[c] = windows_.codes[2 + c];
      windows_.gradient[2 + c] = gradients[c];
      windows_.codes[2 + c] = codes[c];
    }
    vector16 all[4];
    const bool numbers = type.bf16 ? sum_block<true>(windows_, all) : sum_block<false>(windows_, all);
    STASH_UNROLL
    for (unsigned p = 0; p < 4; ++p)
      pixels[p / 2][p % 2] = all[p];
    return numbers;
  }

 private:
  block_windows windows_ = {};
};

/// The rows of dx that are a pixel tile's, but for those before the map.
struct pixel_tile_rows {
  std::int32_t begin, end;
};
template <unsigned Stride>
STASH_DEVICE pixel_tile_rows rows_of_pixel_tile(const pool_job& job, const pixel_tile_grid& grid,
                                                const pixel_tile_position& position) {
  const std::int32_t end = position.row + static_cast<std::int32_t>(grid.steps * Stride);
  const auto rows = static_cast<std::int32_t>(job.rows.in);
  return {position.row > 0 ? position.row : 0, end < rows ? end : rows};
}

/// The job with what is known when this is compiled, so that gather() has fewer loops and no divisions.
template <unsigned Stride>
STASH_DEVICE pool_job known_job(const pool_job& job) {
  constexpr divisor by_one, by_stride{Stride, std::uint64_t{1} << 63, 0x80000000U, Stride - 1};
  const auto known = [&](window_axis a) {
    a.kernel = 3;
    a.stride = Stride;
    a.dilation = 1;
    a.by_stride = by_stride;
    a.by_dilation = by_one;
    return a;
  };
  pool_job with = job;
  with.depth = {1, 1, 1, 1, 0, 1, by_one, by_one, by_one, by_one, by_one};
  with.rows = known(job.rows);
  with.columns = known(job.columns);
  return with;
}

/// Pixels of a pixel tile by the way that keeps the bits of NaN, if they are of rows of windows whose
/// bit is set.
template <class Bits, unsigned Stride, unsigned Columns, class Source>
STASH_DEVICE void gather_pixel_tile(const pool_job& job, const pixel_tile_grid& grid, const void* dy,
                                    const Source& source, void* dx, std::uint32_t unit,
                                    std::uint32_t careful) {
  const pixel_tile_position position = position_of_pixel_tile<Columns, Stride>(grid, unit);
  const pixel_tile_rows rows = rows_of_pixel_tile<Stride>(job, grid, position);
  const pixel_tile_vec16s<vector16> to(static_cast<vector16*>(dx), grid.dx, job.rows.in, position);
  map_position<std::int32_t> e{position.sample, 0, 0, 0, rows.begin, 0};
  STASH_NO_UNROLL
  for (; e.y < rows.end; ++e.y) {
    if ((careful >> (e.y - position.row) / static_cast<std::int32_t>(Stride) & 1) == 0) continue;
    STASH_NO_UNROLL
    for (unsigned p = 0; p < Columns; ++p) {
      e.x = position.column + static_cast<std::int32_t>(p);
      if (e.x < 0 || e.x >= static_cast<std::int32_t>(job.columns.in)) continue;
      e.channel = std::uint64_t{position.vec16} * vec16_elements<Bits>;
      auto* const vec16 = reinterpret_cast<Bits*>(to.at(e.y, to.in_row(e.x)));
      STASH_NO_UNROLL
      for (unsigned i = 0; i < vec16_elements<Bits>; ++i, ++e.channel) {
        float sum[1] = {};
        gather<Bits>(known_job<Stride>(job), dy, source, e, sum);
        vec16[i] = result_from_f32<Bits>(sum[0], job.type);
      }
    }
  }
}

/// pool_backward() for windows of 3 x 3 with stride Stride. Grid: threads for all vec16s of all columns of
/// pixels.
template <class Bits, unsigned Stride>
STASH_KERNEL(pool_threads, Stride == 1 ? tuning::pool_blocks_of_three_rows : tuning::pool_blocks)
pool_backward_pixel_tiles(pool_job job, pixel_tile_grid grid, const void* dy, searched_argmaxes source,
                          void* dx) {
  begin_kernel();
  constexpr unsigned windows = pixel_tile_windows<Bits, Stride>, columns = pixel_tile_columns<Bits, Stride>;
  constexpr auto stride = static_cast<std::int32_t>(Stride);
  const auto unit = static_cast<std::uint32_t>(block_rank() * pool_threads + thread_rank());
  if (unit >= grid.units) return;
  const pixel_tile_position position = position_of_pixel_tile<columns, Stride>(grid, unit);
  const pixel_tile_rows rows = rows_of_pixel_tile<Stride>(job, grid, position);
  const pixel_tile_vec16s<vector16> to(static_cast<vector16*>(dx), grid.dx, job.rows.in, position);
  const pixel_tile_gradients<Bits, Stride> gradients(job, grid.y, dy, position);
  std::int32_t top = position.row - static_cast<std::int32_t>(windows_before<Stride>) * stride;
  pixel_tile_search<Bits, Stride> search(job, grid.x, source, position, top);
  pixel_tile_sums<Bits, Stride> sums;
  std::uint32_t careful = 0;  // rows of windows whose pixels need more than sums, a bit each
  STASH_NO_UNROLL
  for (; top < rows.end; top += stride) {
    vector16 gradient[windows], pixels[Stride][columns];
    std::uint32_t codes[windows];
    std::uint32_t there = 0;
    if constexpr (windows < 4) there = gradients.load(top, gradient);
    search.find(top, codes);
    // Before the search those of four windows would want more registers than there are.
    if constexpr (windows == 4) there = gradients.load(top, gradient);
    STASH_UNROLL
    for (unsigned c = 0; c < windows; ++c)
      codes[c] = (there >> c & 1) != 0 ? codes[c] : 0xffffffffU;
    const bool numbers = sums.add(job.type, codes, gradient, pixels) && !search.needs_care();
    if (top < position.row) continue;
    careful |= numbers ? 0 : 1U << (top - position.row) / stride;
    const auto first = static_cast<std::int32_t>(anew(static_cast<std::uint32_t>(position.column)));
    STASH_UNROLL
    for (unsigned r = 0; r < Stride; ++r) {
      const std::int32_t row = top + static_cast<std::int32_t>(r);
      STASH_UNROLL
      for (unsigned p = 0; p < columns; ++p) {
        const std::int32_t column = first + static_cast<std::int32_t>(p);
        const std::uint32_t(&word)[4] = pixels[r][p].word;
        if (numbers && row >= 0 && row < rows.end && column >= 0 &&
            column < static_cast<std::int32_t>(job.columns.in))
          store_vector(to.at(row, to.in_row(column)), {{word[0], word[1], word[2], word[3]}});
      }
    }
  }
  if (careful != 0) gather_pixel_tile<Bits, Stride, columns>(job, grid, dy, source, dx, anew(unit), careful);
}

}  // namespace stash::kernels
