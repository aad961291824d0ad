// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling from codes in NHWC, for windows of 3 x 3 with stride 2. A thread has eight channels
/// of a block of 2 x 2 pixels: it reads every window that covers one of them once, and which of a window's
/// taps the pixels are is known when this is compiled. pool_coded_pixel_tiles.hpp has windows with stride 1.

#include <cstdint>

#include "pool/pool_backward.hpp"
#include "pool/pool_codes.hpp"

namespace stash::kernels {

/// How a map is cut into blocks of pixels. The first block of a column or row may begin before the map, so
/// that every block begins with the first tap of a window.
struct pixel_blocks {
  divisor rows, columns;  ///< of blocks
  std::int32_t first_row, first_column;
  std::uint64_t units;  ///< threads
};

/// Those that may cover a block of two by two pixels.
using pixel_windows = covering_windows<3, 2, 2>;

/// Where a window lies along an axis.
struct window_position {
  std::int32_t at;      ///< its number; inside the pooled map in any case
  std::int32_t origin;  ///< of its first tap in x
  bool there;           ///< whether there is such a window
};

/// Window `i` of those that may cover a block of two pixels from `start` on.
STASH_DEVICE window_position window_at(const window_axis& a, std::int32_t start, unsigned i) {
  constexpr std::int32_t stride = 2;
  const auto out = static_cast<std::int32_t>(a.out), pad = static_cast<std::int32_t>(a.pad);
  const std::int32_t number = (start + pad) / stride + static_cast<std::int32_t>(i) -
                              static_cast<std::int32_t>(pixel_windows::before);
  const std::int32_t at = nearest_in(number, out);
  return {at, number * stride - pad, at == number};
}

/// Whether one of eight codes is no tap of the window in x.
STASH_DEVICE bool any_illegal(const pool_job& job, const window_position& row, const window_position& column,
                              std::uint32_t codes, pass_source passing) {
  const auto outside = [](const window_axis& a, const window_position& w) {
    return positions_outside(w.origin, static_cast<std::int32_t>(a.in));
  };
  const tap_table table(passing,
                        taps_of_rows(outside(job.rows, row)) | taps_of_columns(outside(job.columns, column)));
  return table.any_outside(codes) != 0;
}

/// Whether any_illegal() has to look: the window reaches out of x, or a code is no tap of any window.
STASH_DEVICE bool may_be_illegal(const pool_job& job, const window_position& row,
                                 const window_position& column, std::uint32_t codes, pass_source passing) {
  return row.origin < 0 || column.origin < 0 || row.origin + 3 > job.rows.in ||
         column.origin + 3 > job.columns.in || any_beyond_taps(codes, passing);
}

/// The pixel of a window in the pooled map.
STASH_DEVICE std::uint64_t pixel_of(const pool_job& job, std::uint64_t sample, const window_position& row,
                                    const window_position& column) {
  return (sample * static_cast<std::uint64_t>(job.rows.out) + static_cast<std::uint64_t>(row.at)) *
             static_cast<std::uint64_t>(job.columns.out) +
         static_cast<std::uint64_t>(column.at);
}

/// A row of the windows that may cover a block, of f32, as they lie in memory.
struct loaded_windows {
  window_position row, column[pixel_windows::columns];
  vector16 gradients[pixel_windows::columns][group_vectors<std::uint32_t>];
  std::uint32_t codes[pixel_windows::columns];
};

/// The codes of a window; 15, which is no tap, where the plane says that the gradient does not pass.
/// `first`: the window's first value among all.
STASH_DEVICE std::uint32_t passing_codes(const encoded_argmaxes& source, std::uint64_t first,
                                         std::uint32_t codes) {
  return codes | ~four_times(source.plane[first / group_elements]);
}

/// pool_backward() of f32 for windows of 3 x 3 with stride 2, where gradients pass by a tap's code or a
/// plane. Grid: threads for all blocks of pixels.
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_backward_pixels(pool_job job, pixel_blocks blocks, const void* dy, encoded_argmaxes source, void* dx) {
  begin_kernel();
  using bits_type = std::uint32_t;
  constexpr unsigned width = group_elements, side = 2, stride = 2;
  constexpr unsigned count = pixel_windows::columns;
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= blocks.units) return;
  map_position<std::int32_t> o{};
  o.sample = unit;
  o.channel = take_digit(o.sample, job.by_units) * width;
  const std::int32_t column =
      static_cast<std::int32_t>(take_digit(o.sample, blocks.columns) * side) + blocks.first_column;
  const std::int32_t row =
      static_cast<std::int32_t>(take_digit(o.sample, blocks.rows) * side) + blocks.first_row;

