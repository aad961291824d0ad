// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a pooling call to what its kernels know of it, on the host.

#include <algorithm>
#include <cstdint>

#include "common/host.hpp"
#include "pool/pool.hpp"
#include "pool/pool_forward.hpp"
#include "stash/pool.hpp"

namespace stash::kernels {

inline window_axis window_axis_of(const pool_axis& a) {
  // An axis without windows is not divided by their number.
  return {a,
          divisor_of(std::max<std::int64_t>(a.in, 1)),
          divisor_of(std::max<std::int64_t>(a.out, 1)),
          divisor_of(a.kernel),
          divisor_of(a.stride),
          divisor_of(a.dilation)};
}

/// Axes and samples of a layer; without depth there is one slice.
inline pool_geometry geometry_of(const shape& x, const shape& y, const pool_window& window) {
  pool_geometry g{};
  g.layout = window.layout;
  const bool first = window.layout == pool_layout::channels_first;
  const int rows = x.rank() - (first ? 2 : 3), begin = x.rank() == 5 ? rows - 1 : rows;
  g.depth = whole_axis;
  if (x.rank() == 5) {
    g.depth = {x[begin], y[begin], window.kernel_d, window.stride_d, window.pad_front, window.dilation_d};
  }
  g.rows = {x[rows], y[rows], window.kernel_h, window.stride_h, window.pad_top, window.dilation_h};
  g.columns = {x[rows + 1],     y[rows + 1],     window.kernel_w,
               window.stride_w, window.pad_left, window.dilation_w};
  g.channels = first ? 1 : x.inner();
  g.samples = 1;
  for (int axis = 0; axis < begin; ++axis)
    g.samples *= x[axis];
  return g;
}

inline void set_axes(pool_job& job, const pool_geometry& g) {
  job.depth = window_axis_of(g.depth);
  job.rows = window_axis_of(g.rows);
  job.columns = window_axis_of(g.columns);
}

inline unsigned tap_bits(const pool_window& window) {
  const std::int32_t taps = window.taps();
  return taps <= 4 ? 2 : taps <= 16 ? 4 : 8;
}

inline std::uint64_t plane_bytes(std::int64_t elements, unsigned bits) {
  return (static_cast<std::uint64_t>(elements) * bits + 127) / 128 * 16;
}

inline code_plane plane_of(const encoded_view& view, std::int64_t elements, unsigned bits) {
  return {static_cast<std::uint8_t*>(view.data), plane_bytes(elements, bits), bits};
}

/// Blocks of pool_threads threads for so many units.
inline std::uint64_t pool_blocks(std::uint64_t units) {
  return (units + pool_threads - 1) / pool_threads;
}

}  // namespace stash::kernels
