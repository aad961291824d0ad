// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How large pixel tiles are, and how many cover a map (pool_pixel_tiles.hpp). Knows no device.

#include <cstdint>

#include "common/tuning.hpp"
#include "pool/pool_geometry.hpp"

namespace stash::kernels {

/// Columns of a pixel tile whose argmaxes are found again. One column of windows with stride 1 wants three of
/// windows, two want four: of 16-bit elements those would not fit into the registers.
constexpr unsigned searched_tile_columns(unsigned element_bytes, unsigned stride) {
  return stride == 1 && element_bytes == 2 ? 1 : 2;
}
/// The same from codes, of windows with stride 1.
inline constexpr unsigned coded_columns = 2;

/// Numbers of pixel tiles of a map, and of the threads of each.
struct pixel_tile_counts {
  std::int64_t samples;
  std::int64_t groups;   ///< below each other
  std::int64_t tiles;    ///< next to each other
  std::int64_t vec16s;   ///< of a pixel
  std::int64_t windows;  ///< rows of windows that begin in a map, from the one before its first row on

  constexpr std::int64_t units() const { return samples * groups * tiles * vec16s; }
};

/// Of the highest pixel tiles: small maps have lower ones. `coded`: argmaxes are codes.
constexpr pixel_tile_counts pixel_tile_shape(const pool_geometry& g, bool coded) {
  constexpr std::int64_t vec16_bytes = 16;
  const std::int64_t stride = g.columns.stride;
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  const auto length = [&](const pool_axis& a) { return a.in + a.pad % stride; };
  const std::int64_t rows = coded ? tuning::long_pool_tile_rows : tuning::pool_tile_rows;
  const std::int64_t columns =
      coded ? coded_columns : searched_tile_columns(g.element_bytes, static_cast<unsigned>(stride));
  const std::int64_t windows = parts(length(g.rows), stride);
  return {g.samples, parts(windows, rows / stride), parts(length(g.columns), columns),
          g.channels * g.element_bytes / vec16_bytes, windows};
}

}  // namespace stash::kernels