  float sums[side * side][width] = {};
  std::uint32_t suspects = 0;  // windows whose codes are to be looked at, a bit each
  const auto first_value = [&](const window_position& y, const window_position& x) {
    return pixel_of(job, o.sample, y, x) * job.channels + o.channel;
  };
  const auto load_row = [&](unsigned r) {
    loaded_windows w;
    w.row = window_at(job.rows, row, r);
    STASH_UNROLL
    for (unsigned c = 0; c < count; ++c) {
      w.column[c] = window_at(job.columns, column, c);
      const bits_type* const from = static_cast<const bits_type*>(dy) +
                                    pixel_of(job, o.sample, w.row, w.column[c]) * job.y_pitch + o.channel;
      STASH_UNROLL
      for (unsigned v = 0; v < group_vectors<bits_type>; ++v)
        w.gradients[c][v] = reinterpret_cast<const vector16*>(from)[v];
      w.codes[c] =
          reinterpret_cast<const std::uint32_t*>(source.taps)[first_value(w.row, w.column[c]) / width];
    }
    return w;
  };
  const auto add_row = [&](unsigned r, const loaded_windows& w) {
    STASH_UNROLL
    for (unsigned c = 0; c < count; ++c) {
      const window_position &y = w.row, &x = w.column[c];
      const bool there = y.there && x.there;
      // The first block that meets a window looks for codes that none takes.
      const bool first = (r >= pixel_windows::before || row == blocks.first_row) &&
                         (c >= pixel_windows::before || column == blocks.first_column);
      const bool suspect = there && first && may_be_illegal(job, y, x, w.codes[c], source.passing);
      suspects |= suspect ? 1U << (r * count + c) : 0;
      std::uint32_t codes = there ? w.codes[c] : 0xffffffffU;
      if (source.passing == pass_source::plane) codes = passing_codes(source, first_value(y, x), codes);
      float gradient[width];
      floats_of_vec16s<bits_type>(w.gradients[c], job.type, gradient);
      STASH_UNROLL
      for (unsigned p = 0; p < side * side; ++p) {
        // Unsigned: a tap that the window does not have is above all others.
        const unsigned ky = p / side + pixel_windows::before * stride - r * stride;
        const unsigned kx = p % side + pixel_windows::before * stride - c * stride;
        if (ky < 3 && kx < 3) {
          const std::uint32_t other = codes ^ (ky * 3 + kx) * 0x11111111U;
          STASH_UNROLL
          for (unsigned i = 0; i < width; ++i)
            add_unless(sums[p][i], gradient[i], other & 0xfU << (4 * i));
        }
      }
    }
  };
  const loaded_windows upper = load_row(0), lower = load_row(1);
  add_row(0, upper);
  add_row(1, lower);
  if (suspects != 0) {
    bool corrupt = false;
    STASH_NO_UNROLL
    for (unsigned i = 0; i < count * count; ++i) {
      if ((suspects >> i & 1) == 0) continue;
      const window_position y = window_at(job.rows, row, i / count);
      const window_position x = window_at(job.columns, column, i % count);
      const std::uint32_t codes =
          reinterpret_cast<const std::uint32_t*>(source.taps)[first_value(y, x) / width];
      corrupt = corrupt || any_illegal(job, y, x, codes, source.passing);
    }
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }

  // NaN keeps its bits only in gather(). Where one is among the sums, it is their sum, too.
  float sum_of_all = 0;
  STASH_UNROLL
  for (unsigned p = 0; p < side * side; ++p) {
    STASH_UNROLL
    for (unsigned i = 0; i < width; ++i)
      sum_of_all += sums[p][i];
  }
  const auto pixel = [&](unsigned p) {
    map_position<std::int32_t> e{o.sample, 0, o.channel, 0, 0, 0};
    e.y = row + static_cast<std::int32_t>(p / side);
    e.x = column + static_cast<std::int32_t>(p % side);
    e.pixel = (e.sample * static_cast<std::uint64_t>(job.rows.in) + static_cast<std::uint64_t>(e.y)) *
                  static_cast<std::uint64_t>(job.columns.in) +
              static_cast<std::uint64_t>(e.x);
    return e;
  };
  const auto in_map = [&](const map_position<std::int32_t>& e) {
    return e.y >= 0 && e.x >= 0 && e.y < job.rows.in && e.x < job.columns.in;
  };
  const auto address = [&](const map_position<std::int32_t>& e) {
    return static_cast<bits_type*>(dx) + e.pixel * job.x_pitch + e.channel;
  };
  if (sum_of_all == sum_of_all) {
    STASH_UNROLL
    for (unsigned p = 0; p < side * side; ++p) {
      vector16 out[group_vectors<bits_type>];
      vec16s_of_floats<bits_type>(sums[p], job.type, out);
      const map_position<std::int32_t> e = pixel(p);
      if (!in_map(e)) continue;
      STASH_UNROLL
      for (unsigned v = 0; v < group_vectors<bits_type>; ++v)
        store_vector(reinterpret_cast<vector16*>(address(e)) + v, out[v]);
    }
    return;
  }
  STASH_NO_UNROLL
  for (unsigned p = 0; p < side * side; ++p) {
    const map_position<std::int32_t> e = pixel(p);
    if (!in_map(e)) continue;
    float sum[width] = {};
    gather<bits_type>(job, dy, source, e, sum);
    lanes<bits_type, width> out;
    results_from_f32s(sum, job.type, out.value);
    store_lanes(address(e), out);
  }
}

}  // namespace stash::kernels
