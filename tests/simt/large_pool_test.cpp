// SPDX-License-Identifier: Apache-2.0
// Pooling of maps of more values than 32 bits count, in many samples or in one row.

#include "simt/large_maps.hpp"
#include "stash/pool.hpp"

namespace stash {
namespace {

using namespace test;

struct layer {
  const char* name;
  pool_window window;
  shape x_all, x_end, y_all, y_end;
};

/// Any values, of which many are equal; gradients without NaN, of which a sum keeps any one.
tensor map_values(dtype type, std::int64_t count, std::uint32_t seed, bool gradients) {
  tensor t = ending_values(type, count, seed);
  const std::uint32_t infinity = type == dtype::f32 ? 0x7f800000 : 0x7c00;
  const std::uint32_t sign = type == dtype::f32 ? 0x80000000 : 0x8000;
  for (std::size_t i = 0; i < t.bits.size(); ++i) {
    if (i % 5 == 0) t.bits[i] = type == dtype::f32 ? 0x3f800000 : 0x3c00;
    if (gradients && (t.bits[i] & ~sign) > infinity / 2) t.bits[i] = i % 7 == 0 ? sign : 0;
  }
  return t;
}

/// Bits of a code, from the size of many.
plane code_plane(const encoding& e, dtype type) {
  constexpr std::int64_t many = 1 << 20;
  return {8, encoded_bytes_bound(e, type, many) / (many / 8)};
}

class large_pool : public large_maps {
 protected:
  large_pool() { blocks = 40; }

