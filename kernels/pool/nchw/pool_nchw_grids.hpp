// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How maps in NCHW are cut for the kernels that have windows of their own, on the host.

#include "pool/nchw/pool_column_tiles.hpp"
#include "pool/nchw/pool_cubes.hpp"
#include "pool/nchw/pool_halo_tiles.hpp"
#include "pool/nchw/pool_pairs.hpp"
#include "pool/nchw/pool_vec16.hpp"
#include "pool/pool_launch.hpp"

namespace stash::kernels {

/// Blocks of the kernels for pairs and cubes.
inline std::uint64_t pair_blocks(const pool_call& call, std::uint64_t values) {
  std::uint64_t block_windows = 0;
  with_element(call.type, [&](auto bits) {
    using element = decltype(bits);
    block_windows = call.strategy == pool_strategy::cubes ? cube_positions<element>::block_windows
                                                          : pair_positions<element>::block_windows;
  });
  return (values + block_windows - 1) / block_windows;
}

/// Vec16s of a row of x.
inline std::int64_t row_vec16s(const pool_call& call) {
  return call.layer.columns.in * static_cast<std::int64_t>(size_of(call.type)) / 16;
}
/// Planes of a map, and values of each in x and y.
struct plane_sizes {
  std::int64_t planes, x, y;
};
inline plane_sizes plane_sizes_of(const pool_call& call) {
  const pool_geometry& g = call.layer;
  return {g.samples, g.rows.in * g.columns.in, g.rows.out * g.columns.out};
}

/// Calls body(columns before x), a constant.
template <class Body>
void with_padding(const pool_call& call, const Body& body) {
  if (call.job.columns.pad == 0) return body(std::integral_constant<unsigned, 0>{});
  body(std::integral_constant<unsigned, 1>{});
}

/// Rows [first_row, rows) of every plane, some at a time.
inline vec16_grid vec16_grid_of(const pool_call& call, std::int64_t first_row, std::int64_t rows,
                                std::int64_t at_a_time) {
  const std::int64_t vec16s = row_vec16s(call), groups = (rows - first_row + at_a_time - 1) / at_a_time;
  const plane_sizes sizes = plane_sizes_of(call);
  return {divisor_of(vec16s),
          divisor_of(groups),
          static_cast<std::int32_t>(first_row),
          static_cast<std::uint32_t>(sizes.planes * groups * vec16s),
          static_cast<std::uint32_t>(sizes.x),
          static_cast<std::uint32_t>(sizes.y)};
}

/// Rows of every plane, of x or y, one column tile below the other.
inline column_tile_grid column_tile_grid_of(const pool_call& call, std::int64_t rows) {
  const std::int64_t vec16s = row_vec16s(call);
  const plane_sizes sizes = plane_sizes_of(call);
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  constexpr std::int64_t pair = 2;
  const auto rows_of = [&](std::int64_t groups) { return parts(parts(rows, groups), pair) * pair; };
  std::int64_t groups = parts(rows, tuning::long_pool_tile_rows);
  const auto enough = static_cast<std::int64_t>(enough_tiles());
  while (sizes.planes * groups * vec16s < enough && rows_of(2 * groups) >= tuning::least_pool_tile_rows)
    groups *= 2;
  const std::int64_t at_a_time = rows_of(groups);
  groups = parts(rows, at_a_time);
  return {divisor_of(vec16s),
          divisor_of(groups),
          static_cast<std::uint32_t>(at_a_time),
          static_cast<std::uint32_t>(sizes.planes * groups * vec16s),
          static_cast<std::uint32_t>(sizes.x),
          static_cast<std::uint32_t>(sizes.y)};
}

/// Tiles of rows of any length. `searches`: whether argmaxes are found again, going backward.
inline halo_grid halo_tiles_of(const pool_call& call, bool backward, bool searches) {
  return halo_grid_of(halo_shape_of(call.layer.rows, call.layer.columns), call.job.x_units, call.job.y_units,
                      size_of(call.type), backward, searches);
}
inline std::uint64_t tiles_of_map(const halo_grid& grid, std::uint64_t values) {
  return (values + grid.block_values - 1) / grid.block_values;
}

}  // namespace stash::kernels
