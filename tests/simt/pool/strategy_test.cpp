// SPDX-License-Identifier: Apache-2.0
// Which kernel takes which pooling layer, as a table: docs/kernels.md shows it.

#include "pool/pool_strategy.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace stash::kernels {
namespace {

constexpr auto first = pool_layout::channels_first, last = pool_layout::channels_last;
constexpr pool_source sources[] = {pool_source::forward,         pool_source::codes,
                                   pool_source::codes_and_bits,  pool_source::codes_and_values,
                                   pool_source::codes_and_tiles, pool_source::x};

/// Windows along an axis that are as many as fit, with as much padding after the axis as before it.
pool_axis axis(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad = 0,
               std::int64_t dilation = 1) {
  return {in, (in + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1, kernel, stride, pad, dilation};
}

/// A layer of f32 with square windows over squares of `in`.
pool_geometry layer(pool_layout layout, const pool_axis& side, std::int64_t channels = 64) {
  pool_geometry g{};
  g.layout = layout;
  g.element_bytes = 4;
  g.samples = layout == first ? 32 * channels : 32;
  g.depth = whole_axis;
  g.rows = g.columns = side;
  g.channels = layout == first ? 1 : channels;
  g.x_pitch = g.y_pitch = g.searched_pitch = g.channels;
  g.aligned = true;
  return g;
}
pool_geometry volume(pool_layout layout, const pool_axis& side) {
  pool_geometry g = layer(layout, side, 8);
  g.depth = side;
  return g;
}
pool_geometry of_16_bits(pool_geometry g) {
  g.element_bytes = 2;
  return g;
}

struct row {
  const char* map;
  const char* windows;
  pool_geometry layer;
  const char* expected;  ///< for every source
};

std::vector<row> rows() {
  const char* const whole = "NCHW, rows of whole vec16s";
  const char* const any = "NCHW, rows of any length";
  const char* const eights = "NHWC, channels in groups of eight";
  return {
      {whole, "2x2 of stride 2", layer(first, axis(64, 2, 2)), "pairs pairs pairs pairs scatter pairs"},
      {whole, "2x2x2 of stride 2", volume(first, axis(32, 2, 2)), "cubes cubes cubes cubes scatter cubes"},
      {whole, "3x3 of stride 2, two columns of x for each window", layer(first, axis(112, 3, 2, 1)),
       "vec16 vec16 vec16 halo_tiles scatter vec16"},
      {whole, "3x3 of stride 1 around each element", layer(first, axis(28, 3, 1, 1)),
       "column_tiles column_tiles halo_tiles halo_tiles scatter column_tiles"},
      {any, "2x2 of stride 2", layer(first, axis(13, 2, 2)),
       "halo_tiles halo_tiles halo_tiles halo_tiles scatter halo_tiles"},
      {any, "3x3 of stride 2, padding of at most one", layer(first, axis(55, 3, 2)),
       "halo_tiles halo_tiles halo_tiles halo_tiles scatter halo_tiles"},
      {any, "3x3 of stride 1 around each element", layer(first, axis(35, 3, 1, 1)),
       "halo_tiles halo_tiles halo_tiles halo_tiles scatter halo_tiles"},
      {eights, "2x2 of stride 2", layer(last, axis(56, 2, 2)),
       "pixels disjoint disjoint disjoint disjoint disjoint"},
      {eights, "2x2 of stride 2, a rest of x", layer(last, axis(55, 2, 2)),
       "pixels scatter scatter scatter scatter scatter"},
      {eights, "2x2x2 of stride 2", volume(last, axis(32, 2, 2)),
       "eight_channels disjoint disjoint disjoint disjoint disjoint"},
      {eights, "3x3 of stride 2", layer(last, axis(112, 3, 2, 1)),
       "pixels pixels pixels scatter scatter pixel_tiles"},
      {eights, "3x3 of stride 2, 16 bits", of_16_bits(layer(last, axis(112, 3, 2, 1))),
       "pixels packed_pixels packed_pixels scatter scatter pixel_tiles"},
      {eights, "3x3 of stride 1", layer(last, axis(28, 3, 1, 1)),
       "pixels coded_pixel_tiles coded_pixel_tiles scatter scatter pixel_tiles"},
      {eights, "others of up to 32 taps", layer(last, axis(28, 5, 1, 2)),
       "eight_channels scatter scatter scatter scatter scatter"},
      {eights, "others of up to 256 taps", layer(last, axis(28, 9, 1, 4)),
       "walk scatter scatter scatter scatter scatter"},
      {"any", "others of up to 16 taps", layer(first, axis(28, 3, 1, 2, 2)),
       "one_value scatter scatter scatter scatter scatter"},
      {"", "others of up to 256 taps", layer(first, axis(28, 5, 1, 2)),
       "walk scatter scatter scatter scatter scatter"},
      {"", "others of more taps, or longer", layer(first, axis(200, 3, 1, 0, 50)),
       "one_value one_value one_value one_value one_value one_value"},
      {"", "the same beyond 32 bits", layer(first, axis(std::int64_t{1} << 30, 3, 2)),
       "one_value_of_long one_value_of_long one_value_of_long one_value_of_long one_value_of_long "
       "one_value_of_long"},
  };
}

std::vector<std::string> chosen(const pool_geometry& layer) {
  std::vector<std::string> names;
  for (const pool_source source : sources)
    names.emplace_back(to_string(choose(layer, source)));
  return names;
}

/// The table as docs/kernels.md has it.
std::string table() {
  std::ostringstream out;
  out << "| map | windows | forward | codes | and bits | and values | and tiles | x |\n"
      << "|---|---|---|---|---|---|---|---|\n";
  const char* map = "";
  for (const row& r : rows()) {
    out << "| " << (std::string(r.map) == map ? "" : r.map) << " | " << r.windows;
    map = r.map;
    for (const std::string& name : chosen(r.layer))
      out << " | `" << name << '`';
    out << " |\n";
  }
  return out.str();
}

TEST(pool_strategy, takes_the_kernel_of_the_table) {
  for (const row& r : rows()) {
    std::string names;
    for (const std::string& name : chosen(r.layer))
      names += (names.empty() ? "" : " ") + name;
    EXPECT_EQ(names, r.expected) << r.map << ": " << r.windows;
  }
}

TEST(pool_strategy, table_is_that_of_the_document) {
  std::ifstream file(STASH_KERNELS_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string begin = "<!-- pool strategies -->\n", text = page.str();
  const std::size_t from = text.find(begin), to = text.find("<!-- /pool strategies -->");
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos);
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), table());
}

}  // namespace
}  // namespace stash::kernels