  static void expect_layer_of_cpu(const layer& l, dtype type) {
    SCOPED_TRACE(std::string(l.name) + (type == dtype::f32 ? " of f32" : " of f16"));
    constexpr framework_rule rule = framework_rule::tensorflow;
    const pool_window& w = l.window;
    const auto taps = static_cast<std::uint16_t>(w.taps());
    const encoding argmaxes{.kind = encoding_kind::window_index, .window_taps = taps};
    const encoding bitmap = parse_encoding("bitmap"), sign = parse_encoding("sign_mask");
    const auto x_map = [&] { return ending_map(type, l.x_all, l.x_end); };
    const auto y_map = [&] { return ending_map(type, l.y_all, l.y_end); };
    const std::int64_t y_all = l.y_all.elements(), y_end = l.y_end.elements();
    // Codes up to four taps come in two planes.
    std::vector<plane> code_planes{{2, 1}};
    if (taps <= 4) code_planes = {{4, 1}, {8, 1}};

    ending_map x = x_map(), dy = y_map();
    x.set(map_values(type, l.x_end.elements(), 6, false));
    dy.set(map_values(type, y_end, 7, true));
    const ending_map y = y_map(), relu_y = y_map();
    const plane indices = code_plane(argmaxes, type);
    ending_planes index({indices}, y_all, y_end), relu_index({indices}, y_all, y_end),
        code(code_planes, y_all, y_end), positive({{8, 1}}, y_all, y_end);
    max_pool_forward(x.far(), y.far(), w, index.far_out(), rule, device);
    max_pool_forward(x.near(), y.near(), w, index.near_out(), rule, {});
    y.expect_same("y");
    index.expect_same("window_index");
    relu_max_pool_forward(x.far(), relu_y.far(), w, code.far_out(), relu_index.far_out(), rule, device);
    relu_max_pool_forward(x.near(), relu_y.near(), w, code.near_out(), relu_index.near_out(), rule, {});
    relu_y.expect_same("y after ReLU");
    relu_index.expect_same("window_index after ReLU");
    code.expect_same("relu_pool");
    encode(sign, relu_y.far(), positive.far_out(), {}, device);
    encode(sign, relu_y.near(), positive.near_out(), {}, {});

    const auto same_dx = [&](const char* what, const auto& backward) {
      const ending_map dx = x_map();
      backward(dy.far(), dx.far(), true, device);
      backward(dy.near(), dx.near(), false, execution_context{});
      dx.expect_same(what);
    };
    const auto ending = [](const ending_map& m, bool far) { return far ? m.far() : m.near(); };
    const auto in = [](ending_planes& p, bool far) { return far ? p.far_in() : p.near_in(); };
    same_dx("dx from window_index", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      max_pool_backward(g, {window_index_of(w), g.type, g.dims, in(index, far)}, dx, w, c);
    });
    same_dx("dx from x", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      max_pool_backward(g, ending(x, far), dx, w, rule, c);
    });
    same_dx("dx from relu_pool", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      relu_max_pool_backward(g, {relu_pool_of(w), g.type, g.dims, in(code, far)}, dx, w, c);
    });
    same_dx("dx from window_index and y", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      relu_max_pool_backward(g, {window_index_of(w), g.type, g.dims, in(relu_index, far)},
                             ending(relu_y, far), dx, w, rule, c);
    });
    same_dx("dx from window_index and a mask", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      relu_max_pool_backward(g, {window_index_of(w), g.type, g.dims, in(relu_index, far)},
                             {sign, g.type, g.dims, in(positive, far)}, dx, w, rule, c);
    });
    same_dx("dx from x through ReLU", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      relu_max_pool_backward(g, ending(x, far), dx, w, rule, c);
    });

    const reserved far_tiles(encoded_bytes_at_density(bitmap, type, y_all, 0) + (1 << 20));
    const buffer near_tiles(encoded_bytes_bound(bitmap, type, y_end));
    encode_report far_report{}, near_report{};
    encode(bitmap, relu_y.far(), {far_tiles.data(), far_tiles.size(), nullptr, &far_report}, {}, device);
    encode(bitmap, relu_y.near(), {near_tiles.data(), near_tiles.size(), nullptr, &near_report}, {}, {});
    const const_encoded_view far_in{far_tiles.data(), far_tiles.size(), nullptr, &far_report};
    const const_encoded_view near_in{near_tiles.data(), near_tiles.size(), nullptr, &near_report};
    same_dx("dx from window_index and a bitmap", [&](const auto& g, const auto& dx, bool far, const auto& c) {
      relu_max_pool_backward(g, {window_index_of(w), g.type, g.dims, in(relu_index, far)},
                             {bitmap, g.type, g.dims, far ? far_in : near_in}, dx, w, rule, c);
    });
    EXPECT_EQ(far_report.status, status_ok);
  }

  static void expect_layers_of_cpu(const layer& l) {
    for (const dtype type : {dtype::f32, dtype::f16})
      expect_layer_of_cpu(l, type);
  }
};

constexpr pool_window halves, overlapping{3, 3, 2, 2, 1, 1};

pool_window channels_first(pool_window w) {
  w.layout = pool_layout::channels_first;
  return w;
}

constexpr std::int64_t many = std::int64_t{1} << 23, few = 3;  ///< samples

TEST_F(large_pool, channels_last) {
  for (const pool_window& w : {halves, overlapping}) {
    expect_layers_of_cpu({"eight channels to a thread",
                          w,
                          {many + few, 12, 12, 16},
                          {few, 12, 12, 16},
                          {many + few, 6, 6, 16},
                          {few, 6, 6, 16}});
    expect_layers_of_cpu({"one channel to a thread",
                          w,
                          {4 * many + few, 12, 12, 5},
                          {few, 12, 12, 5},
                          {4 * many + few, 6, 6, 5},
                          {few, 6, 6, 5}});
  }
}

