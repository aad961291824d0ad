// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How large the tiles of dx are that a thread makes by scattering (pool_scatter.hpp). Knows no device.

#include <algorithm>
#include <cstdint>

#include "common/tuning.hpp"
#include "pool/pool_geometry.hpp"

namespace stash::kernels {

/// The axis along which a thread goes, and the two of which it has a part: with slices all three, else no
/// middle one.
struct scatter_axes {
  pool_axis outer, middle, inner;
};
constexpr bool has_slices(const pool_geometry& g) {
  const pool_axis& d = g.depth;
  return d.in != 1 || d.out != 1 || d.kernel != 1 || d.stride != 1 || d.pad != 0;
}
constexpr scatter_axes scatter_axes_of(const pool_geometry& g) {
  return has_slices(g) ? scatter_axes{g.depth, g.rows, g.columns}
                       : scatter_axes{g.rows, whole_axis, g.columns};
}
/// Positions from the first tap of a window to its last one.
constexpr std::int64_t span_of(const pool_axis& a) {
  return (a.kernel - 1) * a.dilation + 1;
}

/// Positions that a thread holds sums of: of the outer axis those of a window, of the others its tile.
struct scatter_shape {
  std::int64_t ring = 0, middle = 0, inner = 0;

  constexpr bool fits() const { return ring > 0; }
};

/// The tile whose windows are looked at by the fewest other threads, too; none if windows are too long.
constexpr scatter_shape scatter_shape_of(const scatter_axes& axes) {
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  // Windows that all tiles of an axis look at.
  const auto looks = [&](const pool_axis& a, std::int64_t length) {
    const std::int64_t of_tile = (length + span_of(a) - 2) / a.stride + 1;
    return parts(a.in, length) * std::min(of_tile, a.out);
  };
  const std::int64_t ring = span_of(axes.outer), capacity = tuning::scatter_values;
  // A target has a byte for each axis, and what names none lies beyond every tile.
  constexpr std::int64_t longest = 80;
  scatter_shape best;
  if (ring > longest || span_of(axes.middle) > longest || span_of(axes.inner) > longest) return best;
  std::int64_t least = 0;
  for (std::int64_t inner = std::min(axes.inner.in, capacity / ring); inner > 0; --inner) {
    const std::int64_t middle = std::min(axes.middle.in, capacity / ring / inner);
    const std::int64_t all = looks(axes.inner, inner) * looks(axes.middle, middle);
    if (least != 0 && all >= least) continue;
    least = all;
    // As even as may be.
    best = {ring, parts(axes.middle.in, parts(axes.middle.in, middle)),
            parts(axes.inner.in, parts(axes.inner.in, inner))};
  }
  return best;
}

}  // namespace stash::kernels
