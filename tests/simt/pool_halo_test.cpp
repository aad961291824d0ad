// SPDX-License-Identifier: Apache-2.0
// Pooling kernels of NCHW maps with rows of any length: halo tiles.

#include <algorithm>
#include <limits>
#include <set>

#include "pool/nchw/pool_halo_tiles.hpp"
#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

/// Rows of every length, and planes that end anywhere in 16 bytes. Every third map has NaN; the others have
/// as many elements as they like.
TEST_P(device_pool, rows_of_any_length) {
  int k = 0;
  std::mt19937 random(11);
  for (const pool_window& window : small_windows()) {
    for (const std::int64_t width :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 35, 56, 113}) {
      const std::int64_t height = pick(random, 1, 9);
      geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
      if (!fit(g, k % 3)) continue;
      check_layer(g, GetParam(), ++k, random);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(k, 120);
}

/// Blocks that begin and end anywhere in rows and planes, also in those of a map with slices: planes of few
/// and of many rows, rows of a value and of as many as fit, and of more. Some maps have a NaN, which one
/// block of many meets.
TEST_P(device_pool, tiles_of_rows_of_any_length) {
  const auto rare_nan = [](std::mt19937& r, dtype type) {
    return r() % 4096 == 0 ? std::numeric_limits<float>::quiet_NaN() : random_number(r, type);
  };
  const auto rare_nan_gradient = [](std::mt19937& r, dtype type) {
    return r() % 4096 == 0 ? std::numeric_limits<float>::quiet_NaN() : random_gradient_number(r, type);
  };
  int k = 0;
  std::mt19937 random(12);
  for (const pool_window& window : {first({2, 2, 2, 2}), first({3, 3, 2, 2}), first({3, 3, 2, 2, 1, 1}),
                                    first({2, 2, 2, 2, 1, 1}), first({3, 3, 1, 1, 1, 1})}) {
    for (const map& x : {map{2, 3, 1, 33, 35, {}}, map{1, 3, 1, 5, 2100, {}}, map{2, 140, 1, 7, 7, {}},
                         map{1, 2000, 1, 3, 3, {}}, map{1, 2, 5, 13, 27, {}}, map{1, 3000, 1, 1, 5, {}},
                         map{3, 500, 1, 2, 6, {}}, map{1, 1, 1, 5000, 3, {}}, map{1, 1, 1, 9001, 1, {}},
                         map{1, 3, 1, 17, 250, {}}, map{1, 2, 1, 23, 337, {}}, map{1, 30, 1, 14, 14, {}},
                         map{1, 2, 1, 9, 507, {}}, map{1, 1, 1, 11, 1009, {}}}) {
      geometry g{window, x, {}, x.d > 1};
      // Some planes of x end with rows and columns that no window begins in.
      if (!fit(g, window.pad_top > 0 && (window.stride_h == 1 || k % 2 == 0) ? 1 : 0)) continue;
      // Or many.
      if (window.stride_h == 2 && k % 3 == 0) g.y.h = (g.y.h + 2) / 3;
      SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
      simt::set_schedule(schedule_of(++k));
      layer_case(g, GetParam(), k % 2 == 1, rules[k / 2 % 2], 0, random,
                 k % 3 == 0 ? +rare_nan : +random_number,
                 k % 3 == 1 ? +rare_nan_gradient : +random_gradient_number)
          .check();
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(k, 50);
}

/// A plane of which y has one row of a million: no halo tile is so long.
TEST_P(device_pool, few_windows_of_a_high_plane) {
  const std::int64_t height = GetParam() == dtype::f32 ? 2796205 : 1398104;
  geometry g{first({3, 3, 2, 2}), {1, 2, 1, height, 1, {}}, {1, 2, 1, 1, 1, {}}, false};
  g.window.pad_left = 1;
  std::mt19937 random(41);
  stored_map x(g.x, GetParam(), true, false, 0), y(g.y, GetParam(), true, false, 0), expected = y;
  std::vector<std::uint32_t> values(static_cast<std::size_t>(g.x.count()), exact(GetParam(), 1));
  for (const std::size_t plane : {std::size_t{0}, static_cast<std::size_t>(height)})
    values[plane + 1] = exact(GetParam(), 2);
  x.fill(values);
  max_pool_forward(in_space(x.view(), on_host), in_space(expected.view(), on_host), g.window, {}, rules[0],
                   on_host);
  max_pool_forward(in_space(x.view(), on_device), in_space(y.view(), on_device), g.window, {}, rules[0],
                   on_device);
  EXPECT_EQ(y.bits(), expected.bits());
}

/// The maps of networks are pooled by blocks of which each makes some thousands of values.
TEST_P(device_pool, maps_of_networks_take_halo_tiles) {
  struct usual {
    std::int64_t width;
    pool_window window;
  };
  std::vector<usual> maps;
  for (const std::int64_t width : {7, 13, 14, 17, 27, 35, 55, 71, 73, 111, 147}) {
    maps.push_back({width, {3, 3, 2, 2, 1, 1}});
    maps.push_back({width, {3, 3, 2, 2}});
    maps.push_back({width, {3, 3, 1, 1, 1, 1}});
  }
  for (const std::int64_t width : {7, 13, 15, 27, 73})
    maps.push_back({width, {2, 2, 2, 2}});
  for (const usual& m : maps) {
    geometry g{first(m.window), {1, 16384 / (m.width * m.width) + 16, 1, m.width, m.width, {}}, {}, false};
    ASSERT_TRUE(fit(g, m.window.stride_h == 1 ? 1 : 0));
    SCOPED_TRACE(describe(g));
    stored_map x(g.x, GetParam(), true, false, 0), y(g.y, GetParam(), true, false, 0), dx = x;
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    encoded index(index_bytes(g));
    const tensor_view from = in_space(x.view(), on_device), pooled = in_space(y.view(), on_device),
                      into = in_space(dx.view(), on_device);
    const auto values_of_thread = [](std::int64_t values) {
      return static_cast<double>(values) / static_cast<double>(simt::threads_of_last_launch());
    };
    max_pool_forward(from, pooled, g.window, index.out(), rules[0], on_device);
    EXPECT_GT(values_of_thread(g.y.count()), 4.5);
    max_pool_backward(pooled, {window_index_of(g.window), pooled.type, pooled.dims, index.in()}, into,
                      g.window, on_device);
    EXPECT_GT(values_of_thread(g.x.count()), 12);
    max_pool_backward(pooled, from, into, g.window, rules[0], on_device);
    EXPECT_GT(values_of_thread(g.x.count()), 12);
  }
}

/// How often the threads of a block's warps wait for each other when each reads the first word of its rows,
/// on the average: 1 where no two need the same bank of shared memory.
double waiting_for_banks(const kernels::halo_walk& walk, const kernels::halo_steps& steps) {
  std::uint32_t accesses = 0, turns = 0;
  for (std::uint32_t first = 0; first < std::min(walk.units, kernels::halo_threads); first += 32) {
    std::set<std::uint32_t> words[32];
    for (std::uint32_t unit = first; unit < std::min(walk.units, first + 32); ++unit) {
      std::uint32_t segment = 0, group = 0;
      walk.find(unit, segment, group);
      const std::uint32_t word = (segment * walk.rows * steps.row + group * steps.group) / 4;
      words[word % 32].insert(word);
    }
    std::size_t most = 0;
    for (const auto& bank : words)
      most = std::max(most, bank.size());
    turns += static_cast<std::uint32_t>(most);
    ++accesses;
  }
  return static_cast<double>(turns) / accesses;
}

/// Every group of columns of every row is some thread's, once.
TEST(halo_walk, has_every_row) {
  int by_segments = 0, by_groups = 0;
  for (const std::uint32_t width : {1U, 3U, 4U, 5U, 7U, 14U, 17U, 35U, 55U, 112U, 250U, 1000U}) {
    for (const std::uint32_t rows : {1U, 2U, 3U, 7U, 31U, 64U, 129U, 1000U}) {
      const kernels::halo_steps steps{16, 4 * width};
      const kernels::halo_walk walk = kernels::halo_walk_of(rows, width, 2, steps);
      std::set<std::pair<std::uint32_t, std::uint32_t>> found;
      for (std::uint32_t unit = 0; unit < walk.units; ++unit) {
        std::uint32_t segment = 0, group = 0;
        walk.find(unit, segment, group);
        EXPECT_LT(group, (width + 3) / 4);
        EXPECT_LT(segment * walk.rows, rows);
        found.emplace(segment, group);
      }
      const std::uint32_t segments = (rows + walk.rows - 1) / walk.rows;
      EXPECT_EQ(found.size(), walk.units) << width << " x " << rows;
      EXPECT_EQ(found.size(), std::size_t{segments} * ((width + 3) / 4)) << width << " x " << rows;
      ++(walk.by_segments ? by_segments : by_groups);
    }
  }
  EXPECT_GT(by_segments, 10);
  EXPECT_GT(by_groups, 10);
}

/// Neighbouring groups of columns are at distances of 8 to 32 bytes, so that neighbouring threads would have
/// 16 to four banks of 32. Over all lengths of rows that are no whole vec16s.
TEST(halo_walk, threads_meet_in_few_banks) {
  struct {
    std::uint32_t size, stride;
    double on_the_average;
  } constexpr kinds[] = {{4, 1, 2.1}, {4, 2, 3.1}, {2, 1, 2.1}, {2, 2, 2.5}};
  for (const auto& kind : kinds) {
    double sum = 0, most = 0;
    int widths = 0;
    for (std::uint32_t width = 5; width < 150; ++width) {
      if (width * kind.size % 16 == 0) continue;
      const std::uint32_t out = kind.stride == 1 ? width : (width - 1) / 2, pad = kind.stride == 1 ? 1 : 0;
      const kernels::halo_shape shape{width, width, out, out, 3, kind.stride, pad, pad};
      const kernels::halo_grid grid = kernels::halo_grid_of(
          shape, std::uint64_t{100} * width * width, std::uint64_t{100} * out * out, kind.size, false, false);
      ASSERT_GT(grid.block_values, 0U);
      const double waiting =
          waiting_for_banks(grid.search, {4 * kind.stride * kind.size, width * kind.stride * kind.size});
      sum += waiting;
      most = std::max(most, waiting);
      ++widths;
    }
    EXPECT_LT(sum / widths, kind.on_the_average) << kind.size << " bytes, "
                                                 << "stride " << kind.stride;
    EXPECT_LE(most, 5.0) << kind.size << " bytes, "
                         << "stride " << kind.stride;
  }
}

}  // namespace
}  // namespace stash::test