/// As many rows as a pixel tile has at most (pool_pixel_tiles_backward.hpp, pool_coded_pixel_tiles.hpp),
/// and twice as many: smaller maps have lower pixel tiles.
TEST_F(large_pool, high_pixel_tiles) {
  constexpr std::int64_t samples = 1 << 14;
  constexpr pool_window stride_1{3, 3, 1, 1, 1, 1};
  expect_layers_of_cpu({"stride 2",
                        overlapping,
                        {samples + few, 32, 12, 16},
                        {few, 32, 12, 16},
                        {samples + few, 16, 6, 16},
                        {few, 16, 6, 16}});
  expect_layers_of_cpu({"stride 1",
                        stride_1,
                        {samples + few, 16, 7, 24},
                        {few, 16, 7, 24},
                        {samples + few, 16, 7, 24},
                        {few, 16, 7, 24}});
  expect_layers_of_cpu({"stride 1, higher",
                        stride_1,
                        {samples + few, 64, 7, 24},
                        {few, 64, 7, 24},
                        {samples + few, 64, 7, 24},
                        {few, 64, 7, 24}});
}

TEST_F(large_pool, more_pixels_than_31_bits_count) {
  for (const pool_window& w : {halves, overlapping}) {
    expect_layers_of_cpu({"eight channels",
                          w,
                          {2 * many + few, 12, 12, 8},
                          {few, 12, 12, 8},
                          {2 * many + few, 6, 6, 8},
                          {few, 6, 6, 8}});
  }
}

TEST_F(large_pool, channels_first) {
  for (const pool_window& w : {channels_first(halves), channels_first(overlapping)}) {
    // Rows of whole vec16s (16 bytes) and others.
    expect_layers_of_cpu(
        {"wide rows", w, {many + few, 6, 12, 16}, {few, 6, 12, 16}, {many + few, 6, 6, 8}, {few, 6, 6, 8}});
    expect_layers_of_cpu({"odd rows",
                          w,
                          {4 * many + few, 5, 12, 10},
                          {few, 5, 12, 10},
                          {4 * many + few, 5, 6, 5},
                          {few, 5, 6, 5}});
  }
  expect_layers_of_cpu({"odd rows, stride 1",
                        channels_first({3, 3, 1, 1, 1, 1}),
                        {4 * many + few, 5, 12, 10},
                        {few, 5, 12, 10},
                        {4 * many + few, 5, 12, 10},
                        {few, 5, 12, 10}});
}

/// Windows through two slices, of rows of whole vec16s (pool_cubes.hpp) and of others.
TEST_F(large_pool, volumes) {
  pool_window deep = channels_first(halves);
  deep.kernel_d = deep.stride_d = 2;
  expect_layers_of_cpu({"wide rows",
                        deep,
                        {many + few, 3, 4, 6, 16},
                        {few, 3, 4, 6, 16},
                        {many + few, 3, 2, 3, 8},
                        {few, 3, 2, 3, 8}});
  expect_layers_of_cpu({"odd rows",
                        deep,
                        {2 * many + few, 3, 4, 6, 10},
                        {few, 3, 4, 6, 10},
                        {2 * many + few, 3, 2, 3, 5},
                        {few, 3, 2, 3, 5}});
}

/// The same of column tiles (pool_column_tiles.hpp).
TEST_F(large_pool, high_column_tiles) {
  for (const std::int64_t rows : {12, 32, 64}) {
    expect_layers_of_cpu({"stride 1",
                          channels_first({3, 3, 1, 1, 1, 1}),
                          {many + few, 2, rows, 16},
                          {few, 2, rows, 16},
                          {many + few, 2, rows, 16},
                          {few, 2, rows, 16}});
  }
}

TEST_F(large_pool, one_row_of_more_pixels_than_32_bits_count) {
  constexpr std::int64_t width = std::int64_t{1} << 33, end = 512;
  const pool_window pairs{1, 2, 1, 2};
  expect_layers_of_cpu({"NHWC",
                        pairs,
                        {1, 1, width + end, 3},
                        {1, 1, end, 3},
                        {1, 1, (width + end) / 2, 3},
                        {1, 1, end / 2, 3}});
  expect_layers_of_cpu({"NCHW",
                        channels_first(pairs),
                        {1, 1, 1, width + end},
                        {1, 1, 1, end},
                        {1, 1, 1, (width + end) / 2},
                        {1, 1, 1, end / 2}});
}

}  // namespace
}  // namespace stash
