// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling with any windows, from codes or from x: a thread scatters. It has a tile of dx in one
/// channel of a sample, goes down it, and adds the gradient of each window that covers it to the sum of the
/// tap that the window chose, which lies in shared memory. It meets windows in row-major order, so sums have
/// the order of the definition, and nobody else writes them. What it does for a window does not depend on the
/// window's size. Sums of a position leave when no later window has it.

#include <cstdint>
#include <type_traits>

#include "common/instructions.hpp"
#include "pool/pool_argmax_rows.hpp"
#include "pool/pool_scatter_shape.hpp"

namespace stash::kernels {

using tuning::scatter_threads;

/// How dx is cut into tiles.
struct scatter_grid {
  divisor inners, middles, segments;  ///< tiles along the axes
  std::int32_t ring, middle, inner;   ///< scatter_shape
  std::int32_t outer;                 ///< positions of a segment
  std::uint64_t units;                ///< threads
};

/// For each code, where its tap lies from the first one: two words. The lower bytes of the first are
/// distances along the inner, the middle and the outer axis; the other is a distance in shared memory.
struct scatter_target {
  static constexpr unsigned codes = 256;
  static constexpr std::uint32_t corrupt = 0x80000000U;
  /// Of a code that names no tap: a distance that leads beyond every tile.
  static constexpr std::uint32_t none = corrupt | 0xff;
};

/// Targets of all codes, by all threads of a block.
template <bool Deep>
STASH_DEVICE void fill_targets(const pool_job& job, const scatter_grid& grid, vector8* targets) {
  const window_axis& outer = Deep ? job.depth : job.rows;
  const auto steps = [](const window_axis& a, std::uint32_t k) {
    return k * static_cast<std::uint32_t>(a.dilation);
  };
  const std::uint32_t row = static_cast<std::uint32_t>(grid.inner),
                      slot = row * static_cast<std::uint32_t>(grid.middle);
  STASH_NO_UNROLL
  for (std::uint32_t code = thread_rank(); code < scatter_target::codes; code += scatter_threads) {
    std::uint32_t rest = code;
    const std::uint32_t x = steps(job.columns, take_small_digit(rest, job.columns.by_kernel));
    const std::uint32_t y = Deep ? steps(job.rows, take_small_digit(rest, job.rows.by_kernel)) : 0;
    const std::uint32_t z = steps(outer, rest);
    const bool is_tap = rest < static_cast<std::uint32_t>(outer.kernel);
    const std::uint32_t bytes = (z * slot + y * row + x) * scatter_threads * sizeof(float);
    targets[code] = {{is_tap ? x | y << 8 | z << 16 : scatter_target::none, bytes}};
  }
}

/// Windows [first, last) of an axis that have a tap among so many positions from `begin` on.
STASH_DEVICE window_range<std::int32_t> windows_over(const window_axis& a, std::int32_t begin,
                                                     std::int32_t count) {
  return {windows_at<std::int32_t>(a, begin).first, windows_at<std::int32_t>(a, begin + count - 1).last};
}

/// A thread's tile.
template <class Bits, bool Deep, class Source>
class scatter_tile {
 public:
  STASH_DEVICE scatter_tile(const pool_job& job, const scatter_grid& grid, const void* dy,
                            const Source& source, void* dx, const vector8* targets, float* sums,
                            std::uint64_t unit)
      : job_(job),
        grid_(grid),
        source_(source),
        dy_(static_cast<const Bits*>(dy)),
        dx_(static_cast<Bits*>(dx)),
        targets_(targets),
        sums_(sums) {
    const auto digit = [&](const divisor& d, std::int32_t length) {
      return static_cast<std::int32_t>(take_digit(unit, d)) * length;
    };
    channel_ = take_digit(unit, job.by_units);
    inner_ = digit(grid.inners, grid.inner);
    middle_ = digit(grid.middles, grid.middle);
    begin_ = digit(grid.segments, grid.outer);
    sample_ = unit;
    const auto rest = [](const window_axis& a, std::int32_t from, std::int32_t most) {
      const std::int32_t left = static_cast<std::int32_t>(a.in) - from;
      return left < most ? left : most;
    };
    inners_ = rest(job.columns, inner_, grid.inner);
    middles_ = Deep ? rest(job.rows, middle_, grid.middle) : 1;
    end_ = begin_ + rest(outer(), begin_, grid.outer);
  }

