// SPDX-License-Identifier: Apache-2.0
#include "encoders/pooling/pool_general.hpp"

#include <fmt/format.h>

#include <numeric>

namespace stash::encoders {
namespace {

/// True if windows [0, axis.out), none of which starts past x, have a tap in x each.
bool all_reach_x(const general_axis& axis) noexcept {
  const auto reaches = [&](std::int64_t window) { return axis.first_tap(window) < axis.last_tap(window); };
  if (!reaches(0)) return false;
  // Taps before x are followed by one in x, unless the dilation steps over all of it. Where it may, what
  // happens repeats with the remainders of the windows' origins.
  if (axis.in >= axis.dilation) return true;
  const std::int64_t before = std::min(axis.out, axis.first_whole());
  const std::int64_t period = axis.dilation / std::gcd(axis.dilation, axis.stride);
  for (std::int64_t window = 1; window < std::min(before, period); ++window) {
    if (!reaches(window)) return false;
  }
  return true;
}

void check_general_axis(std::string_view function, std::string_view name, const general_axis& axis) {
  const auto bad = [&](std::string_view expected) {
    fail(errc::invalid_argument, function, "window", fmt::format("{} with {}", name, expected),
         fmt::format("kernel {}, stride {}, padding {}, dilation {} for {} -> {}", axis.kernel, axis.stride,
                     axis.pad, axis.dilation, axis.in, axis.out));
  };
  if (axis.kernel < 1 || axis.stride < 1 || axis.pad < 0 || axis.dilation < 1)
    bad("kernel, stride and dilation above 0 and padding not below 0");
  if (axis.out == 0) return;
  // Divided, because the product may overflow.
  const bool starts_past_x = axis.in == 0 || axis.out - 1 > (axis.in - 1 + axis.pad) / axis.stride;
  if (starts_past_x || !all_reach_x(axis)) bad("at least one tap of x in every window");
}

/// `pixels` runs of `channels` values, one every `step` values.
template <class T>
void gather(const T* from, std::int64_t step, std::int64_t pixels, std::int64_t channels, T* to) noexcept {
  if (step == channels || pixels == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(pixels * channels) * sizeof(T));
  } else if (channels == 1 && step == 2) {
    for (std::int64_t p = 0; p < pixels; ++p)
      to[p] = from[2 * p];
  } else if (channels == 1) {
    for (std::int64_t p = 0; p < pixels; ++p)
      to[p] = from[p * step];
  } else {
    for (std::int64_t p = 0; p < pixels; ++p, from += step, to += channels)
      std::memcpy(to, from, static_cast<std::size_t>(channels) * sizeof(T));
  }
}

void gather_values(const const_tensor_view& x, std::int64_t offset, std::int64_t step, std::int64_t pixels,
                   std::int64_t channels, float* to) noexcept {
  if (x.type == dtype::f32) return gather(x.as<float>() + offset, step, pixels, channels, to);
  const std::uint16_t* from = x.as<std::uint16_t>() + offset;
  if (step == channels || pixels == 1) return widen_exactly(x.type, from, pixels * channels, to);
  alignas(run_alignment) std::uint16_t narrow[run_elements];
  gather(from, step, pixels, channels, narrow);
  widen_exactly(x.type, narrow, pixels * channels, to);
}

/// Taps of a window that a copy holds at a time, and its size.
constexpr std::int64_t copied_taps = 256;
constexpr std::int64_t copied_values = 8192;
/// Keeps the taps of one value from falling into one set of the cache.
constexpr std::int64_t copy_skew = 16;

}  // namespace

bool is_general(const pool_window& w, const const_tensor_view& x) noexcept {
  return x.type != dtype::f32 || x.dims.rank() != 4 || w.layout != pool_layout::channels_last ||
         w.kernel_d != 1 || w.stride_d != 1 || w.pad_front != 0 || w.dilation_d != 1 || w.dilation_h != 1 ||
         w.dilation_w != 1;
}

