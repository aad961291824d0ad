// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How maps in NHWC are cut into pixel tiles, and the launches over them, on the host.

#include "pool/nhwc/pool_pixel_tiles.hpp"
#include "pool/pool_launch.hpp"

namespace stash::kernels {

/// How many vec16s of a pixel neighbours have: so many that their accesses fill lines of memory, and so few
/// that most of what is next to a pixel tile is the same block's.
inline std::int64_t neighbouring_vec16s(std::int64_t vec16s) {
  constexpr std::int64_t most = 32, least = 8;
  for (std::int64_t count = std::min(vec16s, most); count >= least; --count) {
    if (vec16s % count == 0) return count;
  }
  return vec16s;
}

/// `coded`: argmaxes are codes, of half a byte.
inline pixel_tile_grid pixel_tile_grid_of(const pool_call& call, bool coded) {
  const pool_geometry& g = call.layer;
  const std::int64_t size = g.element_bytes, stride = g.columns.stride;
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  pixel_tile_counts counts = pixel_tile_shape(g, coded);
  const auto enough = static_cast<std::int64_t>(enough_tiles());
  while (counts.units() < enough &&
         parts(counts.windows, 2 * counts.groups) * stride >= tuning::least_pool_tile_rows)
    counts.groups *= 2;
  const std::int64_t steps = parts(counts.windows, counts.groups);
  counts.groups = parts(counts.windows, steps);
  const auto map_of = [&](std::int64_t pixels, std::int64_t pixel_bytes) {
    return pixel_tile_map{static_cast<std::uint32_t>(pixel_bytes),
                          static_cast<std::uint32_t>(pixels * pixel_bytes)};
  };
  const auto before = [&](const pool_axis& a) { return static_cast<std::int32_t>(a.pad % stride); };
  const std::int64_t adjacent = neighbouring_vec16s(counts.vec16s);
  static_assert(tuning::pool_tile_rows <= 32 && tuning::long_pool_tile_rows <= 32);
  return {divisor_of(adjacent),
          divisor_of(counts.tiles),
          divisor_of(counts.vec16s / adjacent),
          divisor_of(counts.groups),
          -before(g.rows),
          -before(g.columns),
          static_cast<std::uint32_t>(steps),
          static_cast<std::uint32_t>(counts.units()),
          coded ? map_of(g.columns.out, g.channels / 2) : map_of(g.columns.in, g.searched_pitch * size),
          map_of(g.columns.in, g.x_pitch * size),
          map_of(g.columns.out, g.y_pitch * size)};
}

/// Calls a kernel for the pixel tiles of dx.
template <class... Parameters, class Source>
void launch_pixel_tiles(const pool_call& call, const pixel_tile_grid& grid, void (*kernel)(Parameters...),
                        const const_tensor_view& dy, const Source& source, const tensor_view& dx) {
  launch_backward(call, pool_blocks(grid.units), pool_threads, kernel, dy, source, dx, grid);
}

}  // namespace stash::kernels
