// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Launches of the backward pass in NCHW, for every source of argmaxes that a kernel knows.

#include "pool/nchw/pool_column_backward.hpp"
#include "pool/nchw/pool_halo_backward.hpp"
#include "pool/nchw/pool_nchw_grids.hpp"
#include "pool/nchw/pool_vec16_backward.hpp"

namespace stash::kernels {

template <class Source>
void backward_pairs(const pool_call& call, const const_tensor_view& dy, const Source& source,
                    const tensor_view& dx) {
  const std::uint64_t blocks = pair_blocks(call, static_cast<std::uint64_t>(dy.elements()));
  with_element(call.type, [&](auto bits) {
    launch_backward(call, blocks, pool_threads, pool_backward_pairs<decltype(bits), Source>, dy, source, dx);
  });
}

template <class Source>
void backward_cubes(const pool_call& call, const const_tensor_view& dy, const Source& source,
                    const tensor_view& dx) {
  const std::uint64_t blocks = pair_blocks(call, static_cast<std::uint64_t>(dy.elements()));
  with_element(call.type, [&](auto bits) {
    launch_backward(call, blocks, pool_threads, pool_backward_cubes<decltype(bits), Source>, dy, source, dx);
  });
}

template <class Source>
void backward_vec16(const pool_call& call, const const_tensor_view& dy, const Source& source,
                    const tensor_view& dx) {
  const window_axis& rows = call.job.rows;
  const vec16_grid grid = vec16_grid_of(call, -rows.pad, rows.in, 2 * vec16_row_pairs);
  with_element(call.type, [&](auto bits) {
    with_padding(call, [&](auto pad) {
      launch_backward(call, pool_blocks(grid.units), pool_threads,
                      pool_backward_vec16<decltype(bits), pad, Source>, dy, source, dx, grid);
    });
  });
}

template <class Source>
void backward_column_tiles(const pool_call& call, const const_tensor_view& dy, const Source& source,
                           const tensor_view& dx) {
  const column_tile_grid grid = column_tile_grid_of(call, call.job.rows.in);
  with_element(call.type, [&](auto bits) {
    launch_backward(call, pool_blocks(grid.units), pool_threads,
                    pool_backward_column_tiles<decltype(bits), Source>, dy, source, dx, grid);
  });
}

template <class Source>
void backward_halo_tiles(const pool_call& call, const const_tensor_view& dy, const Source& source,
                         const tensor_view& dx) {
  const halo_grid grid = halo_tiles_of(call, true, std::is_same_v<Source, searched_argmaxes>);
  with_element(call.type, [&](auto bits) {
    with_window(call, [&](auto kernel, auto stride) {
      launch_backward(call, tiles_of_map(grid, grid.values), halo_threads,
                      pool_backward_halo_tiles<decltype(bits), kernel, stride, Source>, dy, source, dx, grid);
    });
  });
}

}  // namespace stash::kernels
