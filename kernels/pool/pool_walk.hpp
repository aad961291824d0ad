// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling with large windows, whose codes are bytes: a thread walks. It has a column of windows
/// in one channel of a sample and goes along it. Of a position of that axis it finds the maximum of the
/// window's taps there once, for all windows that have the position, and holds it in shared memory. So a
/// window of K x K costs 2 K comparisons, and none more where windows overlap.

#include <cstdint>

#include "pool/pool_forward.hpp"
#include "pool/pool_scatter_shape.hpp"

namespace stash::kernels {

using tuning::walk_threads;

/// How y is cut into columns of windows.
struct walk_grid {
  divisor inners, middles, segments;  ///< windows of a row, rows of them, parts of a column
  std::int32_t ring;                  ///< positions from the first tap of a window to its last one
  std::int32_t step;                  ///< of windows along the ring, from one to the next
  std::int32_t outer;                 ///< windows of a part
  std::uint64_t units;                ///< threads
};

/// The maximum of a window's taps at a position, for all threads of a block: its bits, and its number among
/// those taps.
struct walk_ring {
  /// Added to the number where a tap is NaN.
  static constexpr std::uint16_t care = 0x100;
  std::uint32_t* values;
  std::uint16_t* taps;
};

/// `Deep`: there are slices, through which threads go; else they go down rows.
template <class Bits, bool Deep>
class window_walk {
 public:
  STASH_DEVICE window_walk(const pool_job& job, const walk_grid& grid, const void* x, const walk_ring& ring,
                           std::uint64_t unit)
      : job_(job), grid_(grid), x_(static_cast<const Bits*>(x)), ring_(ring) {
    o_.channel = take_digit(unit, job.by_units);
    o_.x = static_cast<std::int32_t>(take_digit(unit, grid.inners));
    const auto middle = static_cast<std::int32_t>(take_digit(unit, grid.middles));
    first_ = static_cast<std::int32_t>(take_digit(unit, grid.segments)) * grid.outer;
    o_.sample = unit;
    o_.y = Deep ? middle : 0;
    o_.z = 0;
    columns_ = taps_in_map<std::int32_t>(job.columns, o_.x);
    rows_ = Deep ? taps_in_map<std::int32_t>(job.rows, o_.y) : tap_range<std::int32_t>{0, 1, 0};
  }

  /// Calls each(window, value, tap) for every window of the column.
  template <class Each>
  STASH_DEVICE void go(bool relu, const Each& each) {
    const window_axis& a = Deep ? job_.depth : job_.rows;
    const auto out = static_cast<std::int32_t>(a.out), in = static_cast<std::int32_t>(a.in);
    const auto step = static_cast<std::int32_t>(a.stride), gap = static_cast<std::int32_t>(a.dilation);
    const std::int32_t last = first_ + grid_.outer < out ? first_ + grid_.outer : out;
    std::int32_t origin = first_ * step - static_cast<std::int32_t>(a.pad);
    std::int32_t next = origin, next_slot = 0,
                 slot = 0;  // of the next position, and of the window's first one
    STASH_NO_UNROLL
    for (std::int32_t z = first_; z < last; ++z, origin += step) {
      (Deep ? o_.z : o_.y) = z;
      if (next < origin) {
        // No window has the positions between.
        next = origin;
        next_slot = slot;
      }
      STASH_NO_UNROLL
      for (; next < origin + grid_.ring; ++next) {
        if (next >= 0 && next < in) find(next, next_slot);
        if (++next_slot == grid_.ring) next_slot = 0;
      }
      const tap_range<std::int32_t> taps = taps_in_map<std::int32_t>(a, z);
      std::int32_t at = slot + taps.begin * gap;
      if (at >= grid_.ring) at -= grid_.ring;
      // The first one meets itself, which changes nothing.
      float most = as_float(ring_.values[at * threads]);
      std::uint32_t number = static_cast<std::uint32_t>(taps.begin) * slice_taps();
      std::uint32_t most_tap = number + (ring_.taps[at * threads] & 0xffU), seen = 0;
      STASH_NO_UNROLL
      for (std::int32_t k = taps.begin; k < taps.end; ++k) {
        const float rank = as_float(ring_.values[at * threads]);
        const std::uint32_t tap = ring_.taps[at * threads];
        seen |= tap;
        const bool more = rank > most;
        most = more ? rank : most;
        most_tap = more ? number + tap : most_tap;
        number += slice_taps();
        at += gap;
        if (at >= grid_.ring) at -= grid_.ring;
      }
      maxima<1> best{{most}, {most_tap}};
      std::uint32_t first_tap = static_cast<std::uint32_t>(taps.begin) * slice_taps() + first_of_slice();
      if ((seen & walk_ring::care) != 0) first_tap = find_maxima<Bits, 1>(job_, x_, job_.x_pitch, o_, best);
      if (relu) rectify_maxima<Bits, 1>(job_, first_tap, best);
      each(pixel(), element_of<Bits>(best.rank[0]), best.tap[0]);
      slot += grid_.step;
      if (slot >= grid_.ring) slot -= grid_.ring;
    }
  }

