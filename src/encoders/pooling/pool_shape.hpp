// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Geometry of a pooling layer: what the pooling calls check and how a window lies in x.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "encoders/detail.hpp"
#include "stash/pool.hpp"

namespace stash::encoders {

/// One axis (height or width) of a pooling layer.
struct pool_axis {
  std::int64_t in = 0, out = 0;
  std::int64_t kernel = 1, stride = 1, pad = 0;

  /// First position of x under window `o`; negative in the padding.
  std::int64_t origin(std::int64_t o) const noexcept { return o * stride - pad; }
  /// Taps [first_tap, last_tap) of window `o` lie in x.
  std::int64_t first_tap(std::int64_t o) const noexcept { return std::max<std::int64_t>(0, -origin(o)); }
  std::int64_t last_tap(std::int64_t o) const noexcept { return std::min(kernel, in - origin(o)); }
  /// Windows [first_window, last_window) are all those that reach position `i` of x.
  std::int64_t first_window(std::int64_t i) const noexcept {
    const std::int64_t reach = i + pad - kernel + 1;
    return reach <= 0 ? 0 : std::min(out, (reach + stride - 1) / stride);
  }
  std::int64_t last_window(std::int64_t i) const noexcept { return std::min(out, (i + pad) / stride + 1); }
};

struct pool_shape {
  std::int64_t samples = 0, channels = 0;
  pool_axis rows, columns;

  std::int64_t taps() const noexcept { return rows.kernel * columns.kernel; }
  std::int64_t pooled_pixels() const noexcept { return samples * rows.out * columns.out; }
  std::int64_t pooled_elements() const noexcept { return pooled_pixels() * channels; }
};

/// Checks both views and the window; `x` is the map that is pooled or its gradient, `y` the pooled one.
pool_shape check_pool(std::string_view function, std::string_view x_name, const const_tensor_view& x,
                      std::string_view y_name, const const_tensor_view& y, const pool_window& window);

/// An NCHW map must be dense.
void check_pool_pitch(std::string_view function, std::string_view name, const const_tensor_view& view,
                      const pool_window& window);

/// `view` must have the type and shape of `like`, and a pitch only where the layout has one.
void check_same_shape(std::string_view function, std::string_view name, const const_tensor_view& view,
                      std::string_view like_name, const const_tensor_view& like, const pool_window& window,
                      memory_space where);

/// Bits per pooled value of window_index. Throws error(unsupported) above 256 taps.
int checked_index_bits(std::string_view function, std::int64_t taps);

}  // namespace stash::encoders
