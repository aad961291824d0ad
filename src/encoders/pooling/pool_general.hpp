// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Max pooling in every layout, rank and type: depth, dilation, NCHW, 16-bit. Two-dimensional
/// undilated NHWC f32 has faster loops of its own (pool_loops.hpp) with the same results.
///
/// An NCHW map is one with a single channel and as many samples as there were channels.

#include <algorithm>
#include <cstdint>

#include "encoders/format/values.hpp"
#include "encoders/pooling/pool_loops.hpp"

namespace stash::encoders {

struct general_axis {
  std::int64_t in = 1, out = 1;
  std::int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;

  /// Position of a window's tap 0; negative in the padding.
  std::int64_t origin(std::int64_t window) const noexcept { return window * stride - pad; }
  /// The first tap of a window that lies at `position` or after; at most `kernel`.
  std::int64_t tap_from(std::int64_t window, std::int64_t position) const noexcept {
    const std::int64_t distance = position - origin(window);
    return distance <= 0 ? 0 : std::min(kernel, (distance - 1) / dilation + 1);
  }
  /// Taps [first_tap, last_tap) of a window lie in x.
  std::int64_t first_tap(std::int64_t window) const noexcept { return tap_from(window, 0); }
  std::int64_t last_tap(std::int64_t window) const noexcept { return tap_from(window, in); }
  /// Distance between the first tap and the last.
  std::int64_t reach() const noexcept { return (kernel - 1) * dilation; }
  /// Windows [first_whole, last_whole) have all their taps in x; none if they cross.
  std::int64_t first_whole() const noexcept { return (pad + stride - 1) / stride; }
  std::int64_t last_whole() const noexcept {
    const std::int64_t space = in - 1 - reach() + pad;
    return space < 0 ? 0 : std::min(out, space / stride + 1);
  }
  /// All windows with a tap in positions [begin, end) are among [first_window, last_window).
  std::int64_t first_window(std::int64_t begin) const noexcept {
    const std::int64_t distance = begin + pad - reach();
    return distance <= 0 ? 0 : std::min(out, (distance - 1) / stride + 1);
  }
  std::int64_t last_window(std::int64_t end) const noexcept {
    return std::min(out, (end - 1 + pad) / stride + 1);
  }
};

struct general_shape {
  std::int64_t samples = 0, channels = 0;
  bool channels_first = false;
  general_axis depth, rows, columns;

  /// Beyond what a window can hold the count may be too small, but it does not overflow.
  std::int64_t taps() const noexcept {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    return std::min(depth.kernel * rows.kernel, most) * columns.kernel;
  }
  std::int64_t pooled_pixels() const noexcept { return samples * depth.out * rows.out * columns.out; }
  /// Distance between the pixels of a map.
  std::int64_t pitch(const const_tensor_view& map) const noexcept { return channels_first ? 1 : map.pitch(); }
  /// Pixel of the pooled map.
  std::int64_t pixel(const pooled_run& run) const noexcept {
    return ((run.sample * depth.out + run.oz) * rows.out + run.oy) * columns.out + run.ox;
  }
};

/// True if the call is for the loops of this file.
bool is_general(const pool_window& window, const const_tensor_view& x) noexcept;

/// Checks the shapes of both maps and the window.
general_shape check_pool_shapes(std::string_view function, std::string_view x_name, const shape& x,
                                std::string_view y_name, const shape& y, const pool_window& window);

/// Checks both views and the window, as check_pool().
general_shape check_general_pool(std::string_view function, std::string_view x_name,
                                 const const_tensor_view& x, std::string_view y_name,
                                 const const_tensor_view& y, const pool_window& window,
                                 memory_space where = memory_space::host);

/// Finds the maxima of runs of pooled values, and their taps.
class window_search {
 public:
  /// The shape outlives the search. Windows of more than 256 taps can be searched without `taps` only.
  window_search(const general_shape& s, const const_tensor_view& x, framework_rule rule, bool relu, bool taps)
      : shape_(&s), x_(x), pitch_(s.pitch(x)), maximum_(maximum_for(rule, relu, taps)) {}

  /// A run of at most run_elements values, in one row; `taps` is null if they are not needed.
  void find(const pooled_run& run, float* best, std::uint8_t* taps) const noexcept;

 private:
  /// The taps of some windows that lie in x.
  struct box {
    std::int64_t z_begin, z_end, y_begin, y_end, x_begin, x_end;
    std::int64_t taps() const noexcept { return (z_end - z_begin) * (y_end - y_begin) * (x_end - x_begin); }
  };

  std::int64_t offset(const pooled_run& run, std::int64_t kz, std::int64_t ky,
                      std::int64_t kx) const noexcept;
  void find_in_place(const pooled_run& run, const box& b, float* best, std::uint8_t* taps) const noexcept;
  void find_in_copies(const pooled_run& run, const box& b, float* best, std::uint8_t* taps) const noexcept;
  void find_in_copy(const pooled_run& run, const box& b, float* best, std::uint8_t* taps) const noexcept;

  const general_shape* shape_;
  const_tensor_view x_;
  std::int64_t pitch_;
  max_function maximum_;
};

void general_pool_forward(bool relu, const general_shape& s, const const_tensor_view& x, const tensor_view& y,
                          const pool_planes& planes, framework_rule rule, const execution_context& context);

/// Argmaxes found again in the dense x.
class general_search_source {
 public:
  general_search_source(const general_shape& s, const const_tensor_view& x, framework_rule rule, bool relu)
      : search_(s, x, rule, relu, true), rule_(rule), relu_(relu) {}
  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    search_.find(run, buffers.values.data(), buffers.taps.data());
    if (!relu_) return {buffers.taps.data()};
    loops().pass_bits(buffers.values.data(), run.count(), rule_, buffers.passes.data());
    return {buffers.taps.data(), buffers.passes.data()};
  }

 private:
  window_search search_;
  framework_rule rule_;
  bool relu_;
};

}  // namespace stash::encoders
