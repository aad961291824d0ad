// SPDX-License-Identifier: Apache-2.0
// Pooling kernels of NHWC maps: blocks and pixel tiles of pixels.

#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

/// Maps of all sizes around a block's, NHWC. Every third has NaN, another third infinities, every fifth pitch
/// is wider.
TEST_P(device_pool, blocks_of_pixels) {
  int k = 0;
  std::mt19937 random(13);
  for (pool_window window : small_windows()) {
    window.layout = pool_layout::channels_last;
    for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 9}) {
      for (const std::int64_t width : {1, 2, 3, 4, 5, 7, 12}) {
        geometry g{window, {pick(random, 1, 2), 8 * pick(random, 1, 2), 1, height, width, {}}, {}, false};
        if (k % 7 == 0) g.x.d = 2, g.deep = true;
        if (!fit(g, k % 3)) continue;
        ++k;
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        simt::set_schedule(schedule_of(k));
        const random_source values[] = {random_value, random_number, random_finite_number};
        layer_case(g, GetParam(), k / 2 % 2 == 1, rules[k / 4 % 2], k % 5 == 0 ? 8 : 0, random, values[k % 3],
                   k % 3 == 0 ? random_gradient : random_gradient_number)
            .check();
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(k, 300);
}

/// Few values, so that most windows have several maxima; rarely an infinity or a NaN.
float random_tie(std::mt19937& random, dtype type) {
  constexpr float few[] = {-0.0F, 0.0F, -1.0F, 1.0F};
  return random() % 512 == 0 ? random_value(random, type) : few[random() % std::size(few)];
}
float random_positive_tie(std::mt19937& random, dtype) {
  return static_cast<float>(random() % 2);
}
/// Overlapping windows found again in x, NHWC: pixel tiles of every height and position, whose last row
/// or column the map may lack, groups of channels that are a part of a warp, a warp and more, and every
/// padding. Each map has a pitch of its own.
TEST_P(device_pool, pixel_tiles_of_pixels) {
  constexpr random_source values[] = {random_tie, random_positive_tie, random_value, random_number};
  std::mt19937 random(19);
  int k = 0;
  for (const std::int32_t stride : {1, 2}) {
    for (const std::int32_t pad : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
      for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33}) {
        const std::int64_t width = height % 2 == 0 ? pick(random, 1, 5) : pick(random, 6, 19);
        constexpr std::int64_t some_channels[] = {8, 16, 24, 32, 264};
        const std::int64_t channels = some_channels[pick(random, 0, width > 9 ? 3 : 4)];
        geometry g{{3, 3, stride, stride, pad % 3, pad / 3},
                   {pick(random, 1, 3), channels, 1, height, width, {}},
                   {},
                   false};
        g.window.layout = pool_layout::channels_last;
        if (k % 5 == 4) g.x.d = 2, g.deep = true;
        if (!fit(g, k % 3)) continue;
        const with_multiprocessors there(many_or_no_multiprocessors(k));
        simt::set_schedule(schedule_of(++k));
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        map gradient = g.y;
        fill_values(g.x, GetParam(), random, values[k % 4]);
        fill_values(gradient, GetParam(), random,
                    k % 3 == 0   ? random_gradient
                    : k % 3 == 1 ? random_gradient_number
                                 : random_far_gradient);
        const auto stored = [&](const map& m, int gap) {
          return stored_map(m, GetParam(), false, g.deep, 8 * (gap % 3));
        };
        stored_map x = stored(g.x, k), dy = stored(g.y, k / 2), dx = stored(g.x, k / 4), expected = dx;
        x.fill(bits_in_memory_order(g.x, GetParam(), false, exact));
        dy.fill(bits_in_memory_order(gradient, GetParam(), false, exact));
        for (const bool relu : {false, true}) {
          const framework_rule rule = rules[k / 3 % 2];
          const auto backward = [&](stored_map& to, const execution_context& c) {
            const tensor_view in = in_space(x.view(), c), from = in_space(dy.view(), c),
                              out = in_space(to.view(), c);
            if (relu) return relu_max_pool_backward(from, in, out, g.window, rule, c);
            max_pool_backward(from, in, out, g.window, rule, c);
          };
          dx.forget();
          backward(dx, on_device);
          backward(expected, on_host);
          ASSERT_EQ(dx.bits(), expected.bits()) << "ReLU " << relu;
          ASSERT_TRUE(dx.gaps_intact());
        }
      }
    }
  }
  EXPECT_GT(k, 180);
}