general_shape check_pool_shapes(std::string_view function, std::string_view x_name, const shape& x,
                                std::string_view y_name, const shape& y, const pool_window& window) {
  const int rank = x.rank();
  if (rank != 4 && rank != 5) {
    fail(errc::invalid_argument, function, x_name, "4 or 5 dimensions", fmt::format("{}", rank));
  }
  if (y.rank() != rank) {
    fail(errc::invalid_argument, function, y_name, fmt::format("{} dimensions as {}", rank, x_name),
         fmt::format("{}", y.rank()));
  }
  if (window.layout != pool_layout::channels_last && window.layout != pool_layout::channels_first) {
    fail(errc::invalid_argument, function, "window", "a known layout",
         fmt::format("{}", static_cast<unsigned>(window.layout)));
  }
  if (rank == 4 && (window.kernel_d != 1 || window.stride_d != 1 || window.pad_front != 0)) {
    fail(errc::invalid_argument, function, "window", "no depth with 4 dimensions",
         fmt::format("kernel {}, stride {}, padding {}", window.kernel_d, window.stride_d, window.pad_front));
  }
  const bool first = window.layout == pool_layout::channels_first;
  const int channel = first ? 1 : rank - 1;
  const int space = first ? 2 : 1;
  if (x[0] != y[0] || x[channel] != y[channel]) {
    fail(errc::invalid_argument, function, y_name,
         fmt::format("{} samples and {} channels as in {}", x[0], x[channel], x_name),
         fmt::format("{} and {}", y[0], y[channel]));
  }
  general_shape s;
  s.samples = first ? x[0] * x[1] : x[0];
  s.channels = first ? 1 : x[channel];
  s.channels_first = first;
  const int rows = space + (rank == 5 ? 1 : 0);
  if (rank == 5) {
    s.depth = {x[space], y[space], window.kernel_d, window.stride_d, window.pad_front, window.dilation_d};
  } else {
    s.depth.dilation = window.dilation_d;
  }
  s.rows = {x[rows], y[rows], window.kernel_h, window.stride_h, window.pad_top, window.dilation_h};
  s.columns = {x[rows + 1],     y[rows + 1],     window.kernel_w,
               window.stride_w, window.pad_left, window.dilation_w};
  check_general_axis(function, "depth", s.depth);
  check_general_axis(function, "height", s.rows);
  check_general_axis(function, "width", s.columns);
  return s;
}

general_shape check_general_pool(std::string_view function, std::string_view x_name,
                                 const const_tensor_view& x, std::string_view y_name,
                                 const const_tensor_view& y, const pool_window& window, memory_space where) {
  check_float_view(function, x_name, x, where);
  check_view(function, y_name, y, x.type, where);
  const general_shape s = check_pool_shapes(function, x_name, x.dims, y_name, y.dims, window);
  check_pool_pitch(function, x_name, x, window);
  check_pool_pitch(function, y_name, y, window);
  return s;
}

std::int64_t window_search::offset(const pooled_run& run, std::int64_t kz, std::int64_t ky,
                                   std::int64_t kx) const noexcept {
  const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
  const std::int64_t z = d.origin(run.oz) + kz * d.dilation;
  const std::int64_t y = r.origin(run.oy) + ky * r.dilation;
  const std::int64_t x = c.origin(run.ox) + kx * c.dilation;
  return (((run.sample * d.in + z) * r.in + y) * c.in + x) * pitch_ + run.channel;
}

void window_search::find(const pooled_run& run, float* best, std::uint8_t* taps) const noexcept {
  const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
  box b{d.first_tap(run.oz), d.last_tap(run.oz), r.first_tap(run.oy), r.last_tap(run.oy), 0, 0};
  // Shorter runs are not worth a call per window.
  constexpr std::int64_t in_place_channels = 8;
  const bool in_place =
      x_.type == dtype::f32 && b.z_end - b.z_begin == 1 && run.channels >= in_place_channels;
  const std::int64_t end = run.ox + run.pixels;
  pooled_run part = run;
  for (; part.ox < end; part.ox += part.pixels) {
    const bool whole = part.ox >= c.first_whole() && part.ox < c.last_whole();
    part.pixels = whole ? std::min(end, c.last_whole()) - part.ox : 1;
    b.x_begin = c.first_tap(part.ox);
    b.x_end = c.last_tap(part.ox);
    const std::int64_t done = (part.ox - run.ox) * run.channels;
    std::uint8_t* part_taps = taps == nullptr ? nullptr : taps + done;
    if (in_place) {
      find_in_place(part, b, best + done, part_taps);
    } else {
      find_in_copies(part, b, best + done, part_taps);
    }
  }
}

/// One slice of f32 lies in memory as the inner loops want it.
void window_search::find_in_place(const pooled_run& run, const box& b, float* best,
                                  std::uint8_t* taps) const noexcept {
  const general_axis &r = shape_->rows, &c = shape_->columns;
  // Numbers of taps, which nobody reads without `taps`, may overflow then.
  const std::int64_t above = taps == nullptr ? 0 : b.z_begin * r.kernel + b.y_begin;
  const window_taps w{above,
                      above + b.y_end - b.y_begin,
                      b.x_begin,
                      b.x_end,
                      c.kernel,
                      static_cast<std::ptrdiff_t>(r.dilation * c.in * pitch_),
                      static_cast<std::ptrdiff_t>(c.dilation * pitch_)};
  const float* from = x_.as<float>() + offset(run, b.z_begin, b.y_begin, b.x_begin);
  const window_row row{run.pixels,
                       static_cast<std::ptrdiff_t>(c.stride * pitch_),
                       static_cast<std::ptrdiff_t>(run.channels),
                       {0, 0}};
  maximum_(from, w, row, run.channels, best, taps, destination::caches);
}