  /// Whether a code is corrupt.
  STASH_DEVICE bool make() {
    STASH_NO_UNROLL
    for (std::int32_t i = 0; i < grid_.ring * middle_length() * grid_.inner; ++i)
      sums_[i * stride] = 0;
    const window_axis& a = outer();
    const auto over = windows_over(a, begin_, end_ - begin_);
    const auto inners = windows_over(job_.columns, inner_, inners_);
    const auto middles = Deep ? windows_over(job_.rows, middle_, middles_) : window_range<std::int32_t>{0, 1};
    at_ = over.first * static_cast<std::int32_t>(a.stride) - static_cast<std::int32_t>(a.pad);
    if (at_ > begin_) at_ = begin_;
    STASH_NO_UNROLL
    for (std::int32_t z = over.first; z < over.last; ++z) {
      leave(z * static_cast<std::int32_t>(a.stride) - static_cast<std::int32_t>(a.pad));
      STASH_NO_UNROLL
      for (std::int32_t y = middles.first; y < middles.last; ++y) {
        add_row(z, y, inners);
      }
    }
    leave(end_);
    return corrupt_ != 0;
  }

 private:
  static constexpr std::int32_t stride = scatter_threads;

  STASH_DEVICE std::int32_t middle_length() const { return Deep ? grid_.middle : 1; }
  STASH_DEVICE const window_axis& outer() const { return Deep ? job_.depth : job_.rows; }

  /// The position of an element of dx.
  STASH_DEVICE map_position<std::int32_t> element(std::int32_t z, std::int32_t y, std::int32_t x) const {
    map_position<std::int32_t> e;
    e.sample = sample_;
    e.channel = channel_;
    e.z = Deep ? z : 0;
    e.y = Deep ? y : z;
    e.x = x;
    e.pixel = pixel_of(e.z, e.y, x, job_.depth.in, job_.rows.in, job_.columns.in);
    return e;
  }
  STASH_DEVICE std::uint64_t pixel_of(std::int32_t z, std::int32_t y, std::int32_t x, std::int64_t depth,
                                      std::int64_t rows, std::int64_t columns) const {
    const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    return ((sample_ * length(depth) + length(z)) * length(rows) + length(y)) * length(columns) + length(x);
  }

  /// Sums of the positions before `until` leave. Those before the tile were other threads'.
  STASH_DEVICE void leave(std::int32_t until) {
    STASH_NO_UNROLL
    for (; at_ < until && at_ < end_; ++at_) {
      float* sum = sums_ + slot_ * middle_length() * grid_.inner * stride;
      STASH_NO_UNROLL
      for (std::int32_t y = 0; y < middle_length(); ++y, sum += grid_.inner * stride) {
        const bool there = at_ >= begin_ && y < middles_;
        leave_row(sum, there ? inners_ : 0, at_, middle_ + y);
      }
      if (++slot_ == grid_.ring) slot_ = 0;
    }
  }
  STASH_DEVICE void leave_row(float* sum, std::int32_t count, std::int32_t z, std::int32_t y) {
    Bits* const row = count > 0 ? dx_ + element(z, y, inner_).pixel * job_.x_pitch + channel_ : nullptr;
    Bits* to = row;
    bool numbers = true;
    for (std::int32_t x = 0; x < count; ++x, to += job_.x_pitch) {
      const float value = sum[x * stride];
      numbers = numbers && value == value;
      *to = result_from_f32<Bits>(value, job_.type);
    }
    for (std::int32_t x = 0; x < grid_.inner; ++x)
      sum[x * stride] = 0;
    if (!numbers) sum_with_care(row, count, z, y);
  }
  /// What is not a number in a row, once more by the way that keeps its bits.
  STASH_DEVICE void sum_with_care(Bits* to, std::int32_t count, std::int32_t z, std::int32_t y) const {
    STASH_NO_UNROLL
    for (std::int32_t x = 0; x < count; ++x, to += job_.x_pitch) {
      const float value = to_f32(*to, job_.type);
      if (value == value) continue;
      float sum[1] = {};
      gather<Bits, 1>(job_, dy_, source_, element(z, y, inner_ + x), sum);
      *to = result_from_f32<Bits>(sum[0], job_.type);
    }
  }

