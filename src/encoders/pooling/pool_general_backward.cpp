// SPDX-License-Identifier: Apache-2.0
#include "encoders/pooling/pool_general_backward.hpp"

#include <limits>

namespace stash::encoders {
namespace {

constexpr std::int64_t parts(std::int64_t whole, std::int64_t part) noexcept {
  return (whole - 1) / part + 1;
}

/// Takes the last digit of a number whose digits have different bases.
std::int64_t take_digit(std::int64_t& number, std::int64_t base) noexcept {
  const std::int64_t digit = number % base;
  number /= base;
  return digit;
}

}  // namespace

gradient_blocks::gradient_blocks(const general_shape& s) noexcept : shape_(&s) {
  const general_axis& c = s.columns;
  channels_ = std::min(s.channels, block_channels);
  // With strides as long as that there are so few windows that they may be looked at one by one.
  constexpr std::int64_t most_phases = block_elements / block_channels;
  phases_ = c.stride <= most_phases ? c.stride : 1;
  first_step_ = c.pad / phases_;
  last_step_ = (c.in - 1 + c.pad) / phases_ + 1;
  // Where windows overlap, those at a block's edge are looked at twice: a block is high as well as wide.
  constexpr std::int64_t target_rows = 8;
  std::int64_t space = block_elements / (phases_ * channels_);
  steps_ = std::clamp<std::int64_t>(space / std::min(s.rows.in, target_rows), 1, last_step_ - first_step_);
  space /= steps_;
  rows_ = std::min(s.rows.in, space);
  slices_ = std::min(s.depth.in, space / rows_);
}

std::int64_t gradient_blocks::count() const noexcept {
  return shape_->samples * parts(shape_->depth.in, slices_) * parts(shape_->rows.in, rows_) *
         parts(last_step_ - first_step_, steps_) * parts(shape_->channels, channels_);
}

gradient_block gradient_blocks::at(std::int64_t i) const noexcept {
  gradient_block b;
  b.channel = take_digit(i, parts(shape_->channels, channels_)) * channels_;
  b.channels = std::min(channels_, shape_->channels - b.channel);
  b.step_begin = first_step_ + take_digit(i, parts(last_step_ - first_step_, steps_)) * steps_;
  b.step_end = std::min(last_step_, b.step_begin + steps_);
  b.y_begin = take_digit(i, parts(shape_->rows.in, rows_)) * rows_;
  b.y_end = std::min(shape_->rows.in, b.y_begin + rows_);
  b.z_begin = take_digit(i, parts(shape_->depth.in, slices_)) * slices_;
  b.z_end = std::min(shape_->depth.in, b.z_begin + slices_);
  b.sample = i;
  return b;
}

block_sums::block_sums(const general_shape& s, std::int64_t phases) noexcept
    : shape_(&s), phases_(phases), window_steps_(s.columns.stride / phases) {
  for (std::int64_t kx = 0; kx < s.columns.kernel; ++kx) {
    step_of_[static_cast<std::size_t>(kx)] = kx * s.columns.dilation / phases_;
    phase_of_[static_cast<std::size_t>(kx)] = kx * s.columns.dilation % phases_;
  }
}

void block_sums::start(const gradient_block& b) noexcept {
  block_ = b;
  phase_length_ = (b.step_end - b.step_begin) * b.channels;
  row_length_ = phases_ * phase_length_;
  slice_length_ = (b.y_end - b.y_begin) * row_length_;
  std::fill_n(sums_.data(), (b.z_end - b.z_begin) * slice_length_, 0.0F);
}

bool block_sums::reached_by(const pooled_run& run) const noexcept {
  for (std::int64_t kx = 0; kx < shape_->columns.kernel; ++kx) {
    const std::int64_t step = run.ox * window_steps_ + step_of_[static_cast<std::size_t>(kx)];
    if (step < block_.step_end && step + run.pixels > block_.step_begin) return true;
  }
  return false;
}

bool block_sums::any_outside(const pooled_run& run, const run_taps& argmaxes) const noexcept {
  const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
  const std::int64_t count = run.count(), taps = shape_->taps();
  const auto names_tap = [&](std::uint8_t tap) { return !argmaxes.codes || tap != no_gradient_code; };
  std::uint8_t highest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const int counts = -static_cast<int>(names_tap(argmaxes.taps[i]));
    highest = std::max(highest, static_cast<std::uint8_t>(argmaxes.taps[i] & counts));
  }
  if (highest >= taps) return true;
  const bool whole_rows = d.last_tap(run.oz) - d.first_tap(run.oz) == d.kernel &&
                          r.last_tap(run.oy) - r.first_tap(run.oy) == r.kernel;
  for (std::int64_t p = 0; p < run.pixels; ++p) {
    const std::int64_t ox = run.ox + p;
    if (whole_rows && ox >= c.first_whole() && ox < c.last_whole()) {
      p = std::min(run.pixels, c.last_whole() - run.ox) - 1;
      continue;
    }
    for (std::int64_t i = p * run.channels; i < (p + 1) * run.channels; ++i) {
      if (!names_tap(argmaxes.taps[i])) continue;
      const auto kernel_w = static_cast<std::uint32_t>(c.kernel);
      const auto kernel_h = static_cast<std::uint32_t>(r.kernel);
      const std::uint32_t row = argmaxes.taps[i] / kernel_w;
      const std::int64_t kx = argmaxes.taps[i] % kernel_w, ky = row % kernel_h, kz = row / kernel_h;
      if (kx < c.first_tap(ox) || kx >= c.last_tap(ox) || ky < r.first_tap(run.oy) ||
          ky >= r.last_tap(run.oy) || kz < d.first_tap(run.oz) || kz >= d.last_tap(run.oz)) {
        return true;
      }
    }
  }
  return false;
}

