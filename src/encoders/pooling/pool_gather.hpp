// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling of windows that overlap a little, in maps that are larger than the caches: every
/// pixel of dx gathers what the windows over it send, in row-major order of the windows. So an element is
/// summed in a register and written once, past the caches. Adding to dx in memory, window by window,
/// took 1.25 to 1.4 times as long for windows of 3x3 with stride 2 (backward_way_of() says where it is the
/// faster way).

#include <algorithm>
#include <array>
#include <cstdint>

#include "encoders/pooling/pool_loops.hpp"

namespace stash::encoders {

/// The windows of a part of the columns and channels, in the pooled rows that one row of dx needs.
class pooled_rows {
 public:
  /// `rows` pooled rows are needed at once.
  pooled_rows(const pool_shape& s, const const_tensor_view& dy, std::int64_t rows) noexcept
      : shape_(&s), dy_(dy), rows_(rows) {}

  /// Most pooled values of a row.
  std::int64_t row_capacity() const noexcept { return capacity / rows_; }

  /// Channels [channel, channel + channels) of windows [begin, end) of a sample; no row is there yet.
  void start(std::int64_t sample, std::int64_t channel, std::int64_t channels, std::int64_t begin,
             std::int64_t end) noexcept {
    sample_ = sample;
    channel_ = channel;
    channels_ = channels;
    begin_ = begin;
    end_ = end;
  }

  /// Makes pooled row `oy` available in place of the oldest one, and sets status_corrupt if a tap of it is
  /// none of its window's or outside x.
  template <class Source>
  void load(std::int64_t oy, Source& source, run_buffers& buffers, std::uint32_t& status) noexcept {
    const std::int64_t most =
        channels_ == shape_->channels ? std::max<std::int64_t>(1, run_elements / channels_) : 1;
    for (std::int64_t ox = begin_; ox < end_; ox += most) {
      pooled_run run{sample_, oy, ox, channel_, std::min(most, end_ - ox), channels_, 0};
      run.first = run.pixel(*shape_) * shape_->channels + channel_;
      const run_taps argmaxes = source.load(run, buffers);
      if (any_wrong(*shape_, run, argmaxes)) status |= status_corrupt;
      float* const listed = taps_.data() + index_of(oy, ox);
      loops().list_taps(argmaxes.taps, run.count(), listed);
      if (argmaxes.passes != nullptr)
        loops().keep(listed, argmaxes.passes, run.count(), listed, destination::caches);
    }
  }

  /// Window (oy, ox), whose tap `tap` is a pixel of dx.
  reaching_window window(std::int64_t oy, std::int64_t ox, std::int64_t tap) const noexcept {
    return {gradient(oy, ox), taps_.data() + index_of(oy, ox), static_cast<std::int32_t>(tap) + 1};
  }
  /// Gradients of window (oy, ox), which need not be there yet; any if there is no such window.
  const float* fetched(std::int64_t oy, std::int64_t ox) const noexcept {
    return oy < shape_->rows.out && ox < shape_->columns.out ? gradient(oy, ox) : dy_.as<float>();
  }

 private:
  static constexpr std::int64_t capacity = 8192;

  const float* gradient(std::int64_t oy, std::int64_t ox) const noexcept {
    const std::int64_t pixel = (sample_ * shape_->rows.out + oy) * shape_->columns.out + ox;
    return dy_.as<float>() + pixel * dy_.pitch() + channel_;
  }

  std::int64_t index_of(std::int64_t oy, std::int64_t ox) const noexcept {
    return oy % rows_ * row_capacity() + (ox - begin_) * channels_;
  }

  const pool_shape* shape_;
  const const_tensor_view& dy_;
  std::int64_t rows_;
  std::int64_t sample_ = 0, channel_ = 0, channels_ = 0, begin_ = 0, end_ = 0;
  alignas(run_alignment) std::array<float, capacity> taps_;  ///< as gather() reads them
};

/// Rows of dx, part by part. Along a row, position + padding = step * stride + phase: the positions of a
/// step are reached by the window of this number and by those before it.
class gathered_gradient {
 public:
  gathered_gradient(const pool_shape& s, const const_tensor_view& dy, const tensor_view& dx,
                    destination where) noexcept
      : shape_(&s),
        dy_(dy),
        dx_(dx),
        where_(where),
        before_((s.columns.kernel - 1) / s.columns.stride),
        windows_(s, dy, (s.rows.kernel - 1) / s.rows.stride + 1) {
    // The windows before a part are looked at twice.
    constexpr std::int64_t least_channels = 16, most_channels = 256;
    const std::int64_t target =
        windows_.row_capacity() / (8 * (before_ + 1)) / least_channels * least_channels;
    channels_ = std::min(s.channels, std::clamp(target, least_channels, most_channels));
    steps_ = std::max<std::int64_t>(1, windows_.row_capacity() / channels_ - before_);
  }