  /// Adds the gradients of a row of windows.
  STASH_DEVICE void add_row(std::int32_t z, std::int32_t y, const window_range<std::int32_t>& windows) {
    map_position<std::int32_t> o;
    o.sample = sample_;
    o.channel = channel_;
    o.z = Deep ? z : 0;
    o.y = Deep ? y : z;
    o.x = windows.first;
    o.pixel = pixel_of(o.z, o.y, o.x, job_.depth.out, job_.rows.out, job_.columns.out);
    // First taps.
    const auto origin = [](const window_axis& a, std::int32_t window) {
      return window * static_cast<std::int32_t>(a.stride) - static_cast<std::int32_t>(a.pad);
    };
    const std::int32_t outer_at = origin(outer(), z), middle_at = Deep ? origin(job_.rows, y) : 0;
    std::int32_t at = origin(job_.columns, o.x);
    // Left to itself, the compiler computes these for every window.
    const auto held = [](std::int32_t n) {
      return static_cast<std::int32_t>(anew(static_cast<std::uint32_t>(n)));
    };
    constexpr auto element_bytes = stride * static_cast<std::int32_t>(sizeof(float));
    const std::int32_t row_bytes = grid_.inner * element_bytes;
    const std::int32_t ring_bytes = held(grid_.ring * middle_length() * row_bytes);
    const std::int32_t step = held(static_cast<std::int32_t>(job_.columns.stride));
    std::int32_t bytes = (slot_ * middle_length() + (Deep ? middle_at - middle_ : 0)) * row_bytes +
                         (at - inner_) * element_bytes;
    const Bits* from = dy_ + o.pixel * job_.y_pitch + channel_;
    argmax_row<Bits, Source> argmaxes_of_row(job_, source_, o);
    STASH_NO_UNROLL
    for (; o.x < windows.last; ++o.x) {
      const argmaxes<1> w = argmaxes_of_row.next(o);
      const vector8 target = targets_[w.tap[0] & 0xff];
      const auto distance = [&](unsigned axis) { return target.word[0] >> 8 * axis & 0xff; };
      const std::uint32_t x = static_cast<std::uint32_t>(at) + distance(0);
      const std::uint32_t in_rows = Deep ? static_cast<std::uint32_t>(middle_at) + distance(1) : 0;
      const bool pass = w.pass != 0;
      if constexpr (std::is_base_of_v<encoded_argmaxes, Source>) {
        const std::uint32_t in_outer = static_cast<std::uint32_t>(outer_at) + distance(2);
        const auto outside = [](const window_axis& a, std::uint32_t position) {
          return position >= static_cast<std::uint32_t>(a.in) ? 1U : 0U;
        };
        const std::uint32_t anywhere = target.word[0] >> 31 | outside(job_.columns, x) |
                                       outside(outer(), in_outer) | (Deep ? outside(job_.rows, in_rows) : 0);
        corrupt_ |= pass || !source_.tap_needs_pass ? anywhere : 0;
      }
      const auto among = [](std::uint32_t position, std::int32_t first, std::int32_t count) {
        return position - static_cast<std::uint32_t>(first) < static_cast<std::uint32_t>(count);
      };
      if (pass && among(x, inner_, inners_) && (!Deep || among(in_rows, middle_, middles_))) {
        std::int32_t to = bytes + static_cast<std::int32_t>(target.word[1]);
        to -= to >= ring_bytes ? ring_bytes : 0;
        float& sum = *reinterpret_cast<float*>(reinterpret_cast<std::uint8_t*>(sums_) + to);
        sum += to_f32(*from, job_.type);
      }
      at += step;
      bytes += step * element_bytes;
      ++o.pixel;
      from += job_.y_pitch;
    }
  }

  const pool_job& job_;
  const scatter_grid& grid_;
  const Source& source_;
  const Bits* dy_;
  Bits* dx_;
  const vector8* targets_;
  float* sums_;
  std::uint64_t sample_, channel_;
  std::int32_t inner_, middle_, begin_;  ///< the tile's first element
  std::int32_t inners_, middles_, end_;  ///< how many there are, and the end of the segment
  std::int32_t at_, slot_ = 0;           ///< the first position that has not left, and where its sums are
  std::uint32_t corrupt_ = 0;
};

/// pool_backward() by scattering. Grid: threads for all tiles of dx. `Deep`: there are slices.
template <class Bits, bool Deep, class Source>
STASH_KERNEL(scatter_threads, tuning::scatter_blocks)
pool_backward_scatter(pool_job job, scatter_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  STASH_SHARED(vector8, targets, scatter_target::codes);
  STASH_SHARED(float, sums, tuning::scatter_values* scatter_threads);
  fill_targets<Deep>(job, grid, targets);
  sync_block();
  const std::uint64_t unit = block_rank() * scatter_threads + thread_rank();
  if (unit >= grid.units) return;
  scatter_tile<Bits, Deep, Source> tile(job, grid, dy, source, dx, targets, sums + thread_rank(), unit);
  const bool corrupt = tile.make();
  if constexpr (std::is_base_of_v<encoded_argmaxes, Source>) {
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
}

}  // namespace stash::kernels
