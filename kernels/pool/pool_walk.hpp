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

/// Added to the number of a position's maximum where one of its taps is NaN.
inline constexpr std::uint32_t walk_care = 0x100;

/// `Deep`: there are slices, through which threads go; else they go down rows.
template <class Bits, bool Deep>
class window_walk {
 public:
  STASH_DEVICE window_walk(const pool_job& job, const walk_grid& grid, const void* x, vector8* ring,
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
    const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    const std::uint64_t row = length(job.columns.in) * job.x_pitch, slice = length(job.rows.in) * row;
    x_step_ = length(job.columns.dilation) * job.x_pitch;
    row_step_ = length(job.rows.dilation) * row;
    outer_step_ = Deep ? slice : row;
    // Of the first tap at position 0.
    first_tap_ = x_ + o_.sample * length(job.depth.in) * slice + length(rows_.at) * row +
                 length(columns_.at) * job.x_pitch + o_.channel;
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
    (Deep ? o_.z : o_.y) = first_;
    std::uint64_t pixel = first_pixel();
    const std::uint64_t pixel_step =
        static_cast<std::uint64_t>((Deep ? job_.rows.out : 1) * job_.columns.out);
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
      tap_range<std::int32_t> taps{0, static_cast<std::int32_t>(a.kernel), origin};
      if (origin < 0 || origin + grid_.ring > in) taps = taps_in_map<std::int32_t>(a, z);
      const std::int32_t begin = slot + taps.begin * gap;
      const vector8* const at = ring_ + (begin >= grid_.ring ? begin - grid_.ring : begin) * threads;
      const std::uint32_t number = static_cast<std::uint32_t>(taps.begin) * slice_taps();
      // The first one meets itself, which changes nothing.
      walk_maximum found{as_float(at->word[0]), number + (at->word[1] & 0xff), 0};
      const std::int32_t count = taps.end - taps.begin;
      if (a.kernel <= 3) {
        combine<3>(found, at, gap, number, count);
      } else if (a.kernel <= 5) {
        combine<5>(found, at, gap, number, count);
      } else {
        combine_any(found, at, gap, number, count);
      }
      maxima<1> best{{found.rank}, {found.tap}};
      std::uint32_t first_tap = static_cast<std::uint32_t>(taps.begin) * slice_taps() + first_of_slice();
      if ((found.seen & walk_care) != 0) first_tap = find_maxima<Bits, 1>(job_, x_, job_.x_pitch, o_, best);
      if (relu) rectify_maxima<Bits, 1>(job_, first_tap, best);
      each(pixel, element_of<Bits>(best.rank[0]), best.tap[0]);
      pixel += pixel_step;
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
  STASH_DEVICE std::uint64_t first_pixel() const {
    const auto length = [](const window_axis& a) { return static_cast<std::uint64_t>(a.out); };
    const auto at = [](std::int32_t p) { return static_cast<std::uint64_t>(p); };
    return ((o_.sample * length(job_.depth) + at(o_.z)) * length(job_.rows) + at(o_.y)) *
               length(job_.columns) +
           at(o_.x);
  }

  /// A window's maximum so far.
  struct walk_maximum {
    float rank;
    std::uint32_t tap, seen;

    STASH_DEVICE void see(const vector8& position, std::uint32_t number) {
      const float other = as_float(position.word[0]);
      const bool more = other > rank;
      seen |= position.word[1];
      rank = more ? other : rank;
      tap = more ? number + position.word[1] : tap;
    }
  };
  /// `gap` positions further in the ring.
  STASH_DEVICE const vector8* further(const vector8* at, std::int32_t gap) const {
    at += gap * threads;
    return at >= ring_ + grid_.ring * threads ? at - grid_.ring * threads : at;
  }
  // Where a window has fewer taps than `Most` in x, the last one is met again, which changes nothing. So
  // lanes at a border do what the others do.
  template <unsigned Most>
  STASH_DEVICE void combine(walk_maximum& found, const vector8* at, std::int32_t gap, std::uint32_t number,
                            std::int32_t count) const {
    STASH_UNROLL
    for (unsigned k = 0; k < Most; ++k) {
      found.see(*at, number + k * slice_taps());
      at = further(at, static_cast<std::int32_t>(k) + 1 < count ? gap : 0);
    }
  }
  STASH_DEVICE void combine_any(walk_maximum& found, const vector8* at, std::int32_t gap,
                                std::uint32_t number, std::int32_t count) const {
    STASH_NO_UNROLL
    for (; count > 0; --count, at = further(at, gap), number += slice_taps())
      found.see(*at, number);
  }

  /// The maximum at a position of x.
  STASH_DEVICE void find(std::int32_t position, std::int32_t slot) {
    const Bits* row = first_tap_ + static_cast<std::uint64_t>(position) * outer_step_;
    single_search<Bits> search;
    std::uint32_t tap = first_of_slice();
    search.begin(*row, tap);
    if constexpr (Deep) {
      STASH_NO_UNROLL
      for (std::int32_t ky = rows_.begin; ky < rows_.end; ++ky) {
        see_row(search, row, tap);
        row += row_step_;
        tap += static_cast<std::uint32_t>(job_.columns.kernel);
      }
    } else {
      see_row(search, row, tap);
    }
    const std::uint32_t care = search.needs_care() ? walk_care : 0U;
    ring_[slot * threads] = {{as_bits(search.best), search.tap | care}};
  }
  /// Lets a row's taps compete. Of the usual numbers of them all loads are under way together.
  STASH_DEVICE void see_row(single_search<Bits>& search, const Bits* from, std::uint32_t tap) const {
    const std::int32_t count = columns_.end - columns_.begin;
    if (job_.columns.kernel <= 3) return see_taps<3>(search, from, tap, count);
    if (job_.columns.kernel <= 5) return see_taps<5>(search, from, tap, count);
    STASH_NO_UNROLL
    for (std::int32_t kx = 0; kx < count; ++kx, from += x_step_)
      search.see(*from, tap + static_cast<std::uint32_t>(kx));
  }
  template <unsigned Most>
  STASH_DEVICE void see_taps(single_search<Bits>& search, const Bits* from, std::uint32_t tap,
                             std::int32_t count) const {
    Bits taps[Most];
    STASH_UNROLL
    for (unsigned k = 0; k < Most; ++k) {
      taps[k] = *from;
      from += static_cast<std::int32_t>(k) + 1 < count ? x_step_ : 0;
    }
    STASH_UNROLL
    for (unsigned k = 0; k < Most; ++k)
      search.see(taps[k], tap + k);
  }

  const pool_job& job_;
  const walk_grid& grid_;
  const Bits* x_;
  vector8* ring_;  ///< for each position, the maximum of a window's taps there: its bits, its number
  map_position<std::int32_t> o_;                  ///< its pixel does not count
  std::int32_t first_;                            ///< window of the part
  std::uint64_t x_step_, row_step_, outer_step_;  ///< elements from tap to tap, and from position to position
  const Bits* first_tap_;                         ///< at position 0
  tap_range<std::int32_t> columns_, rows_;
};

/// pool_forward() for windows of 17 to 256 taps. Grid: threads for all columns of windows, and for the
/// padding of the plane.
template <class Bits, bool Deep>
STASH_KERNEL(walk_threads, tuning::walk_blocks)
pool_forward_walk(pool_job job, walk_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  STASH_SHARED(vector8, ring, tuning::walk_positions * walk_threads);
  const std::uint64_t unit = block_rank() * walk_threads + thread_rank();
  if (unit == 0) report_planes(planes);
  if (unit >= grid.units) {
    const std::uint64_t at = job.y_units + (unit - grid.units);
    if (planes.index.data != nullptr && at < planes.index.bytes) planes.index.data[at] = 0;
    return;
  }
  window_walk<Bits, Deep> walk(job, grid, x, ring + thread_rank(), unit);
  std::uint64_t rest = unit;
  const std::uint64_t channel = take_digit(rest, job.by_units);
  walk.go(relu, [&](std::uint64_t pixel, Bits value, std::uint32_t tap) {
    static_cast<Bits*>(y)[pixel * job.y_pitch + channel] = value;
    if (planes.index.data != nullptr)
      planes.index.data[pixel * job.channels + channel] = static_cast<std::uint8_t>(tap);
  });
}

}  // namespace stash::kernels