  /// Writes rows [row_begin, row_end) of a sample.
  template <class Source>
  void write(std::int64_t sample, std::int64_t row_begin, std::int64_t row_end, Source& source,
             std::uint32_t& status) noexcept {
    const pool_axis& c = shape_->columns;
    const std::int64_t first = c.pad / c.stride, last = (c.in - 1 + c.pad) / c.stride + 1;
    for (std::int64_t channel = 0; channel < shape_->channels; channel += channels_) {
      const std::int64_t channels = std::min(channels_, shape_->channels - channel);
      for (std::int64_t step = first; step < last; step += steps_) {
        const std::int64_t end = std::min(last, step + steps_);
        windows_.start(sample, channel, channels, std::max<std::int64_t>(0, step - before_),
                       std::min(c.out, end));
        std::int64_t next = shape_->rows.first_window(row_begin);
        for (std::int64_t iy = row_begin; iy < row_end; ++iy) {
          for (; next < shape_->rows.last_window(iy); ++next)
            windows_.load(next, source, buffers_, status);
          float* row = dx_.as<float>() + (sample * shape_->rows.in + iy) * c.in * dx_.pitch() + channel;
          write_row(iy, step, end, channels, row);
        }
      }
    }
  }

 private:
  void write_row(std::int64_t iy, std::int64_t begin, std::int64_t end, std::int64_t channels,
                 float* row) noexcept {
    const pool_axis& c = shape_->columns;
    // Steps whose positions and windows are all there.
    const std::int64_t whole_begin =
        std::clamp(std::max(before_, (c.pad + c.stride - 1) / c.stride), begin, end);
    const std::int64_t whole_end = std::clamp(std::min(c.out, (c.in + c.pad) / c.stride), whole_begin, end);
    for (std::int64_t step = begin; step < whole_begin; ++step)
      write_step(iy, step, channels, row);
    if (whole_begin < whole_end) write_steps(iy, whole_begin, whole_end - whole_begin, channels, row);
    for (std::int64_t step = whole_end; step < end; ++step)
      write_step(iy, step, channels, row);
  }

  /// `steps` whole steps.
  void write_steps(std::int64_t iy, std::int64_t step, std::int64_t steps, std::int64_t channels,
                   float* row) noexcept {
    const pool_axis& c = shape_->columns;
    const auto step_pitch = static_cast<std::ptrdiff_t>(c.stride * dx_.pitch());
    for (std::int64_t first = 0; first < c.stride; first += most_phases) {
      const std::int64_t phases = std::min(most_phases, c.stride - first);
      std::int64_t reaching = 0;
      for (std::int64_t p = 0; p < phases; ++p)
        counts_[static_cast<std::size_t>(p)] = find_windows(iy, step, first + p, reaching);
      gather(phases, steps, step_pitch, channels, windows_.fetched(shape_->rows.last_window(iy), step),
             row + (c.origin(step) + first) * dx_.pitch());
    }
  }

  /// The positions of one step, of which some lie outside x or are reached by fewer windows.
  void write_step(std::int64_t iy, std::int64_t step, std::int64_t channels, float* row) noexcept {
    const pool_axis& c = shape_->columns;
    const std::int64_t origin = c.origin(step);
    for (std::int64_t x = std::max<std::int64_t>(0, origin); x < std::min(c.in, origin + c.stride); ++x) {
      std::int64_t reaching = 0;
      counts_[0] = find_windows(iy, step, x - origin, reaching);
      gather(1, 1, 0, channels, windows_.fetched(shape_->rows.last_window(iy), step), row + x * dx_.pitch());
    }
  }

  /// Appends the windows that reach a position in row-major order, and returns how many there are.
  std::int64_t find_windows(std::int64_t iy, std::int64_t step, std::int64_t phase,
                            std::int64_t& reaching) noexcept {
    const pool_axis &r = shape_->rows, &c = shape_->columns;
    if (phase >= c.kernel) return 0;
    const std::int64_t before = reaching;
    for (std::int64_t oy = r.first_window(iy); oy < r.last_window(iy); ++oy) {
      for (std::int64_t j = (c.kernel - 1 - phase) / c.stride; j >= 0; --j) {
        if (step - j < 0 || step - j >= c.out) continue;
        const std::int64_t tap = (iy - r.origin(oy)) * c.kernel + phase + j * c.stride;
        reaching_[static_cast<std::size_t>(reaching++)] = windows_.window(oy, step - j, tap);
      }
    }
    return reaching - before;
  }

  void gather(std::int64_t phases, std::int64_t steps, std::ptrdiff_t step_pitch, std::int64_t channels,
              const float* fetched, float* dx) const noexcept {
    loops().gather(
        {reaching_.data(), counts_.data(), phases, steps, fetched, static_cast<std::ptrdiff_t>(dy_.pitch()),
         channels, static_cast<std::ptrdiff_t>(dx_.pitch()), step_pitch},
        channels, dx, where_);
  }

  /// Windows that are listed at once have different taps there, of which there are at most 256.
  static constexpr std::int64_t most_reaching = 256, most_phases = 256;

  const pool_shape* shape_;
  const const_tensor_view& dy_;
  const tensor_view& dx_;
  destination where_;
  std::int64_t before_;            ///< windows before a step that reach it
  std::int64_t channels_, steps_;  ///< of a part
  std::array<reaching_window, most_reaching> reaching_;
  std::array<std::int64_t, most_phases> counts_;
  run_buffers buffers_;
  pooled_rows windows_;
};

}  // namespace stash::encoders
