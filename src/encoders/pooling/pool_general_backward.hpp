// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward of pool_general.hpp. dx is cut into blocks whose f32 sums lie on the stack; a block looks at all
/// windows that reach it, in row-major order. So every element is summed by one thread, in one order, and
/// 16-bit sums are rounded once.

#include <array>
#include <cstdint>

#include "encoders/pooling/pool_general.hpp"

namespace stash::encoders {

/// A box of dx. Along a row, position + padding = step * phases + phase, and a block has whole steps.
struct gradient_block {
  std::int64_t sample = 0, channel = 0, channels = 0;
  std::int64_t z_begin = 0, z_end = 0, y_begin = 0, y_end = 0, step_begin = 0, step_end = 0;
};

/// The blocks of a dx that has elements.
class gradient_blocks {
 public:
  explicit gradient_blocks(const general_shape& s) noexcept;

  std::int64_t count() const noexcept;
  gradient_block at(std::int64_t i) const noexcept;
  std::int64_t phases() const noexcept { return phases_; }

  /// Most elements of a block.
  static constexpr std::int64_t block_elements = 8192;
  static constexpr std::int64_t block_channels = 128;

 private:
  const general_shape* shape_;
  std::int64_t phases_, first_step_, last_step_;
  std::int64_t channels_, steps_, rows_, slices_;  ///< of a block
};

/// The sums of one block. Positions with the same phase are contiguous, because that is how the windows
/// of a row reach them: windows in a row send to positions in a row.
class block_sums {
 public:
  block_sums(const general_shape& s, std::int64_t phases) noexcept;

  /// Sets all sums of a block to +0.
  void start(const gradient_block& b) noexcept;

  /// Calls visit(run) for runs of pooled values that hold all that the block needs, in row-major order of
  /// the windows.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const general_axis &d = shape_->depth, &r = shape_->rows;
    for (std::int64_t oz = d.first_window(block_.z_begin); oz < d.last_window(block_.z_end); ++oz) {
      if (d.tap_from(oz, block_.z_begin) == d.tap_from(oz, block_.z_end)) continue;
      for (std::int64_t oy = r.first_window(block_.y_begin); oy < r.last_window(block_.y_end); ++oy) {
        if (r.tap_from(oy, block_.y_begin) == r.tap_from(oy, block_.y_end)) continue;
        for_each_run_of_row(oz, oy, visit);
      }
    }
  }

  /// Adds the gradients of a run. Returns whether a tap that counts is none of its window's or outside x.
  bool add(const pooled_run& run, const run_taps& argmaxes, const const_tensor_view& dy) noexcept;

  /// Writes the sums to dx.
  void write(const tensor_view& dx) const noexcept;

 private:
  template <class Visit>
  void for_each_run_of_row(std::int64_t oz, std::int64_t oy, const Visit& visit) const {
    const std::int64_t last = std::min(shape_->columns.out, (block_.step_end - 1) / window_steps_ + 1);
    const std::int64_t distance = block_.step_begin - step_of_[last_column()];
    std::int64_t ox = distance <= 0 ? 0 : (distance - 1) / window_steps_ + 1;
    while (ox < last) {
      pooled_run run{block_.sample, oy, ox, block_.channel, 1, block_.channels, 0, oz};
      if (window_steps_ == 1 && block_.channels == shape_->channels)
        run.pixels = std::min(last - ox, run_elements / block_.channels);
      run.first = shape_->pixel(run) * shape_->channels + block_.channel;
      if (reached_by(run)) visit(run);
      ox += run.pixels;
    }
  }

  std::size_t last_column() const noexcept { return static_cast<std::size_t>(shape_->columns.kernel - 1); }
  bool reached_by(const pooled_run& run) const noexcept;
  bool any_outside(const pooled_run& run, const run_taps& argmaxes) const noexcept;
  void write_positions(std::int64_t begin, std::int64_t end, const float* row, float* to) const noexcept;

  const general_shape* shape_;
  std::int64_t phases_;
  std::int64_t window_steps_;  ///< between two windows of a row
  gradient_block block_;
  std::int64_t phase_length_ = 0, row_length_ = 0, slice_length_ = 0;
  /// Where tap kx of window 0 of a row lies; a window has at most 256 taps.
  std::array<std::int64_t, 256> step_of_, phase_of_;
  std::array<float, gradient_blocks::block_elements> sums_;
};

/// Backward with argmaxes from `source`, as pool_backward().
template <class Source>
void general_pool_backward(const general_shape& s, const const_tensor_view& dy, const Source& source,
                           const tensor_view& dx, std::uint32_t& status, const execution_context& context) {
  if (dx.elements() == 0) return;
  const gradient_blocks blocks(s);
  constexpr std::int64_t grain = 4;
  parallel_for(context, blocks.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    Source own = source;
    run_buffers buffers;
    block_sums sums(s, blocks.phases());
    bool outside = false;
    for (std::int64_t i = begin; i < end; ++i) {
      sums.start(blocks.at(i));
      sums.for_each_run([&](const pooled_run& run) { outside |= sums.add(run, own.load(run, buffers), dy); });
      sums.write(dx);
    }
    if (outside) or_bits(status, status_corrupt);
  });
}

}  // namespace stash::encoders
