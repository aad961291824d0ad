// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling with large windows, whose codes are bytes: a thread walks. It has four neighbouring
/// columns of windows in a channel of a sample, or a column in four channels, and goes along them. Of a
/// position of that axis it finds the maximum of a window's taps there once, for all windows that have the
/// position, and holds it in shared memory. So a window of K x K costs 2 K comparisons, and none more where
/// windows overlap.

#include <cstdint>

#include "pool/pool_forward.hpp"
#include "pool/pool_scatter_shape.hpp"

namespace stash::kernels {

using tuning::walk_lanes;
using tuning::walk_threads;

/// How y is cut into columns of windows.
struct walk_grid {
  divisor groups;                     ///< of channels, if neighbours are channels
  divisor inners, middles, segments;  ///< windows of a row or groups of them, rows of them, parts of a column
  bool by_columns;                    ///< neighbours are columns, and there is one channel
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
    const auto width = static_cast<std::int32_t>(lanes);
    o_.channel = take_digit(unit, grid.groups) * (grid.by_columns ? 1 : lanes);
    o_.x = static_cast<std::int32_t>(take_digit(unit, grid.inners)) * (grid.by_columns ? width : 1);
    const auto middle = static_cast<std::int32_t>(take_digit(unit, grid.middles));
    first_ = static_cast<std::int32_t>(take_digit(unit, grid.segments)) * grid.outer;
    o_.sample = unit;
    o_.y = Deep ? middle : 0;
    o_.z = 0;
    rows_ = Deep ? taps_in_map<std::int32_t>(job.rows, o_.y) : tap_range<std::int32_t>{0, 1, 0};
    const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    const std::uint64_t row = length(job.columns.in) * job.x_pitch, slice = length(job.rows.in) * row;
    x_step_ = length(job.columns.dilation) * job.x_pitch;
    row_step_ = length(job.rows.dilation) * row;
    outer_step_ = Deep ? slice : row;
    const Bits* const first = x_ + o_.sample * length(job.depth.in) * slice + length(rows_.at) * row;
    STASH_UNROLL
    for (unsigned i = 0; i < lanes; ++i) {
      // Lanes beyond the last one do the same as that.
      const map_position<std::int32_t> o = of_lane(i);
      const tap_range<std::int32_t> columns = taps_in_map<std::int32_t>(job.columns, o.x);
      begin_[i] = static_cast<std::uint32_t>(columns.begin);
      count_[i] = columns.end - columns.begin;
      first_tap_[i] = first + length(columns.at) * job.x_pitch + o.channel;
    }
  }

