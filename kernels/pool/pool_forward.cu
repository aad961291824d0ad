// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_forward.hpp"

#include "pool/nchw/pool_column_forward.hpp"
#include "pool/nchw/pool_halo_forward.hpp"
#include "pool/nchw/pool_nchw_grids.hpp"
#include "pool/nchw/pool_vec16_forward.hpp"
#include "pool/nhwc/pool_last_forward.hpp"
#include "pool/pool_walk.hpp"

namespace stash::kernels {
namespace {

/// A pass, and everything that its kernel is given.
struct forward_pass {
  const pool_call& call;
  bool relu;
  const const_tensor_view& x;
  const tensor_view& y;
  const pool_planes& planes;

  template <class... Parameters, class... Grid>
  void run(std::uint64_t blocks, unsigned threads, void (*kernel)(Parameters...), const Grid&... grid) const {
    launch_forward(call, blocks, threads, kernel, relu, x, y, planes, grid...);
  }
};

void one_value(const forward_pass& pass) {
  const std::uint64_t units = padded_values(pass.call, pass.planes);
  with_positions(pass.call, [&](auto bits, auto p) {
    pass.run(pool_blocks(units), pool_threads, pool_forward<decltype(bits), 1, decltype(p)>);
  });
}

void eight_channels(const forward_pass& pass) {
  const std::uint64_t units = padded_values(pass.call, pass.planes) / group_elements;
  with_element(pass.call.type, [&](auto bits) {
    pass.run(pool_blocks(units), pool_threads, pool_forward<decltype(bits), group_elements, std::int32_t>);
  });
}

void walk(const forward_pass& pass) {
  const pool_geometry& g = pass.call.layer;
  const scatter_axes axes = scatter_axes_of(g);
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  const bool by_columns = g.channels == 1;
  const std::int64_t groups = by_columns ? 1 : parts(g.channels, walk_lanes);
  const std::int64_t inners = by_columns ? parts(axes.inner.out, walk_lanes) : axes.inner.out;
  const std::int64_t others = g.samples * groups * axes.middle.out * inners, ring = span_of(axes.outer);
  const auto enough = static_cast<std::int64_t>(enough_tiles());
  std::int64_t segments = parts(axes.outer.out, tuning::walk_windows);
  while (others * segments < enough && parts(axes.outer.out, 2 * segments) * axes.outer.stride >= 2 * ring)
    segments *= 2;
  const std::int64_t outer = parts(axes.outer.out, segments);
  segments = parts(axes.outer.out, outer);
  const walk_grid grid{divisor_of(groups),
                       divisor_of(inners),
                       divisor_of(axes.middle.out),
                       divisor_of(segments),
                       by_columns,
                       static_cast<std::int32_t>(ring),
                       static_cast<std::int32_t>(axes.outer.stride % ring),
                       static_cast<std::int32_t>(outer),
                       static_cast<std::uint64_t>(others * segments)};
  const std::uint64_t padding = padded_values(pass.call, pass.planes) - pass.call.job.y_units;
  const std::uint64_t blocks = (grid.units + padding + walk_threads - 1) / walk_threads;
  with_element(pass.call.type, [&](auto bits) {
    const auto kernel =
        has_slices(g) ? pool_forward_walk<decltype(bits), true> : pool_forward_walk<decltype(bits), false>;
    pass.run(blocks, walk_threads, kernel, grid);
  });
}

void pairs(const forward_pass& pass) {
  const std::uint64_t blocks = pair_blocks(pass.call, padded_values(pass.call, pass.planes));
  with_element(pass.call.type,
               [&](auto bits) { pass.run(blocks, pool_threads, pool_forward_pairs<decltype(bits)>); });
}

void cubes(const forward_pass& pass) {
  const std::uint64_t blocks = pair_blocks(pass.call, padded_values(pass.call, pass.planes));
  with_element(pass.call.type,
               [&](auto bits) { pass.run(blocks, pool_threads, pool_forward_cubes<decltype(bits)>); });
}

void vec16(const forward_pass& pass) {
  const vec16_grid grid = vec16_grid_of(pass.call, 0, pass.call.job.rows.out, 2);
  with_element(pass.call.type, [&](auto bits) {
    with_padding(pass.call, [&](auto pad) {
      pass.run(pool_blocks(grid.units), pool_threads, pool_forward_vec16<decltype(bits), pad>, grid);
    });
  });
}

void column_tiles(const forward_pass& pass) {
  const column_tile_grid grid = column_tile_grid_of(pass.call, pass.call.job.rows.out);
  with_element(pass.call.type, [&](auto bits) {
    pass.run(pool_blocks(grid.units), pool_threads, pool_forward_column_tiles<decltype(bits)>, grid);
  });
}

void halo_tiles(const forward_pass& pass) {
  const halo_grid grid = halo_tiles_of(pass.call, false, false);
  const std::uint64_t blocks = tiles_of_map(grid, padded_values(pass.call, pass.planes));
  with_element(pass.call.type, [&](auto bits) {
    with_window(pass.call, [&](auto kernel, auto stride) {
      pass.run(blocks, halo_threads, pool_forward_halo_tiles<decltype(bits), kernel, stride>, grid);
    });
  });
}

void pixels(const forward_pass& pass) {
  const pool_geometry& g = pass.call.layer;
  const std::int64_t size = g.element_bytes, vec16s = g.channels * size / 16;
  const std::int64_t of_rows = (g.rows.out + paired - 1) / paired;
  const auto units = static_cast<std::uint64_t>(g.samples * of_rows * g.columns.out * vec16s);
  const pixel_pairs grid{divisor_of(vec16s),
                         divisor_of(of_rows),
                         static_cast<std::uint32_t>(units),
                         static_cast<std::uint32_t>(g.channels / group_elements),
                         static_cast<std::uint32_t>(g.x_pitch * size),
                         static_cast<std::uint32_t>(g.y_pitch * size)};
  // A group of padding has as many threads as one of y.
  const std::uint64_t padding = (padded_values(pass.call, pass.planes) / group_elements - pass.call.job.y_units) *
                                g.element_bytes / 2;
  with_element(pass.call.type, [&](auto bits) {
    with_window(pass.call, [&](auto kernel, auto stride) {
      pass.run(pool_blocks(units + padding), pool_threads, pool_forward_pixels<decltype(bits), kernel, stride>,
               grid);
    });
  });
}

}  // namespace

void forward(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
             const pool_planes& planes) {
  const forward_pass pass{call, relu, x, y, planes};
  switch (call.strategy) {
    case pool_strategy::one_value:
    case pool_strategy::one_value_of_long:
      return one_value(pass);
    case pool_strategy::eight_channels:
      return eight_channels(pass);
    case pool_strategy::walk:
      return walk(pass);
    case pool_strategy::pairs:
      return pairs(pass);
    case pool_strategy::cubes:
      return cubes(pass);
    case pool_strategy::vec16:
      return vec16(pass);
    case pool_strategy::column_tiles:
      return column_tiles(pass);
    case pool_strategy::halo_tiles:
      return halo_tiles(pass);
    case pool_strategy::pixels:
      return pixels(pass);
    case pool_strategy::scatter:
    case pool_strategy::disjoint:
    case pool_strategy::packed_pixels:
    case pool_strategy::pixel_tiles:
    case pool_strategy::coded_pixel_tiles:
      break;  // of backward passes
  }
}

}  // namespace stash::kernels
