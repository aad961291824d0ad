// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Launches of the backward pass for any windows, for every source of argmaxes.

#include "pool/pool_disjoint.hpp"
#include "pool/pool_launch.hpp"
#include "pool/pool_scatter.hpp"

namespace stash::kernels {

template <class Source>
void backward_one_value(const pool_call& call, const const_tensor_view& dy, const Source& source,
                        const tensor_view& dx) {
  with_positions(call, [&](auto bits, auto p) {
    launch_backward(call, pool_blocks(call.job.x_units), pool_threads,
                    pool_backward<decltype(bits), decltype(p), Source>, dy, source, dx);
  });
}

template <class Source>
void backward_disjoint(const pool_call& call, const const_tensor_view& dy, const Source& source,
                       const tensor_view& dx) {
  with_element(call.type, [&](auto bits) {
    launch_backward(call, pool_blocks(call.job.y_units), pool_threads,
                    pool_backward_disjoint<decltype(bits), Source>, dy, source, dx);
  });
}

/// Tiles of dx. Along the outer axis they are short where a device would not be full.
inline scatter_grid scatter_grid_of(const pool_call& call) {
  const scatter_axes axes = scatter_axes_of(call.layer);
  const scatter_shape shape = scatter_shape_of(axes);
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  const std::int64_t inners = parts(axes.inner.in, shape.inner),
                     middles = parts(axes.middle.in, shape.middle);
  const std::int64_t others = call.layer.samples * call.layer.channels * inners * middles;
  const auto enough = static_cast<std::int64_t>(enough_tiles());
  std::int64_t segments = parts(axes.outer.in, tuning::scatter_rows);
  while (others * segments < enough && parts(axes.outer.in, 2 * segments) >= 2 * shape.ring)
    segments *= 2;
  const std::int64_t outer = parts(axes.outer.in, segments);
  segments = parts(axes.outer.in, outer);
  return {divisor_of(inners),
          divisor_of(middles),
          divisor_of(segments),
          static_cast<std::int32_t>(shape.ring),
          static_cast<std::int32_t>(shape.middle),
          static_cast<std::int32_t>(shape.inner),
          static_cast<std::int32_t>(outer),
          static_cast<std::uint64_t>(others * segments)};
}

template <class Source>
void backward_scatter(const pool_call& call, const const_tensor_view& dy, const Source& source,
                      const tensor_view& dx) {
  const scatter_grid grid = scatter_grid_of(call);
  const std::uint64_t blocks = (grid.units + scatter_threads - 1) / scatter_threads;
  with_element(call.type, [&](auto bits) {
    const auto kernel = has_slices(call.layer) ? pool_backward_scatter<decltype(bits), true, Source>
                                               : pool_backward_scatter<decltype(bits), false, Source>;
    launch_backward(call, blocks, scatter_threads, kernel, dy, source, dx, grid);
  });
}

}  // namespace stash::kernels