/// Cuts a run so that the taps of each part fit a copy.
void window_search::find_in_copies(const pooled_run& run, const box& b, float* best,
                                   std::uint8_t* taps) const noexcept {
  const std::int64_t most = std::min(run_elements, copied_values / std::min(b.taps(), copied_taps));
  const std::int64_t most_pixels = std::max<std::int64_t>(1, most / run.channels);
  pooled_run part = run;
  for (std::int64_t p = 0; p < run.pixels; p += most_pixels) {
    part.ox = run.ox + p;
    part.pixels = std::min(most_pixels, run.pixels - p);
    for (std::int64_t c = 0; c < run.channels; c += most) {
      part.channel = run.channel + c;
      part.channels = std::min(most, run.channels - c);
      const std::int64_t done = p * run.channels + c;
      find_in_copy(part, b, best + done, taps == nullptr ? nullptr : taps + done);
    }
  }
}

void window_search::find_in_copy(const pooled_run& run, const box& b, float* best,
                                 std::uint8_t* taps) const noexcept {
  const general_axis &r = shape_->rows, &c = shape_->columns;
  const std::int64_t count = run.count();
  const std::int64_t held = std::min(b.taps(), copied_taps);
  const std::int64_t skew = held <= copied_values / (16 * copy_skew) ? copy_skew : 0;
  alignas(64) float copy[copied_values + copied_values / 16];
  std::uint8_t numbers[copied_taps];
  std::int64_t filled = 0;
  const auto find_maximum = [&] {
    const window_taps w{0, 1, 0, filled, filled, 0, static_cast<std::ptrdiff_t>(count + skew)};
    maximum_(copy, w, {1, 0, 0, {0, 0}}, count, best, taps, destination::caches);
  };
  for (std::int64_t kz = b.z_begin; kz < b.z_end; ++kz) {
    for (std::int64_t ky = b.y_begin; ky < b.y_end; ++ky) {
      for (std::int64_t kx = b.x_begin; kx < b.x_end; ++kx) {
        if (filled == copied_taps) {
          // The maximum so far stands for its taps; only the values of windows as large as that are needed.
          find_maximum();
          std::memcpy(copy, best, static_cast<std::size_t>(count) * sizeof(float));
          filled = 1;
        }
        gather_values(x_, offset(run, kz, ky, kx), c.stride * pitch_, run.pixels, run.channels,
                      copy + filled * (count + skew));
        numbers[filled++] = static_cast<std::uint8_t>((kz * r.kernel + ky) * c.kernel + kx);
      }
    }
  }
  find_maximum();
  if (taps == nullptr || b.taps() == shape_->taps()) return;
  for (std::int64_t i = 0; i < count; ++i)
    taps[i] = numbers[taps[i]];
}

void general_pool_forward(bool relu, const general_shape& s, const const_tensor_view& x, const tensor_view& y,
                          const pool_planes& planes, framework_rule rule, const execution_context& context) {
  const std::int64_t elements = y.elements();
  if (elements == 0) return;
  const bool wants_taps = planes.index != nullptr || planes.code != nullptr;
  if (planes.index != nullptr) clear_tail(planes.index, elements, planes.index_bits);
  if (planes.code != nullptr) clear_tail(planes.code, elements, planes.code_bits);
  if (planes.gradient != nullptr) clear_tail(planes.gradient, elements, 1);
  const window_search search(s, x, rule, relu, wants_taps);
  // As in pool_forward().
  const std::int64_t group = tap_stage::group_elements / std::gcd(tap_stage::group_elements, s.channels);
  const std::int64_t pixels = s.pooled_pixels();
  const std::int64_t grain = std::max<std::int64_t>(1, 16 * run_elements / (group * s.channels));
  const std::int64_t run_pixels = std::max<std::int64_t>(1, run_elements / s.channels);
  parallel_for(context, (pixels + group - 1) / group, grain, [&](std::int64_t begin, std::int64_t end) {
    tap_stage stage(planes, y, rule, argmax_bytes::taps, begin * group * s.channels);
    const std::int64_t last = std::min(pixels, end * group);
    alignas(run_alignment) float buffer[run_elements];
    for (std::int64_t pixel = begin * group; pixel < last;) {
      std::int64_t row = pixel / s.columns.out;
      pooled_run run{0, 0, pixel % s.columns.out, 0, 0, 0, 0};
      run.oy = row % s.rows.out;
      row /= s.rows.out;
      run.oz = row % s.depth.out;
      run.sample = row / s.depth.out;
      run.pixels = std::min({s.columns.out - run.ox, last - pixel, run_pixels});
      for (std::int64_t c = 0; c < s.channels; c += run_elements) {
        run.channel = c;
        run.channels = std::min(run_elements, s.channels - c);
        run.first = pixel * s.channels + c;
        std::uint8_t* taps = wants_taps ? stage.taps(run.count()) : nullptr;
        float* best = value_target(y, run.first, buffer);
        search.find(run, best, taps);
        write_values(y, run.first, run.count(), best, rounding::exact);
        if (wants_taps) stage.advance(run.count());
      }
      pixel += run.pixels;
    }
    if (wants_taps) stage.finish();
  });
}

}  // namespace stash::encoders
