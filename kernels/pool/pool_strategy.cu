// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_strategy.hpp"

#include "pool/nchw/pool_halo_shape.hpp"
#include "pool/nhwc/pool_pixel_shape.hpp"
#include "pool/pool_scatter_shape.hpp"

namespace stash::kernels {
namespace {

constexpr std::int64_t vec16_bytes = 16, group_values = 8;

/// Whether 32 bits hold all positions and distances of the axis, and sums of two.
bool fits_32_bits(const pool_axis& a) {
  constexpr std::int64_t most = 1 << 29;
  return a.in + a.pad < most && (a.kernel - 1) * a.dilation < most && a.stride < most && a.dilation < most;
}
bool fits_32_bits(const pool_geometry& g) {
  return fits_32_bits(g.depth) && fits_32_bits(g.rows) && fits_32_bits(g.columns);
}
/// Whether `count`, a product of sizes, is below 2^bits.
bool below(std::int64_t count, int bits) {
  return static_cast<std::uint64_t>(count) >> bits == 0;
}

/// Whether the axis is cut into windows without a rest.
bool covered(const pool_axis& a) {
  return a.kernel == a.stride && a.pad == 0 && (a.dilation == 1 || a.kernel == 1) && a.in == a.out * a.kernel;
}
bool covered(const pool_geometry& g) {
  return covered(g.depth) && covered(g.rows) && covered(g.columns);
}

/// Whether windows are small squares in one slice: 2 x 2 with stride 2, 3 x 3 with stride 1 or 2.
bool in_small_squares(const pool_geometry& g) {
  const pool_axis &d = g.depth, &r = g.rows, &c = g.columns;
  const bool flat = d.in == 1 && d.out == 1 && d.kernel == 1 && d.stride == 1 && d.pad == 0;
  const bool square = r.kernel == c.kernel && r.stride == c.stride && r.dilation == 1 && c.dilation == 1;
  const bool small = c.kernel == 3 ? c.stride <= 2 : c.kernel == 2 && c.stride == 2;
  return flat && square && small && r.pad < r.kernel && c.pad < c.kernel;
}
bool has_values(const pool_geometry& g) {
  return g.x_values() > 0 && g.y_values() > 0;
}
std::int64_t row_bytes(const pool_geometry& g) {
  return g.columns.in * g.element_bytes;
}

/// Whether windows halve planes of whole vec16s, and codes come in whole groups.
bool in_halves(const pool_geometry& g) {
  return covered(g) && g.rows.kernel == 2 && g.columns.kernel == 2 && row_bytes(g) % vec16_bytes == 0 &&
         g.y_values() % group_values == 0;
}

/// Whether rows are whole vec16s, two at a time (pool_vec16.hpp). Windows are small squares; x has values.
bool in_vec16s(const pool_geometry& g) {
  const pool_axis &r = g.rows, &c = g.columns;
  if (c.kernel != 3 || c.stride != 2 || r.pad > 1 || c.pad > 1 || c.in != 2 * c.out ||
      row_bytes(g) % vec16_bytes != 0)
    return false;
  const std::int64_t pairs = (r.in + 3) / 2, planes = g.samples;
  return below((r.in + 3) * c.in, 31) && below(planes * pairs * (row_bytes(g) / vec16_bytes), 31);
}

/// Whether rows are whole vec16s that follow each other (pool_column_tiles.hpp). The same holds.
bool in_column_tiles(const pool_geometry& g) {
  const pool_axis &r = g.rows, &c = g.columns;
  return c.kernel == 3 && c.stride == 1 && c.pad == 1 && c.in == c.out && row_bytes(g) % vec16_bytes == 0 &&
         below((r.in + 4) * c.in, 31) && below(g.x_values(), 32);
}

/// Whether there are halo tiles for the windows that are large enough for one row (pool_halo_tiles.hpp). The
/// same holds.
bool in_halo_tiles(const pool_geometry& g, pool_source source) {
  const pool_axis &r = g.rows, &c = g.columns;
  constexpr int bits = 29;  // of values of a plane
  const bool known =
      c.stride == 2 ? c.pad <= 1 && r.pad <= 1 : c.pad == 1 && r.pad == 1 && c.in == c.out && r.in == r.out;
  return known && below(c.in * r.in, bits) && below(c.out * r.out, bits) &&
         halo_tile_values(halo_shape_of(r, c), g.element_bytes, source != pool_source::forward,
                          source == pool_source::x) > 0;
}

std::int64_t taps_of(const pool_geometry& g) {
  return g.depth.kernel * g.rows.kernel * g.columns.kernel;
}
/// Eight channels at a time so many are looked at in as little time as a walk takes.
constexpr std::int64_t few_taps = 32;

/// Whether windows have codes of a byte, and few enough positions along the axis that threads go along.
bool in_walks(const pool_geometry& g) {
  constexpr std::int64_t most_of_half_a_byte = 16, most_of_a_byte = 256;
  return taps_of(g) > most_of_half_a_byte && taps_of(g) <= most_of_a_byte &&
         span_of(scatter_axes_of(g).outer) <= tuning::walk_positions;
}

/// What takes any map.
pool_strategy choose_for_any(const pool_geometry& g, pool_source source) {
  if (!has_values(g)) return pool_strategy::one_value;
  if (source == pool_source::forward) return in_walks(g) ? pool_strategy::walk : pool_strategy::one_value;
  return scatter_shape_of(scatter_axes_of(g)).fits() ? pool_strategy::scatter : pool_strategy::one_value;
}

pool_strategy choose_for_planes(const pool_geometry& g, pool_source source) {
  using enum pool_strategy;
  if (source == pool_source::codes_and_tiles) return choose_for_any(g, source);
  if (in_halves(g) && g.depth.kernel <= 2) return g.depth.kernel == 1 ? pairs : cubes;
  if (!in_small_squares(g) || !has_values(g)) return choose_for_any(g, source);
  if (in_vec16s(g) && source != pool_source::codes_and_values) return vec16;
  if (in_column_tiles(g) && source != pool_source::codes_and_values && source != pool_source::codes_and_bits)
    return column_tiles;
  return in_halo_tiles(g, source) ? halo_tiles : choose_for_any(g, source);
}

/// Whether kernels that count in 32 bits take all pixels, and distances in bytes between two.
bool pixels_fit(const pool_geometry& g) {
  return below(g.x_pixels(), 31) && below(g.y_pixels(), 31) && below(g.y_values() / group_values, 32) &&
         below(g.x_pitch * g.element_bytes, 32) && below(g.y_pitch * g.element_bytes, 32);
}

/// Whether threads of two windows each, one above the other, have numbers of 30 bits (pool_last_forward.hpp).
bool in_pixel_pairs(const pool_geometry& g) {
  const std::int64_t vec16s = g.channels * g.element_bytes / vec16_bytes;
  return below(g.samples * ((g.rows.out + 1) / 2) * g.columns.out * vec16s, 30) && pixels_fit(g);
}

/// Whether threads of four pixels each have numbers of 31 bits (pool_packed_backward.hpp).
bool in_packed_pixels(const pool_geometry& g) {
  const auto blocks = [](const pool_axis& a) { return (a.in + a.pad % a.stride + 1) / 2; };
  const std::int64_t groups = g.channels / group_values;
  return below(g.samples * groups * blocks(g.rows) * blocks(g.columns), 31) && pixels_fit(g);
}

/// Whether threads of pixel tiles have numbers of 31 bits, and rows lengths in bytes of 32
/// (pool_pixel_tiles.hpp). `coded`: argmaxes are codes.
bool in_pixel_tiles(const pool_geometry& g, bool coded) {
  const std::int64_t size = g.element_bytes;
  // Of what argmaxes are found in, or codes of half a byte.
  const std::int64_t from_pixel = coded ? g.channels / 2 : g.searched_pitch * size;
  const std::int64_t from_row =
      coded ? g.columns.out * g.channels / 2 : g.columns.in * g.searched_pitch * size;
  return below(pixel_tile_shape(g, coded).units(), 31) && below(from_row, 32) && below(from_pixel, 32) &&
         below(g.columns.in * g.x_pitch * size, 32) && below(g.columns.out * g.y_pitch * size, 32) &&
         pixels_fit(g);
}

pool_strategy choose_for_pixels(const pool_geometry& g, pool_source source) {
  using enum pool_strategy;
  const bool squares = in_small_squares(g) && has_values(g), nine = squares && g.columns.kernel == 3;
  switch (source) {
    case pool_source::forward:
      if (squares && in_pixel_pairs(g)) return pixels;
      return taps_of(g) > few_taps && has_values(g) && in_walks(g) ? walk : eight_channels;
    case pool_source::x:
      if (nine && in_pixel_tiles(g, false)) return pixel_tiles;
      break;
    case pool_source::codes:
    case pool_source::codes_and_bits:
      if (nine && g.columns.stride == 1 && in_pixel_tiles(g, true)) return coded_pixel_tiles;
      if (nine && g.columns.stride == 2 && g.element_bytes == 4) return pixels;
      if (nine && g.columns.stride == 2 && in_packed_pixels(g)) return packed_pixels;
      break;
    case pool_source::codes_and_values:
    case pool_source::codes_and_tiles:
      break;
  }
  return covered(g) ? disjoint : choose_for_any(g, source);
}

}  // namespace

pool_strategy choose(const pool_geometry& layer, pool_source source) {
  if (!fits_32_bits(layer)) return pool_strategy::one_value_of_long;
  if (!layer.aligned) return choose_for_any(layer, source);
  if (layer.layout == pool_layout::channels_first) return choose_for_planes(layer, source);
  return layer.channels % group_values == 0 ? choose_for_pixels(layer, source) : choose_for_any(layer, source);
}

const char* to_string(pool_strategy strategy) {
  constexpr const char* names[] = {"one_value",
                                   "one_value_of_long",
"scatter",
"walk",
                                   "eight_channels",
                                   "disjoint",
                                   "pairs",
                                   "cubes",
                                   "vec16",
                                   "column_tiles",
                                   "halo_tiles",
                                   "pixels",
                                   "packed_pixels",
                                   "pixel_tiles",
                                   "coded_pixel_tiles"};
  return names[static_cast<unsigned>(strategy)];
}

unsigned width_of(pool_strategy strategy) {
  switch (strategy) {
    case pool_strategy::one_value:
    case pool_strategy::one_value_of_long:
    case pool_strategy::scatter:
    case pool_strategy::walk:
    case pool_strategy::vec16:
    case pool_strategy::column_tiles:
    case pool_strategy::halo_tiles:
      return 1;
    default:
      return static_cast<unsigned>(group_values);
  }
}

}  // namespace stash::kernels