bool block_sums::add(const pooled_run& run, const run_taps& argmaxes, const const_tensor_view& dy) noexcept {
  const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
  const std::int64_t count = run.count();
  float copy[run_elements], passing[run_elements];
  const float* gradient = read_values(dy, run.first, count, copy);
  if (argmaxes.passes != nullptr) {
    loops().keep(gradient, argmaxes.passes, count, passing, destination::caches);
    gradient = passing;
  }
  const std::int64_t y_first = r.tap_from(run.oy, block_.y_begin);
  const std::int64_t y_last = r.tap_from(run.oy, block_.y_end);
  const std::int64_t y = r.origin(run.oy) + y_first * r.dilation - block_.y_begin;
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const auto scatter = loops().scatter;
  for (std::int64_t kz = d.tap_from(run.oz, block_.z_begin); kz < d.tap_from(run.oz, block_.z_end); ++kz) {
    const std::int64_t z = d.origin(run.oz) + kz * d.dilation - block_.z_begin;
    float* rows = sums_.data() + z * slice_length_ + y * row_length_;
    window_taps w{kz * r.kernel + y_first,
                  kz * r.kernel + y_last,
                  0,
                  c.kernel,
                  c.kernel,
                  static_cast<std::ptrdiff_t>(r.dilation * row_length_),
                  static_cast<std::ptrdiff_t>(c.dilation * phase_length_)};
    if (window_steps_ == 1 && c.reach() < phases_) {
      // Every tap has a phase of its own.
      scatter(gradient, argmaxes.taps, count, w, {1, 0, 0, {never, never}},
              rows + (run.ox - block_.step_begin) * run.channels, destination::caches);
      continue;
    }
    // A position's windows in row-major order have falling taps.
    for (std::int64_t kx = c.kernel - 1; kx >= 0; --kx) {
      const std::int64_t step = run.ox * window_steps_ + step_of_[static_cast<std::size_t>(kx)];
      const std::int64_t begin = std::max<std::int64_t>(0, block_.step_begin - step);
      const std::int64_t end = std::min(run.pixels, block_.step_end - step);
      if (begin >= end) continue;
      w.x_begin = kx;
      w.x_end = kx + 1;
      const std::int64_t skipped = begin * run.channels;
      scatter(gradient + skipped, argmaxes.taps + skipped, (end - begin) * run.channels, w,
              {1, 0, 0, {never, never}},
              rows + phase_of_[static_cast<std::size_t>(kx)] * phase_length_ +
                  (step + begin - block_.step_begin) * run.channels,
              destination::caches);
    }
  }
  return any_outside(run, argmaxes);
}

/// Puts positions [begin, end) of a row of sums into memory order.
void block_sums::write_positions(std::int64_t begin, std::int64_t end, const float* row,
                                 float* to) const noexcept {
  const std::int64_t pad = shape_->columns.pad, channels = block_.channels;
  for (std::int64_t phase = 0; phase < phases_; ++phase) {
    const std::int64_t first = (begin + pad - phase + phases_ - 1) / phases_;
    const std::int64_t last = (end + pad - phase + phases_ - 1) / phases_;
    const float* from = row + phase * phase_length_ + (first - block_.step_begin) * channels;
    float* target = to + (first * phases_ + phase - pad - begin) * channels;
    if (phases_ == 1) {
      std::memcpy(target, from, static_cast<std::size_t>((last - first) * channels) * sizeof(float));
    } else if (channels == 1 && phases_ == 2) {
      for (std::int64_t i = 0; i < last - first; ++i)
        target[2 * i] = from[i];
    } else {
      for (std::int64_t i = 0; i < last - first; ++i) {
        for (std::int64_t k = 0; k < channels; ++k)
          target[i * phases_ * channels + k] = from[i * channels + k];
      }
    }
  }
}

void block_sums::write(const tensor_view& dx) const noexcept {
  const general_axis& c = shape_->columns;
  const std::int64_t begin = std::max<std::int64_t>(0, block_.step_begin * phases_ - c.pad);
  const std::int64_t end = std::min(c.in, block_.step_end * phases_ - c.pad);
  const std::int64_t most =
      block_.channels == shape_->channels ? run_elements / block_.channels : std::int64_t{1};
  alignas(run_alignment) float buffer[run_elements];
  for (std::int64_t z = block_.z_begin; z < block_.z_end; ++z) {
    for (std::int64_t y = block_.y_begin; y < block_.y_end; ++y) {
      const float* row =
          sums_.data() + (z - block_.z_begin) * slice_length_ + (y - block_.y_begin) * row_length_;
      const std::int64_t first_pixel = ((block_.sample * shape_->depth.in + z) * shape_->rows.in + y) * c.in;
      for (std::int64_t x = begin; x < end; x += most) {
        const std::int64_t pixels = std::min(most, end - x);
        const std::int64_t first = (first_pixel + x) * shape_->channels + block_.channel;
        float* target = value_target(dx, first, buffer);
        write_positions(x, x + pixels, row, target);
        write_values(dx, first, pixels * block_.channels, target, rounding::result);
      }
    }
  }
}

}  // namespace stash::encoders
