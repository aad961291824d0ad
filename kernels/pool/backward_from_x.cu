// SPDX-License-Identifier: Apache-2.0
#include "pool/nchw/pool_nchw_backward.hpp"
#include "pool/nhwc/pool_nhwc_tiles.hpp"
#include "pool/nhwc/pool_pixel_tiles_backward.hpp"
#include "pool/pool_general_backward.hpp"

namespace stash::kernels {
namespace {

void pixel_tiles(const pool_call& call, const const_tensor_view& dy, const searched_argmaxes& source,
                 const tensor_view& dx) {
  const pixel_tile_grid grid = pixel_tile_grid_of(call, false);
  with_element(call.type, [&](auto bits) {
    const auto kernel = call.job.columns.stride == 1 ? pool_backward_pixel_tiles<decltype(bits), 1>
                                                     : pool_backward_pixel_tiles<decltype(bits), 2>;
    launch_pixel_tiles(call, grid, kernel, dy, source, dx);
  });
}

}  // namespace

void backward(const pool_call& call, const const_tensor_view& dy, const searched_argmaxes& source,
              const tensor_view& dx) {
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
      return backward_vec16(call, dy, source, dx);
    case pool_strategy::column_tiles:
      return backward_column_tiles(call, dy, source, dx);
    case pool_strategy::halo_tiles:
      return backward_halo_tiles(call, dy, source, dx);
    case pool_strategy::pixel_tiles:
      return pixel_tiles(call, dy, source, dx);
    case pool_strategy::pixels:
    case pool_strategy::packed_pixels:
    case pool_strategy::coded_pixel_tiles:
    case pool_strategy::walk:
    case pool_strategy::eight_channels:
      break;  // of other passes
  }
}

}  // namespace stash::kernels
