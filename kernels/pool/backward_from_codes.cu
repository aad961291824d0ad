// SPDX-License-Identifier: Apache-2.0
#include "pool/nchw/pool_nchw_backward.hpp"
#include "pool/nhwc/pool_coded_pixel_tiles.hpp"
#include "pool/nhwc/pool_last_backward.hpp"
#include "pool/nhwc/pool_nhwc_tiles.hpp"
#include "pool/nhwc/pool_packed_backward.hpp"
#include "pool/pool_general_backward.hpp"

namespace stash::kernels {
namespace {

/// Blocks of 2 x 2 pixels that cover an axis, and pixels of the first one that lie before x: it begins with
/// the first tap of a window.
struct block_axis {
  std::int64_t count;
  std::int32_t first;
};
block_axis blocks_of(const pool_axis& a) {
  constexpr std::int64_t side = 2;
  const std::int64_t before = a.pad % a.stride;
  return {(a.in + before + side - 1) / side, -static_cast<std::int32_t>(before)};
}

/// A thread has eight channels of a block.
std::uint64_t units_of_blocks(const pool_call& call, const block_axis& rows, const block_axis& columns) {
  const pool_geometry& g = call.layer;
  return static_cast<std::uint64_t>(g.samples * (g.channels / group_elements) * rows.count *
                                    columns.count);
}

void pixels(const pool_call& call, const const_tensor_view& dy, const encoded_argmaxes& source,
            const tensor_view& dx) {
  const block_axis rows = blocks_of(call.layer.rows), columns = blocks_of(call.layer.columns);
  const std::uint64_t units = units_of_blocks(call, rows, columns);
  const pixel_blocks blocks{divisor_of(rows.count), divisor_of(columns.count), rows.first, columns.first,
                            units};
  launch_backward(call, pool_blocks(units), pool_threads, pool_backward_pixels, dy, source, dx, blocks);
}

void packed_pixels(const pool_call& call, const const_tensor_view& dy, const encoded_argmaxes& source,
                   const tensor_view& dx) {
  const block_axis rows = blocks_of(call.layer.rows), columns = blocks_of(call.layer.columns);
  const std::uint64_t units = units_of_blocks(call, rows, columns), size = size_of(call.type);
  const packed_blocks blocks{call.job.by_units,
                             divisor_of(rows.count),
                             divisor_of(columns.count),
                             rows.first,
                             columns.first,
                             static_cast<std::uint32_t>(units),
                             static_cast<std::uint32_t>(call.job.x_pitch * size),
                             static_cast<std::uint32_t>(call.job.y_pitch * size)};
  launch_backward(call, pool_blocks(units), pool_threads, pool_backward_packed, dy, source, dx, blocks);
}

template <class Source>
void coded_pixel_tiles(const pool_call& call, const const_tensor_view& dy, const Source& source,
                       const tensor_view& dx) {
  const pixel_tile_grid grid = pixel_tile_grid_of(call, true);
  with_element(call.type, [&](auto bits) {
    launch_pixel_tiles(call, grid, pool_backward_coded_pixel_tiles<decltype(bits), Source>, dy, source, dx);
  });
}

}  // namespace

void backward(const pool_call& call, const const_tensor_view& dy, const encoded_argmaxes& source,
              const tensor_view& dx) {
  const bool plane = source.passing == pass_source::plane;
  switch (call.strategy) {
    case pool_strategy::one_value:
    case pool_strategy::one_value_of_long:
      return backward_one_value(call, dy, source, dx);
    case pool_strategy::scatter:
      return backward_scatter(call, dy, source, dx);
    case pool_strategy::disjoint:
      return backward_disjoint(call, dy, source, dx);
    case pool_strategy::pairs:
      return backward_pairs(call, dy, source, dx);
    case pool_strategy::cubes:
      return backward_cubes(call, dy, source, dx);
    case pool_strategy::vec16:
      return plane ? backward_vec16(call, dy, plane_argmaxes{source}, dx)
                   : backward_vec16(call, dy, source, dx);
    case pool_strategy::column_tiles:
      return backward_column_tiles(call, dy, source, dx);
    case pool_strategy::halo_tiles:
      return backward_halo_tiles(call, dy, source, dx);
    case pool_strategy::pixels:
      return pixels(call, dy, source, dx);
    case pool_strategy::packed_pixels:
      return packed_pixels(call, dy, source, dx);
    case pool_strategy::coded_pixel_tiles:
      return plane ? coded_pixel_tiles(call, dy, plane_argmaxes{source}, dx)
                   : coded_pixel_tiles(call, dy, source, dx);
    case pool_strategy::pixel_tiles:
    case pool_strategy::walk:
    case pool_strategy::eight_channels:
      break;  // of other passes
  }
}

}  // namespace stash::kernels