 private:
  static constexpr std::int32_t threads = walk_threads;

  /// Of a window at one position.
  STASH_DEVICE std::uint32_t slice_taps() const {
    const auto columns = static_cast<std::uint32_t>(job_.columns.kernel);
    return Deep ? static_cast<std::uint32_t>(job_.rows.kernel) * columns : columns;
  }
  STASH_DEVICE std::uint32_t first_of_slice() const {
    return static_cast<std::uint32_t>(rows_.begin) * static_cast<std::uint32_t>(job_.columns.kernel) +
           static_cast<std::uint32_t>(columns_.begin);
  }
  STASH_DEVICE std::uint64_t pixel() const {
    const auto length = [](const window_axis& a) { return static_cast<std::uint64_t>(a.out); };
    const auto at = [](std::int32_t p) { return static_cast<std::uint64_t>(p); };
    return ((o_.sample * length(job_.depth) + at(o_.z)) * length(job_.rows) + at(o_.y)) *
               length(job_.columns) +
           at(o_.x);
  }

  /// The maximum at a position of x.
  STASH_DEVICE void find(std::int32_t position, std::int32_t slot) {
    const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    const std::int32_t z = Deep ? position : 0, y = Deep ? rows_.at : position;
    const std::uint64_t first =
        ((o_.sample * length(job_.depth.in) + length(z)) * length(job_.rows.in) + length(y)) *
            length(job_.columns.in) +
        length(columns_.at);
    const std::uint64_t step = length(job_.columns.dilation) * job_.x_pitch;
    const std::uint64_t row_step = length(job_.rows.dilation * job_.columns.in) * job_.x_pitch;
    const Bits* row = x_ + first * job_.x_pitch + o_.channel;
    std::uint32_t tap = first_of_slice(), row_tap = tap, best_tap = tap, sum = 0;
    float best = rank_of(*row);
    STASH_NO_UNROLL
    for (std::int32_t ky = rows_.begin; ky < rows_.end; ++ky) {
      const Bits* from = row;
      tap = row_tap;
      for (std::int32_t kx = columns_.begin; kx < columns_.end; ++kx, ++tap, from += step) {
        const Bits bits = *from;
        sum = sum_of_words<Bits>(sum, bits);
        const float rank = rank_of(bits);
        const bool more = rank > best;
        best = more ? rank : best;
        best_tap = more ? tap : best_tap;
      }
      row += row_step;
      row_tap += static_cast<std::uint32_t>(job_.columns.kernel);
    }
    ring_.values[slot * threads] = as_bits(best);
    ring_.taps[slot * threads] =
        static_cast<std::uint16_t>(best_tap | (is_nan_sum<Bits>(sum) ? walk_ring::care : 0U));
  }

  const pool_job& job_;
  const walk_grid& grid_;
  const Bits* x_;
  walk_ring ring_;
  map_position<std::int32_t> o_;  ///< its pixel does not count
  std::int32_t first_;            ///< window of the part
  tap_range<std::int32_t> columns_, rows_;
};

/// pool_forward() for windows of 17 to 256 taps. Grid: threads for all columns of windows, and for the
/// padding of the plane.
template <class Bits, bool Deep>
STASH_KERNEL(walk_threads, tuning::walk_blocks)
pool_forward_walk(pool_job job, walk_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  STASH_SHARED(std::uint32_t, values, tuning::walk_positions * walk_threads);
  STASH_SHARED(std::uint16_t, taps, tuning::walk_positions * walk_threads);
  const std::uint64_t unit = block_rank() * walk_threads + thread_rank();
  if (unit == 0) report_planes(planes);
  if (unit >= grid.units) {
    const std::uint64_t at = job.y_units + (unit - grid.units);
    if (planes.index.data != nullptr && at < planes.index.bytes) planes.index.data[at] = 0;
    return;
  }
  window_walk<Bits, Deep> walk(job, grid, x, {values + thread_rank(), taps + thread_rank()}, unit);
  std::uint64_t rest = unit;
  const std::uint64_t channel = take_digit(rest, job.by_units);
  walk.go(relu, [&](std::uint64_t pixel, Bits value, std::uint32_t tap) {
    static_cast<Bits*>(y)[pixel * job.y_pitch + channel] = value;
    if (planes.index.data != nullptr)
      planes.index.data[pixel * job.channels + channel] = static_cast<std::uint8_t>(tap);
  });
}

}  // namespace stash::kernels