/// The same from codes, stride 1.
TEST_P(device_pool, coded_pixel_tiles_of_pixels) {
  int k = 0;
  std::mt19937 random(29);
  for (const std::int32_t pad : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
    for (const std::int64_t height : {1, 2, 3, 4, 6, 31, 32, 33, 34, 35, 68}) {
      constexpr std::int64_t some_channels[] = {8, 16, 24, 32, 264};
      const std::int64_t channels = some_channels[pick(random, 0, height > 6 ? 2 : 4)];
      const std::int64_t width = height > 6 ? pick(random, 1, 4) : pick(random, 1, 9);
      geometry g{
          {3, 3, 1, 1, pad % 3, pad / 3}, {pick(random, 1, 2), channels, 1, height, width, {}}, {}, false};
      g.window.layout = pool_layout::channels_last;
      if (k % 5 == 4) g.x.d = 2, g.deep = true;
      if (!fit(g, k % 3)) continue;
      const with_multiprocessors there(many_or_no_multiprocessors(k));
      check_layer(g, GetParam(), ++k, random);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(k, 70);
}

/// A thread has 16 bytes of the channels of two windows.
TEST_P(device_pool, small_square_windows_of_channels_take_pairs_of_pixels) {
  for (pool_window window : small_windows()) {
    window.layout = pool_layout::channels_last;
    geometry g{window, {2, 64, 1, 56, 56, {}}, {}, false};
    ASSERT_TRUE(fit(g, 0));
    stored_map x(g.x, GetParam(), false, false, 0), y(g.y, GetParam(), false, false, 0);
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    encoded index(index_bytes(g));
    max_pool_forward(in_space(x.view(), on_device), in_space(y.view(), on_device), window, index.out(),
                     rules[0], on_device);
    const double bytes = GetParam() == dtype::f32 ? 4 : 2;
    EXPECT_GT(static_cast<double>(g.y.count()) * bytes / static_cast<double>(simt::threads_of_last_launch()),
              30);
  }
}

/// Backward from codes a thread has four pixels of eight channels, from x 16 bytes of the channels of four
/// rows or more, of one column or two.
TEST_P(device_pool, overlapping_windows_take_blocks_and_pixel_tiles) {
  for (const std::int32_t stride : {1, 2}) {
    pool_window window{3, 3, stride, stride, 1, 1};
    window.layout = pool_layout::channels_last;
    geometry g{window, {2, 64, 1, 56, 56, {}}, {}, false};
    ASSERT_TRUE(fit(g, 0));
    stored_map dy(g.y, GetParam(), false, false, 0), dx(g.x, GetParam(), false, false, 0);
    dy.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.y.count()), 0));
    stored_map x = dx;
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    const auto of_a_thread = [&] {
      return static_cast<double>(g.x.count()) / static_cast<double>(simt::threads_of_last_launch());
    };
    encoded index(index_bytes(g));
    std::memset(index.data(), 0x44, index.all().size());
    max_pool_backward(in_space(dy.view(), on_device),
                      {window_index_of(window), in_space(dy.view(), on_device).type,
                       in_space(dy.view(), on_device).dims, index.in()},
                      in_space(dx.view(), on_device), window, on_device);
    EXPECT_EQ(index.report.status, status_ok);
    EXPECT_GT(of_a_thread(), 28);
    max_pool_backward(in_space(dy.view(), on_device), in_space(x.view(), on_device),
                      in_space(dx.view(), on_device), window, rules[0], on_device);
    EXPECT_GT(of_a_thread(), stride == 2 && GetParam() != dtype::f32 ? 48 : 24);
  }
}

}  // namespace
}  // namespace stash::test