  /// Calls each(pixel of y, channel, value, tap) for every window of the columns.
  template <class Each>
  STASH_DEVICE void go(bool relu, const Each& each) {
    const window_axis& a = Deep ? job_.depth : job_.rows;
    const auto out = static_cast<std::int32_t>(a.out), in = static_cast<std::int32_t>(a.in);
    const auto step = static_cast<std::int32_t>(a.stride), gap = static_cast<std::int32_t>(a.dilation);
    const std::int32_t last = first_ + grid_.outer < out ? first_ + grid_.outer : out;
    std::int32_t origin = first_ * step - static_cast<std::int32_t>(a.pad);
    // Of the next position, and of the window's first one.
    std::int32_t next = origin, next_slot = 0, slot = 0;
    (Deep ? o_.z : o_.y) = first_;
    std::uint64_t pixel = first_pixel();
    const auto pixel_step = static_cast<std::uint64_t>((Deep ? job_.rows.out : 1) * job_.columns.out);
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
      const vector8* at = ring_ + (begin >= grid_.ring ? begin - grid_.ring : begin) * position;
      std::uint32_t number = static_cast<std::uint32_t>(taps.begin) * slice_taps();
      walk_maximum found[lanes];
      STASH_UNROLL
      for (unsigned i = 0; i < lanes; ++i)
        found[i] = {as_float(at[i * threads].word[0]), number + (at[i * threads].word[1] & 0xff), 0};
      // The first one meets itself, which changes nothing.
      STASH_NO_UNROLL
      for (std::int32_t k = taps.begin; k < taps.end; ++k) {
        STASH_UNROLL
        for (unsigned i = 0; i < lanes; ++i)
          found[i].see(at[i * threads], number);
        at = further(at, gap);
        number += slice_taps();
      }
      const std::uint32_t first_number = static_cast<std::uint32_t>(taps.begin) * slice_taps();
      STASH_UNROLL
      for (unsigned i = 0; i < lanes; ++i) {
        if (i > 0 && !has_lane(i)) break;
        const map_position<std::int32_t> o = of_lane(i);
        maxima<1> best{{found[i].rank}, {found[i].tap}};
        std::uint32_t first_tap = first_number + first_of_slice(i);
        if ((found[i].seen & walk_care) != 0)
          first_tap = find_maxima<Bits, 1>(job_, x_, job_.x_pitch, o, best);
        if (relu) rectify_maxima<Bits, 1>(job_, first_tap, best);
        each(pixel + static_cast<std::uint64_t>(o.x - o_.x), o.channel, element_of<Bits>(best.rank[0]),
             best.tap[0]);
      }
      pixel += pixel_step;
      slot += grid_.step;
      if (slot >= grid_.ring) slot -= grid_.ring;
    }
  }

 private:
  static constexpr unsigned lanes = walk_lanes;
  static constexpr std::int32_t threads = walk_threads, position = threads * static_cast<std::int32_t>(lanes);

  STASH_DEVICE bool has_lane(unsigned i) const {
    return grid_.by_columns
               ? o_.x + static_cast<std::int32_t>(i) < static_cast<std::int32_t>(job_.columns.out)
               : o_.channel + i < job_.channels;
  }
  /// Where the windows of a lane are.
  STASH_DEVICE map_position<std::int32_t> of_lane(unsigned i) const {
    map_position<std::int32_t> o = o_;
    if (!has_lane(i)) return of_last();
    if (grid_.by_columns) {
      o.x += static_cast<std::int32_t>(i);
    } else {
      o.channel += i;
    }
    return o;
  }
  STASH_DEVICE map_position<std::int32_t> of_last() const {
    map_position<std::int32_t> o = o_;
    if (grid_.by_columns) {
      o.x = static_cast<std::int32_t>(job_.columns.out) - 1;
    } else {
      o.channel = job_.channels - 1;
    }
    return o;
  }

  /// Of a window at one position.
  STASH_DEVICE std::uint32_t slice_taps() const {
    const auto columns = static_cast<std::uint32_t>(job_.columns.kernel);
    return Deep ? static_cast<std::uint32_t>(job_.rows.kernel) * columns : columns;
  }
  STASH_DEVICE std::uint32_t first_of_slice(unsigned i) const {
    return static_cast<std::uint32_t>(rows_.begin) * static_cast<std::uint32_t>(job_.columns.kernel) +
           begin_[i];
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

    STASH_DEVICE void see(const vector8& of_position, std::uint32_t number) {
      const float other = as_float(of_position.word[0]);
      const bool more = other > rank;
      seen |= of_position.word[1];
      rank = more ? other : rank;
      tap = more ? number + of_position.word[1] : tap;
    }
  };
  /// `gap` positions further in the ring.
  STASH_DEVICE const vector8* further(const vector8* at, std::int32_t gap) const {
    at += gap * position;
    return at >= ring_ + grid_.ring * position ? at - grid_.ring * position : at;
  }

  /// The maxima at a position of x.
  STASH_DEVICE void find(std::int32_t at, std::int32_t slot) {
    const std::uint64_t offset = static_cast<std::uint64_t>(at) * outer_step_;
    single_search<Bits> search[lanes];
    const Bits* row[lanes];
    STASH_UNROLL
    for (unsigned i = 0; i < lanes; ++i) {
      row[i] = first_tap_[i] + offset;
      search[i].begin(*row[i], 0);
    }
    std::uint32_t tap = 0;
    STASH_NO_UNROLL
    for (std::int32_t ky = rows_.begin; ky < rows_.end; ++ky) {
      see_row(search, row, tap);
      STASH_UNROLL
      for (unsigned i = 0; i < lanes; ++i)
        row[i] += row_step_;
      tap += static_cast<std::uint32_t>(job_.columns.kernel);
    }
    STASH_UNROLL
    for (unsigned i = 0; i < lanes; ++i) {
      const std::uint32_t care = search[i].needs_care() ? walk_care : 0U;
      ring_[slot * position + static_cast<std::int32_t>(i) * threads] = {
          {as_bits(search[i].best), (search[i].tap + first_of_slice(i)) | care}};
    }
  }
  /// Lets the taps of a row compete. Where a window has fewer in x than others, its last one is met again,
  /// which changes nothing. So lanes at a border do what the others do.
  STASH_DEVICE void see_row(single_search<Bits> (&search)[lanes], const Bits* const (&row)[lanes],
                            std::uint32_t tap) const {
    const Bits* from[lanes];
    STASH_UNROLL
    for (unsigned i = 0; i < lanes; ++i)
      from[i] = row[i];
    const auto kernel = static_cast<std::int32_t>(job_.columns.kernel);
    STASH_NO_UNROLL
    for (std::int32_t k = 1; k <= kernel; ++k, ++tap) {
      STASH_UNROLL
      for (unsigned i = 0; i < lanes; ++i) {
        search[i].see(*from[i], tap);
        from[i] += k < count_[i] ? x_step_ : 0;
      }
    }
  }

  const pool_job& job_;
  const walk_grid& grid_;
  const Bits* x_;
  vector8* ring_;  ///< for each position and lane, the maximum of a window's taps there: its bits, its number
  map_position<std::int32_t> o_;  ///< of the first lane; its pixel does not count
  std::int32_t first_;            ///< window of the part
  tap_range<std::int32_t> rows_;  ///< taps in x
  std::uint32_t begin_[lanes];    ///< the first tap in x of a row, and how many there are
  std::int32_t count_[lanes];
  std::uint64_t x_step_, row_step_, outer_step_;  ///< elements from tap to tap, and from position to position
  const Bits* first_tap_[lanes];                  ///< at position 0
};

/// pool_forward() for windows of 17 to 256 taps. Grid: threads for all columns of windows, and for the
/// padding of the plane.
template <class Bits, bool Deep>
STASH_KERNEL(walk_threads, tuning::walk_blocks)
pool_forward_walk(pool_job job, walk_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  STASH_SHARED(vector8, ring, tuning::walk_positions * walk_threads * walk_lanes);
  const std::uint64_t unit = block_rank() * walk_threads + thread_rank();
  if (unit == 0) report_planes(planes);
  if (unit >= grid.units) {
    const std::uint64_t at = job.y_units + (unit - grid.units);
    if (planes.index.data != nullptr && at < planes.index.bytes) planes.index.data[at] = 0;
    return;
  }
  window_walk<Bits, Deep> walk(job, grid, x, ring + thread_rank(), unit);
  walk.go(relu, [&](std::uint64_t pixel, std::uint64_t channel, Bits value, std::uint32_t tap) {
    static_cast<Bits*>(y)[pixel * job.y_pitch + channel] = value;
    if (planes.index.data != nullptr)
      planes.index.data[pixel * job.channels + channel] = static_cast<std::uint8_t>(tap);
  });
}

}  // namespace stash::kernels
