// SPDX-License-Identifier: Apache-2.0
#include "pool/pool.hpp"

#include <algorithm>
#include <initializer_list>

#include "tiles/dispatch.hpp"
#include "backend.hpp"
#include "pool/pool_axes.hpp"
#include "pool/pool_backward.hpp"
#include "pool/nchw/pool_halo_backward.hpp"
#include "pool/nchw/pool_halo_forward.hpp"
#include "pool/nhwc/pool_coded_pixel_tiles.hpp"
#include "pool/nchw/pool_cubes.hpp"
#include "pool/pool_disjoint.hpp"
#include "pool/pool_forward.hpp"
#include "pool/nhwc/pool_last_backward.hpp"
#include "pool/nhwc/pool_last_forward.hpp"
#include "pool/nhwc/pool_packed_backward.hpp"
#include "pool/nchw/pool_pairs.hpp"
#include "pool/nchw/pool_vec16_backward.hpp"
#include "pool/nchw/pool_vec16_forward.hpp"
#include "pool/nchw/pool_column_backward.hpp"
#include "pool/nchw/pool_column_forward.hpp"
#include "pool/nhwc/pool_pixel_tiles_backward.hpp"
#include "pool/pool_tiles.hpp"

namespace stash::kernels {
namespace {

/// Whether 32 bits hold all positions and distances of the axis, and sums of two.
bool fits_32_bits(const window_axis& a) {
  constexpr std::int64_t most = 1 << 29;
  return a.in + a.pad < most && (a.kernel - 1) * a.dilation < most && a.stride < most && a.dilation < most;
}

/// Whether the axis is cut into windows without a rest.
bool non_overlapping(const window_axis& a) {
  return a.kernel == a.stride && a.pad == 0 && (a.dilation == 1 || a.kernel == 1) && a.in == a.out * a.kernel;
}

/// Elements from pixel to pixel.
std::uint64_t pitch_of(const const_tensor_view& map, const pool_window& window) {
  return window.layout == pool_layout::channels_first ? 1 : static_cast<std::uint64_t>(map.pitch());
}

/// A layer and the width of its kernels.
struct pool_call {
  const char* name;
  const execution_context& context;
  pool_job job;
  unsigned width;
  bool small;     ///< positions have 32 bits
  bool disjoint;  ///< windows do not overlap and cover x
  bool pairs;     ///< the layout is NCHW, and kernels of width eight are those for windows of 2 x 2
  bool cubes;     ///< the same of 2 x 2 x 2
  bool planes;    ///< there may be kernels for small squares in planes, in NCHW
  bool pixels;    ///< the same for pixels with groups of channels
};

/// Whether rows, or pixels with groups of channels, have kernels for windows like these: 2 x 2 with stride 2,
/// 3 x 3 with stride 1 or 2. Samples, channels of NCHW, and slices are planes alike; so y must have all
/// slices.
bool has_kernels(const pool_job& job) {
  const window_axis &d = job.depth, &r = job.rows, &c = job.columns;
  const bool flat = d.kernel == 1 && d.stride == 1 && d.pad == 0 && d.in == d.out;
  const bool square = r.kernel == c.kernel && r.stride == c.stride && r.dilation == 1 && c.dilation == 1;
  const bool known = c.kernel == 3 ? c.stride <= 2 : c.kernel == 2 && c.stride == 2;
  return flat && square && known && r.pad < r.kernel && c.pad < c.kernel;
}

/// `maps` are all that the kernel touches.
pool_call call_of(const char* name, const const_tensor_view& x, const const_tensor_view& y,
                  std::initializer_list<const_tensor_view> maps, const pool_window& window,
                  framework_rule rule, const execution_context& context) {
  pool_call call{name, context, {}, 1, false, false, false, false, false, false};
  pool_job& job = call.job;
  const bool first = window.layout == pool_layout::channels_first;
  set_axes(job, x.dims, y.dims, window);
  job.channels = first ? 1 : static_cast<std::uint64_t>(x.dims.inner());
  job.x_pitch = pitch_of(x, window);
  job.y_pitch = pitch_of(y, window);
  job.type = element_type_of(x.type);
  job.nan_wins = rule == framework_rule::pytorch;

  const bool aligned = std::all_of(
      maps.begin(), maps.end(), [](const const_tensor_view& map) { return device_tensor_of(map).vectors; });
  call.small = fits_32_bits(job.depth) && fits_32_bits(job.rows) && fits_32_bits(job.columns);
  call.disjoint = non_overlapping(job.depth) && non_overlapping(job.rows) && non_overlapping(job.columns);
  const bool halves = first && call.disjoint && job.rows.kernel == 2 && job.columns.kernel == 2 &&
                      x.dims.inner() * static_cast<std::int64_t>(size_of(x.type)) % 16 == 0 &&
                      y.elements() % group_elements == 0;
  call.pairs = halves && job.depth.kernel == 1;
  call.cubes = halves && job.depth.kernel == 2;
  const bool eights = first ? call.pairs || call.cubes : job.channels % group_elements == 0;
  if (aligned && call.small && eights) call.width = group_elements;
  call.planes = aligned && call.small && first && call.width == 1 && has_kernels(job);
  call.pixels = !first && call.width != 1 && has_kernels(job);
  if (call.planes || call.pixels) job.depth = axis_of(1, 1, 1, 1, 0, 1);
  const std::uint64_t channel_units = job.channels / call.width;
  job.by_units = divisor_of(std::max<std::int64_t>(static_cast<std::int64_t>(channel_units), 1));
  job.x_units = static_cast<std::uint64_t>(x.elements()) / call.width;
  job.y_units = static_cast<std::uint64_t>(y.elements()) / call.width;
  return call;
}

/// Calls body(zero of the element's bits, width, zero of the type of positions).
template <class Body>
void with_kernel(dtype type, const pool_call& call, const Body& body) {
  with_element(type, [&](auto bits) {
    using one = std::integral_constant<unsigned, 1>;
    using eight = std::integral_constant<unsigned, group_elements>;
    if (call.width != 1) return body(bits, eight{}, std::int32_t{});
    if (call.small) return body(bits, one{}, std::int32_t{});
    body(bits, one{}, std::int64_t{});
  });
}

/// Calls body(size of windows, their distance), both constants.
template <class Body>
void with_window(const pool_call& call, const Body& body) {
  using two = std::integral_constant<unsigned, 2>;
  using three = std::integral_constant<unsigned, 3>;
  if (call.job.columns.kernel == 2) return body(two{}, two{});
  if (call.job.columns.stride == 2) return body(three{}, two{});
  body(three{}, std::integral_constant<unsigned, 1>{});
}

/// Calls body(columns before x), a constant.
template <class Body>
void with_padding(const pool_call& call, const Body& body) {
  if (call.job.columns.pad == 0) return body(std::integral_constant<unsigned, 0>{});
  body(std::integral_constant<unsigned, 1>{});
}

/// Whether rows are whole vec16s, two at a time (pool_vec16.hpp). x has values.
bool in_vec16s(const pool_call& call, dtype type) {
  const window_axis &r = call.job.rows, &c = call.job.columns;
  const auto width = static_cast<std::uint64_t>(c.in), height = static_cast<std::uint64_t>(r.in);
  const std::uint64_t bytes = width * size_of(type);
  if (!call.planes || c.kernel != 3 || c.stride != 2 || r.pad > 1 || c.pad > 1 || c.in != 2 * c.out ||
      bytes % 16 != 0)
    return false;
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  const std::uint64_t pairs = (height + 3) / 2;
  return (height + 3) * width < most && call.job.x_units / (height * width) * pairs * (bytes / 16) < most;
}
/// Rows [first_row, rows) of every plane, some at a time.
vec16_grid vec16_grid_of(const pool_call& call, dtype type, std::int64_t first_row, std::int64_t rows,
                         std::int64_t at_a_time) {
  const pool_job& job = call.job;
  const std::int64_t vec16s = job.columns.in * static_cast<std::int64_t>(size_of(type)) / 16;
  const std::int64_t groups = (rows - first_row + at_a_time - 1) / at_a_time;
  const std::int64_t x_plane = job.rows.in * job.columns.in, y_plane = job.rows.out * job.columns.out;
  const auto planes = static_cast<std::int64_t>(job.x_units) / x_plane;
  return {divisor_of(vec16s),
          divisor_of(groups),
          static_cast<std::int32_t>(first_row),
          static_cast<std::uint32_t>(planes * groups * vec16s),
          static_cast<std::uint32_t>(x_plane),
          static_cast<std::uint32_t>(y_plane)};
}

/// Whether rows are whole vec16s that follow each other (pool_column_tiles.hpp). x has values.
bool in_column_tiles(const pool_call& call, dtype type) {
  const window_axis &r = call.job.rows, &c = call.job.columns;
  const auto width = static_cast<std::uint64_t>(c.in), height = static_cast<std::uint64_t>(r.in);
  if (!call.planes || c.kernel != 3 || c.stride != 1 || c.pad != 1 || c.in != c.out ||
      width * size_of(type) % 16 != 0)
    return false;
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  return (height + 4) * width < most && call.job.x_units < most * 2;
}
/// Tiles that are worth as many threads: with fewer, multiprocessors would wait for others.
std::uint64_t enough_tiles() {
  return multiprocessors() * tuning::pool_tiles_of_processor;
}

/// Rows of every plane, of x or y, one column tile below the other.
column_tile_grid column_tile_grid_of(const pool_call& call, dtype type, std::int64_t rows) {
  const pool_job& job = call.job;
  const std::int64_t vec16s = job.columns.in * static_cast<std::int64_t>(size_of(type)) / 16;
  const std::int64_t x_plane = job.rows.in * job.columns.in, y_plane = job.rows.out * job.columns.out;
  const std::int64_t planes = static_cast<std::int64_t>(job.x_units) / x_plane;
  const auto parts = [](std::int64_t all, std::int64_t most) { return (all + most - 1) / most; };
  constexpr std::int64_t pair = 2;
  const auto rows_of = [&](std::int64_t groups) { return parts(parts(rows, groups), pair) * pair; };
  std::int64_t groups = parts(rows, tuning::long_pool_tile_rows);
  const auto enough = static_cast<std::int64_t>(enough_tiles());
  while (planes * groups * vec16s < enough && rows_of(2 * groups) >= tuning::least_pool_tile_rows)
    groups *= 2;
  const std::int64_t at_a_time = rows_of(groups);
  groups = parts(rows, at_a_time);
  return {divisor_of(vec16s),
          divisor_of(groups),
          static_cast<std::uint32_t>(at_a_time),
          static_cast<std::uint32_t>(planes * groups * vec16s),
          static_cast<std::uint32_t>(x_plane),
          static_cast<std::uint32_t>(y_plane)};
}

/// Tiles of rows of any length (pool_halo_tiles.hpp); none, with no values, if the windows have no halo
/// tiles.
halo_grid halo_tiles_of(const pool_call& call, dtype type, bool backward, bool searches = false) {
  const window_axis &r = call.job.rows, &c = call.job.columns;
  constexpr std::int64_t most = 1 << 29;  // values of a plane
  const bool fits =
      c.stride == 2 ? c.pad <= 1 && r.pad <= 1 : c.pad == 1 && r.pad == 1 && c.in == c.out && r.in == r.out;
  if (!call.planes || !fits || call.job.x_units == 0 || call.job.y_units == 0 || c.in * r.in >= most ||
      c.out * r.out >= most)
    return {};
  const auto small = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const halo_shape shape{small(c.in),     small(r.in),     small(c.out), small(r.out),
                         small(c.kernel), small(c.stride), small(r.pad), small(c.pad)};
  return halo_grid_of(shape, call.job.x_units, call.job.y_units, size_of(type), backward, searches);
}
std::uint64_t tiles_of_map(const halo_grid& grid, std::uint64_t values) {
  return (values + grid.block_values - 1) / grid.block_values;
}

/// Values of y, and those that the planes are padded with.
std::uint64_t padded_values(const tensor_view& y, const pool_planes& planes) {
  auto values = static_cast<std::uint64_t>(y.elements());
  for (const code_plane& p : {planes.index, planes.code, planes.gradient}) {
    if (p.data != nullptr) values = std::max(values, p.bytes / p.bits * group_elements);
  }
  return values;
}

void forward_halo_tiles(const pool_call& call, const halo_grid& grid, bool relu, const const_tensor_view& x,
                        const tensor_view& y, const pool_planes& planes) {
  with_element(x.type, [&](auto bits) {
    with_window(call, [&](auto kernel, auto stride) {
      launch(call.name, call.context, tiles_of_map(grid, padded_values(y, planes)), halo_threads,
             pool_forward_halo_tiles<decltype(bits), kernel, stride>, call.job, grid, relu,
             static_cast<const void*>(x.data), static_cast<void*>(y.data), planes);
    });
  });
}

/// Blocks of the kernels for pairs and cubes.
std::uint64_t pair_blocks(const pool_call& call, dtype type, std::uint64_t values) {
  std::uint64_t block_windows = 0;
  with_element(type, [&](auto bits) {
    using element = decltype(bits);
    block_windows =
        call.cubes ? cube_positions<element>::block_windows : pair_positions<element>::block_windows;
  });
  return (values + block_windows - 1) / block_windows;
}

void forward_vec16(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
                   const pool_planes& planes) {
  const vec16_grid grid = vec16_grid_of(call, x.type, 0, call.job.rows.out, 2);
  with_element(x.type, [&](auto bits) {
    with_padding(call, [&](auto pad) {
      launch(call.name, call.context, pool_blocks(grid.units), pool_threads,
             pool_forward_vec16<decltype(bits), pad>, call.job, grid, relu, static_cast<const void*>(x.data),
             static_cast<void*>(y.data), planes);
    });
  });
}

void forward_column_tiles(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
                          const pool_planes& planes) {
  const column_tile_grid grid = column_tile_grid_of(call, x.type, call.job.rows.out);
  with_element(x.type, [&](auto bits) {
    launch(call.name, call.context, pool_blocks(grid.units), pool_threads,
           pool_forward_column_tiles<decltype(bits)>, call.job, grid, relu, static_cast<const void*>(x.data),
           static_cast<void*>(y.data), planes);
  });
}

/// Whether kernels that count in 32 bits take all pixels, and distances in bytes between two.
bool pixels_fit(const pool_job& job, std::uint64_t size) {
  const std::uint64_t x_pixels = job.x_units * group_elements / job.channels;
  const std::uint64_t y_pixels = job.y_units * group_elements / job.channels;
  return x_pixels >> 31 == 0 && y_pixels >> 31 == 0 && job.y_units >> 32 == 0 &&
         job.x_pitch * size >> 32 == 0 && job.y_pitch * size >> 32 == 0;
}

/// False if there are too many pixels, or if they lie too far from each other.
bool forward_pixels(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
                    const pool_planes& planes) {
  const pool_job& job = call.job;
  const std::uint64_t size = size_of(x.type), x_pixels = job.x_units * group_elements / job.channels;
  const auto vec16s = job.channels * size / 16;
  const auto of_rows = static_cast<std::uint64_t>((job.rows.out + paired - 1) / paired);
  const auto maps = x_pixels / static_cast<std::uint64_t>(job.rows.in * job.columns.in);
  const std::uint64_t units = maps * of_rows * static_cast<std::uint64_t>(job.columns.out) * vec16s;
  const std::uint64_t x_step = job.x_pitch * size, y_step = job.y_pitch * size;
  if (units >> 30 != 0 || !pixels_fit(job, size)) return false;
  const pixel_pairs pairs{divisor_of(static_cast<std::int64_t>(vec16s)),
                          divisor_of(static_cast<std::int64_t>(of_rows)),
                          static_cast<std::uint32_t>(units),
                          static_cast<std::uint32_t>(job.channels / group_elements),
                          static_cast<std::uint32_t>(x_step),
                          static_cast<std::uint32_t>(y_step)};
  // A group of padding has as many threads as one of y.
  const std::uint64_t padding = (padded_values(y, planes) / group_elements - job.y_units) * size / 2;
  with_element(x.type, [&](auto bits) {
    with_window(call, [&](auto kernel, auto stride) {
      launch(call.name, call.context, pool_blocks(units + padding), pool_threads,
             pool_forward_pixels<decltype(bits), kernel, stride>, job, pairs, relu,
             static_cast<const void*>(x.data), static_cast<void*>(y.data), planes);
    });
  });
  return true;
}

void forward(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
             const pool_planes& planes) {
  if (y.elements() > 0 && in_vec16s(call, x.type)) return forward_vec16(call, relu, x, y, planes);
  if (y.elements() > 0 && in_column_tiles(call, x.type))
    return forward_column_tiles(call, relu, x, y, planes);
  if (call.pixels && y.elements() > 0 && forward_pixels(call, relu, x, y, planes)) return;
  const halo_grid halo = halo_tiles_of(call, x.type, false);
  if (halo.block_values > 0) return forward_halo_tiles(call, halo, relu, x, y, planes);
  const std::uint64_t values = padded_values(y, planes);
  const bool pairs = call.pairs && call.width != 1, cubes = call.cubes && call.width != 1;
  const std::uint64_t blocks =
      pairs || cubes ? pair_blocks(call, x.type, values) : pool_blocks(values / call.width);
  with_kernel(x.type, call, [&](auto bits, auto width, auto p) {
    const auto kernel = pairs   ? pool_forward_pairs<decltype(bits)>
                        : cubes ? pool_forward_cubes<decltype(bits)>
                                : pool_forward<decltype(bits), width, decltype(p)>;
    launch(call.name, call.context, blocks, pool_threads, kernel, call.job, relu,
           static_cast<const void*>(x.data), static_cast<void*>(y.data), planes);
  });
}

template <class Source>
void backward_vec16(const pool_call& call, const const_tensor_view& dy, const Source& source,
                    const tensor_view& dx) {
  const window_axis& rows = call.job.rows;
  const vec16_grid grid = vec16_grid_of(call, dx.type, -rows.pad, rows.in, 2 * vec16_row_pairs);
  with_element(dx.type, [&](auto bits) {
    with_padding(call, [&](auto pad) {
      launch(call.name, call.context, pool_blocks(grid.units), pool_threads,
             pool_backward_vec16<decltype(bits), pad, Source>, call.job, grid,
             static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
    });
  });
}

template <class Source>
void backward_halo_tiles(const pool_call& call, const halo_grid& grid, const const_tensor_view& dy,
                         const Source& source, const tensor_view& dx) {
  with_element(dx.type, [&](auto bits) {
    with_window(call, [&](auto kernel, auto stride) {
      launch(call.name, call.context, tiles_of_map(grid, grid.values), halo_threads,
             pool_backward_halo_tiles<decltype(bits), kernel, stride, Source>, call.job, grid,
             static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
    });
  });
}

template <class Source>
void backward_column_tiles(const pool_call& call, const const_tensor_view& dy, const Source& source,
                           const tensor_view& dx) {
  const column_tile_grid grid = column_tile_grid_of(call, dx.type, call.job.rows.in);
  with_element(dx.type, [&](auto bits) {
    launch(call.name, call.context, pool_blocks(grid.units), pool_threads,
           pool_backward_column_tiles<decltype(bits), Source>, call.job, grid,
           static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
  });
}

/// False if there are too many pixels, or if they lie too far from each other.
bool backward_pixels(const pool_call& call, const const_tensor_view& dy, const encoded_argmaxes& source,
                     const tensor_view& dx) {
  constexpr std::int64_t side = 2;
  const window_axis &rows = call.job.rows, &columns = call.job.columns;
  const auto before = [](const window_axis& a) { return static_cast<std::int32_t>(a.pad % a.stride); };
  const auto blocks_of = [&](const window_axis& a) { return (a.in + before(a) + side - 1) / side; };
  const std::uint64_t maps = call.job.x_units / static_cast<std::uint64_t>(rows.in * columns.in);
  const std::uint64_t units = maps * static_cast<std::uint64_t>(blocks_of(rows) * blocks_of(columns));
  const auto run = [&](const auto& kernel, const auto& blocks) {
    launch(call.name, call.context, pool_blocks(units), pool_threads, kernel, call.job, blocks,
           static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
  };
  const divisor by_rows = divisor_of(blocks_of(rows)), by_columns = divisor_of(blocks_of(columns));
  const std::uint64_t size = size_of(dx.type);
  if (size == 2) {
    if (units >> 31 != 0 || !pixels_fit(call.job, size)) return false;
    run(pool_backward_packed,
        packed_blocks{call.job.by_units, by_rows, by_columns, -before(rows), -before(columns),
                      static_cast<std::uint32_t>(units), static_cast<std::uint32_t>(call.job.x_pitch * size),
                      static_cast<std::uint32_t>(call.job.y_pitch * size)});
    return true;
  }
  const pixel_blocks blocks{by_rows, by_columns, -before(rows), -before(columns), units};
  run(pool_backward_pixels, blocks);
  return true;
}

/// How many vec16s of a pixel neighbours have: so many that their accesses fill lines of memory, and so few
/// that most of what is next to a pixel tile is the same block's.
std::uint64_t neighbouring_vec16s(std::uint64_t vec16s) {
  constexpr std::uint64_t most = 32, least = 8;
  for (std::uint64_t count = std::min(vec16s, most); count >= least; --count) {
    if (vec16s % count == 0) return count;
  }
  return vec16s;
}

/// False if there are too many pixels, or if they lie too far from each other.
template <class Bits, unsigned Stride, class Source>
bool backward_pixel_tiles(const pool_call& call, const const_tensor_view& dy, const Source& source,
                        const tensor_view& dx) {
  constexpr bool coded = !std::is_same_v<Source, searched_argmaxes>;
  constexpr std::uint64_t size = sizeof(Bits), stride = Stride;
  const pool_job& job = call.job;
  const window_axis &rows = job.rows, &columns = job.columns;
  const auto before = [](const window_axis& a) { return static_cast<std::uint64_t>(a.pad) % stride; };
  const auto parts = [](std::uint64_t all, std::uint64_t most) { return (all + most - 1) / most; };
  const auto length = [](std::int64_t in) { return static_cast<std::uint64_t>(in); };
  const std::uint64_t vec16s = job.channels / vec16_elements<Bits>;
  const std::uint64_t windows = parts(length(rows.in) + before(rows), stride);
  const std::uint64_t tiles =
      parts(length(columns.in) + before(columns), coded ? coded_columns : pixel_tile_columns<Bits, Stride>);
  const std::uint64_t maps = length(dx.elements()) / (length(rows.in) * length(columns.in) * job.channels);
  const auto units = [&](std::uint64_t groups) { return maps * groups * tiles * vec16s; };
  const std::uint64_t enough = enough_tiles();
  std::uint64_t groups =
      parts(windows, (coded ? tuning::long_pool_tile_rows : tuning::pool_tile_rows) / stride);
  while (units(groups) < enough && parts(windows, 2 * groups) * stride >= tuning::least_pool_tile_rows)
    groups *= 2;
  const std::uint64_t steps = parts(windows, groups);
  groups = parts(windows, steps);

  const auto row_bytes = [&](std::int64_t pixels, std::uint64_t pitch) {
    return length(pixels) * pitch * size;
  };
  const std::uint64_t dx_row = row_bytes(columns.in, job.x_pitch);
  const std::uint64_t y_row = row_bytes(columns.out, job.y_pitch);
  // Argmaxes are found in rows of x, or are codes of half a byte.
  std::uint64_t from_row = length(columns.out) * job.channels / 2, from_step = job.channels / 2;
  if constexpr (!coded) {
    from_row = row_bytes(columns.in, source.x_pitch);
    from_step = source.x_pitch * size;
  }
  if (units(groups) >> 31 != 0 || (from_row | from_step | dx_row | y_row) >> 32 != 0 ||
      !pixels_fit(job, size))
    return false;
  const auto map_of = [](std::uint64_t row, std::uint64_t step) {
    return pixel_tile_map{static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(row)};
  };
  const std::uint64_t adjacent = neighbouring_vec16s(vec16s);
  const auto by = [](std::uint64_t value) { return divisor_of(static_cast<std::int64_t>(value)); };
  static_assert(tuning::pool_tile_rows <= 32 && tuning::long_pool_tile_rows <= 32);
  const pixel_tile_grid grid{by(adjacent),
                           by(tiles),
                           by(vec16s / adjacent),
                           by(groups),
                           -static_cast<std::int32_t>(before(rows)),
                           -static_cast<std::int32_t>(before(columns)),
                           static_cast<std::uint32_t>(steps),
                           static_cast<std::uint32_t>(units(groups)),
                           map_of(from_row, from_step),
                           map_of(dx_row, job.x_pitch * size),
                           map_of(y_row, job.y_pitch * size)};
  const auto run = [&](const auto& kernel) {
    launch(call.name, call.context, pool_blocks(grid.units), pool_threads, kernel, job, grid,
           static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
  };
  if constexpr (coded) {
    run(pool_backward_coded_pixel_tiles<Bits, Source>);
  } else {
    run(pool_backward_pixel_tiles<Bits, Stride>);
  }
  return true;
}
bool backward_pixel_tiles(const pool_call& call, const const_tensor_view& dy, const searched_argmaxes& source,
                        const tensor_view& dx) {
  bool done = false;
  with_element(dx.type, [&](auto bits) {
    using element = decltype(bits);
    done = call.job.columns.stride == 1 ? backward_pixel_tiles<element, 1>(call, dy, source, dx)
                                        : backward_pixel_tiles<element, 2>(call, dy, source, dx);
  });
  return done;
}

bool backward_coded_pixel_tiles(const pool_call& call, const const_tensor_view& dy,
                              const encoded_argmaxes& source, const tensor_view& dx) {
  bool done = false;
  with_element(dx.type, [&](auto bits) {
    using element = decltype(bits);
    done = source.passing == pass_source::plane
               ? backward_pixel_tiles<element, 1>(call, dy, plane_argmaxes{source}, dx)
               : backward_pixel_tiles<element, 1>(call, dy, source, dx);
  });
  return done;
}

template <class Source>
void backward(const pool_call& call, const const_tensor_view& dy, const Source& source,
              const tensor_view& dx) {
  constexpr bool has_pairs = !std::is_same_v<Source, tiled_argmaxes>;
  const bool has_values = dx.elements() > 0 && dy.elements() > 0;
  const bool vec16s = has_values && in_vec16s(call, dx.type);
  const bool column_tiles = has_values && in_column_tiles(call, dx.type);
  const bool pixels = has_values && call.pixels && call.job.columns.kernel == 3;
  if constexpr (std::is_same_v<Source, searched_argmaxes>) {
    if (vec16s) return backward_vec16(call, dy, source, dx);
    if (column_tiles) return backward_column_tiles(call, dy, source, dx);
    const halo_grid halo = halo_tiles_of(call, dx.type, true, true);
    if (halo.block_values > 0) return backward_halo_tiles(call, halo, dy, source, dx);
    if (pixels && backward_pixel_tiles(call, dy, source, dx)) return;
  }
  if constexpr (std::is_same_v<Source, encoded_argmaxes>) {
    const bool looks = source.passing == pass_source::dense || source.passing == pass_source::cast;
    if (vec16s && source.passing == pass_source::plane)
      return backward_vec16(call, dy, plane_argmaxes{source}, dx);
    if (vec16s && !looks) return backward_vec16(call, dy, source, dx);
    if (column_tiles && !looks && source.passing != pass_source::plane)
      return backward_column_tiles(call, dy, source, dx);
    const halo_grid halo = halo_tiles_of(call, dx.type, true);
    if (halo.block_values > 0) return backward_halo_tiles(call, halo, dy, source, dx);
    if (pixels && !looks &&
        (call.job.columns.stride == 1 ? backward_coded_pixel_tiles(call, dy, source, dx)
                                      : backward_pixels(call, dy, source, dx)))
      return;
  }
  const auto run = [&](std::uint64_t blocks, const auto& kernel) {
    launch(call.name, call.context, blocks, pool_threads, kernel, call.job, static_cast<const void*>(dy.data),
           source, static_cast<void*>(dx.data));
  };
  with_kernel(dx.type, call, [&](auto bits, auto width, auto p) {
    using element = decltype(bits);
    if (call.width == 1 || !call.disjoint)
      return run(pool_blocks(call.job.x_units), pool_backward<element, width, decltype(p), Source>);
    if constexpr (has_pairs) {
      if (call.pairs || call.cubes) {
        return run(pair_blocks(call, dx.type, static_cast<std::uint64_t>(dy.elements())),
                   call.pairs ? pool_backward_pairs<element, Source> : pool_backward_cubes<element, Source>);
      }
    }
    run(pool_blocks(call.job.y_units), pool_backward_disjoint<element, Source>);
  });
}

/// Kernels that take any layout.
pool_call without_pairs(pool_call call, const const_tensor_view& x, const const_tensor_view& y) {
  if ((!call.pairs && !call.cubes) || call.width == 1) return call;
  call.pairs = call.cubes = false;
  call.width = 1;
  call.job.by_units = divisor_of(static_cast<std::int64_t>(call.job.channels));
  call.job.x_units = static_cast<std::uint64_t>(x.elements());
  call.job.y_units = static_cast<std::uint64_t>(y.elements());
  return call;
}

encoded_argmaxes argmaxes_of(const const_encoded_view& taps, const pool_window& window) {
  encoded_argmaxes w{};
  w.taps = static_cast<const std::uint8_t*>(taps.data);
  w.bits = tap_bits(window);
  w.report = taps.report;
  return w;
}

/// Argmaxes from window_index, signs from the dense pooled output.
encoded_argmaxes argmaxes_of(const const_encoded_view& index, const const_tensor_view& y,
                           const pool_window& window) {
  encoded_argmaxes w = argmaxes_of(index, window);
  w.passing = pass_source::dense;
  w.y = y.data;
  w.y_pitch = pitch_of(y, window);
  return w;
}

}  // namespace

namespace {
constexpr const char* backward_name = "max_pool_backward";
constexpr const char* relu_backward_name = "relu_max_pool_backward";
}  // namespace

void device_kernels::max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                      const encoded_view& index, framework_rule rule, const execution_context& context) const {
  pool_planes planes;
  if (index.data != nullptr) planes.index = plane_of(index, y.elements(), tap_bits(window));
  planes.index_report = index.report;
  forward(call_of("max_pool_forward", x, y, {x, y}, window, rule, context), false, x, y, planes);
}

void device_kernels::max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index, const tensor_view& dx,
                       const pool_window& window, const execution_context& context) const {
  const pool_call call =
      call_of(backward_name, dx, dy, {dx, dy}, window, framework_rule::tensorflow, context);
  backward(call, dy, argmaxes_of(index.bytes, window), dx);
}

void device_kernels::max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                       const pool_window& window, framework_rule rule, const execution_context& context) const {
  const pool_call call = call_of(backward_name, dx, dy, {dx, dy, x}, window, rule, context);
  backward(call, dy, searched_argmaxes{x.data, pitch_of(x, window), false}, dx);
}

void device_kernels::relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                           const encoded_view& code, const encoded_view& index, framework_rule rule,
                           const execution_context& context) const {
  const std::int64_t elements = y.elements();
  pool_planes planes;
  if (index.data != nullptr) planes.index = plane_of(index, elements, tap_bits(window));
  if (code.data != nullptr) planes.code = plane_of(code, elements, tap_bits(window));
  if (planes.code.bits == 2) {
    planes.gradient = {planes.code.data + planes.code.bytes, plane_bytes(elements, 1), 1};
  }
  planes.index_report = index.report;
  planes.code_report = code.report;
  forward(call_of("relu_max_pool_forward", x, y, {x, y}, window, rule, context), true, x, y, planes);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code,
                            const tensor_view& dx, const pool_window& window,
                            const execution_context& context) const {
  const pool_call call =
      call_of(relu_backward_name, dx, dy, {dx, dy}, window, framework_rule::tensorflow, context);
  encoded_argmaxes w = argmaxes_of(code.bytes, window);
  w.tap_needs_pass = true;
  w.passing = pass_source::code;
  if (w.bits == 2) {
    w.passing = pass_source::plane;
    w.plane = w.taps + plane_bytes(dy.elements(), w.bits);
  }
  backward(call, dy, w, dx);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                            const encoded_tensor& y_stash,
                            const tensor_view& dx, const pool_window& window, framework_rule rule,
                            const execution_context& context) const {
  const pool_call call = call_of(relu_backward_name, dx, dy, {dx, dy}, window, rule, context);
  if (y_stash.how.kind == encoding_kind::raw) {
    const const_tensor_view y{y_stash.bytes.data, dy.type, memory_space::device, dy.dims, 0};
    return backward(call, dy, argmaxes_of(index.bytes, y, window), dx);
  }
  if (y_stash.how.kind == encoding_kind::bitmap || y_stash.how.kind == encoding_kind::csr) {
    const const_tensor_view shape_of{nullptr, dy.type, memory_space::device, shape{dy.elements()}, 0};
    const tiled_argmaxes w{argmaxes_of(index.bytes, window), device_tiles_of(y_stash.how, shape_of, y_stash.bytes),
                          y_stash.how.kind == encoding_kind::csr};
    return backward(without_pairs(call, dx, dy), dy, w, dx);
  }
  encoded_argmaxes w = argmaxes_of(index.bytes, window);
  if (y_stash.how.kind == encoding_kind::sign_mask) {
    w.passing = pass_source::plane;
    w.plane = static_cast<const std::uint8_t*>(y_stash.bytes.data);
  } else {
    w.passing = pass_source::cast;
    w.cast = device_cast_of(y_stash.how, dy.type, static_cast<std::uint64_t>(dy.elements()), y_stash.bytes.data);
    with_code_size(y_stash.how.values, [&](auto bits, auto scaled) {
      w.cast_bits = bits;
      w.cast_scaled = scaled;
    });
  }
  backward(call, dy, w, dx);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                            const const_tensor_view& y, const tensor_view& dx, const pool_window& window,
                            framework_rule rule, const execution_context& context) const {
  const pool_call call = call_of(relu_backward_name, dx, dy, {dx, dy, y}, window, rule, context);
  backward(call, dy, argmaxes_of(index.bytes, y, window), dx);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                            const pool_window& window, framework_rule rule,
                            const execution_context& context) const {
  const pool_call call = call_of(relu_backward_name, dx, dy, {dx, dy, x}, window, rule, context);
  backward(call, dy, searched_argmaxes{x.data, pitch_of(x, window), true}, dx);
}

}  // namespace stash::kernels
