// SPDX-License-Identifier: Apache-2.0
// Pooling kernels of NCHW maps: pairs of rows, vec16s and column tiles.

#include <initializer_list>
#include <limits>

#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

/// Layers whose windows do not overlap. Every third has NaN, which some warps meet and others do not where
/// there are few.
void check_side_by_side(const pool_window& window, dtype type, std::uint32_t seed,
                        std::initializer_list<map> maps) {
  int k = 0;
  std::mt19937 random(seed);
  const auto rare_nan = [](std::mt19937& r, dtype element) {
    return r() % 512 == 0 ? std::numeric_limits<float>::quiet_NaN() : random_number(r, element);
  };
  for (const map& x : maps) {
    for (const bool relu : {false, true}) {
      for (const framework_rule rule : rules) {
        geometry g{window, x, {}, x.d > 1};
        ASSERT_TRUE(fit(g, 0)) << describe(g);
        ++k;
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        simt::set_schedule(schedule_of(k));
        layer_case(g, type, relu, rule, 0, random,
                   k % 3 == 0   ? +random_value
                   : k % 3 == 1 ? +random_number
                                : +rare_nan,
                   k % 2 == 0 ? random_gradient : random_gradient_number)
            .check();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// Windows of 2 x 2: rows of one vec16 and of many, maps that fill a part of a warp, of a block and of
/// several.
TEST_P(device_pool, pairs_of_rows) {
  check_side_by_side(first({2, 2, 2, 2}), GetParam(), 14,
                     {map{1, 1, 1, 2, 16, {}}, map{1, 4, 1, 2, 8, {}}, map{3, 4, 1, 6, 8, {}},
                      map{2, 8, 1, 12, 24, {}}, map{1, 3, 1, 16, 40, {}}, map{2, 3, 3, 8, 48, {}},
                      map{1, 5, 1, 64, 56, {}}, map{1, 4, 1, 64, 64, {}}, map{1, 1, 1, 8, 2064, {}},
                      map{1, 1, 1, 2, 16400, {}}, map{1, 33, 1, 32, 32, {}}, map{2, 9, 1, 40, 104, {}}});
}

/// The same of volumes, whose windows take two slices.
TEST_P(device_pool, cubes_of_volumes) {
  pool_window window = first({2, 2, 2, 2});
  window.kernel_d = window.stride_d = 2;
  check_side_by_side(
      window, GetParam(), 15,
      {map{1, 1, 2, 2, 16, {}}, map{1, 4, 2, 2, 8, {}}, map{3, 4, 4, 6, 8, {}}, map{2, 8, 2, 12, 24, {}},
       map{1, 3, 6, 16, 40, {}}, map{2, 3, 4, 8, 48, {}}, map{1, 1, 8, 30, 56, {}}, map{1, 1, 2, 8, 2064, {}},
       map{1, 1, 2, 2, 16400, {}}, map{1, 17, 2, 2, 64, {}}, map{2, 3, 10, 14, 104, {}}});
}

/// Rows of whole vec16s, with two columns for each window, and planes of every height.
TEST_P(device_pool, vec16s_of_rows) {
  int k = 0;
  std::mt19937 random(17);
  for (const std::int32_t pad_top : {0, 1, 2}) {
    for (const std::int32_t pad_left : {0, 1}) {
      pool_window window{3, 3, 2, 2, pad_top, pad_left};
      window.layout = pool_layout::channels_first;
      for (const std::int64_t width : {4, 8, 12, 16, 24, 40, 64, 112}) {
        for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
          geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
          if (height % 3 == 0 && width < 64) g.x.d = 2, g.deep = true;
          if (!fit(g, k % 2 + (pad_left == 0 ? 1 : 0)) || g.y.w * 2 != width) continue;
          check_layer(g, GetParam(), ++k, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(k, 200);
}

/// Rows of whole vec16s with a window for each column, and column tiles of every height: lower ones where
/// threads are few for the device, several below each other where planes are high.
TEST_P(device_pool, column_tiles) {
  int k = 0;
  std::mt19937 random(23);
  for (const std::int32_t pad_top : {0, 1, 2}) {
    pool_window window{3, 3, 1, 1, pad_top, 1};
    window.layout = pool_layout::channels_first;
    for (const std::int64_t width : {4, 8, 12, 16, 24, 40, 136}) {
      for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 67}) {
        if (width > 8 && height > 7 && height != 33) continue;
        if (width > 40 && height > 7) continue;
        geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
        if (height % 3 == 0 && width < 40) g.x.d = 2, g.deep = true;
        if (!fit(g, 1) || g.y.w != width) continue;
        const with_multiprocessors there(many_or_no_multiprocessors(k));
        check_layer(g, GetParam(), ++k, random);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(k, GetParam() == dtype::f32 ? 150 : 100);
}

/// Rows of whole vec16s with a window for each column: a thread has 16 bytes of up to 32 rows. Maps that
/// begin elsewhere than at a multiple of 16 bytes are pooled in another way, with the same result.
TEST_P(device_pool, windows_of_stride_1_take_column_tiles) {
  pool_window window{3, 3, 1, 1, 1, 1};
  window.layout = pool_layout::channels_first;
  geometry g{window, {2, 4, 1, 40, 40, {}}, {}, false};
  ASSERT_TRUE(fit(g, 1));
  std::mt19937 random(31);
  fill_values(g.x, GetParam(), random, random_number);
  const std::vector<std::uint32_t> values = bits_in_memory_order(g.x, GetParam(), true, exact);
  const std::size_t size = size_of(GetParam()), count = values.size();
  struct {
    std::size_t skipped;
    std::uint64_t multiprocessors;
  } constexpr ways[] = {{0, 132}, {0, 0}, {1, 132}};
  for (const auto& way : ways) {
    const std::size_t skipped = way.skipped * size;
    const with_multiprocessors there(way.multiprocessors);
    std::vector<std::uint8_t> bytes[4];
    tensor_view maps[4];  // x, y, dx of codes, dx of x
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[i].resize(count * size + skipped);
      maps[i] = {bytes[i].data() + skipped, GetParam(), memory_space::host, shape{g.x.n, g.x.c, g.x.h, g.x.w},
                 0};
    }
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(bytes[0].data() + skipped + i * size, &values[i], size);
    std::vector<std::uint8_t> expected[4];
    for (const execution_context& where : {on_host, on_device}) {
      const auto map_at = [&](std::size_t i) { return in_space(maps[i], where); };
      const auto expect_column_tile = [&] {
        if (where.space != memory_space::device || skipped != 0) return;
        const auto threads = static_cast<double>(simt::threads_of_last_launch());
        EXPECT_GT(static_cast<double>(count) / threads, way.multiprocessors == 0 ? 40 : 5);
      };
      encoded index(index_bytes(g));
      max_pool_forward(map_at(0), map_at(1), window, index.out(), rules[0], where);
      expect_column_tile();
      max_pool_backward(map_at(1), {window_index_of(window), map_at(1).type, map_at(1).dims, index.in()},
                        map_at(2), window, where);
      expect_column_tile();
      max_pool_backward(map_at(1), map_at(0), map_at(3), window, rules[0], where);
      expect_column_tile();
      for (std::size_t i = 1; i < 4; ++i) {
        if (where.space == memory_space::host) {
          expected[i] = bytes[i];
        } else {
          ASSERT_EQ(bytes[i], expected[i]) << "map " << i << " from byte " << skipped << " on";
        }
      }
    }
  }
}

}  // namespace
}  // namespace stash::test
