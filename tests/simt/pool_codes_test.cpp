// SPDX-License-Identifier: Apache-2.0
// Corrupt codes: the kernels and the CPU find the same ones, and make the same of the others.

#include <algorithm>
#include <utility>

#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

/// Every code at every position, the other codes being legal: whether it is corrupt, and what it does.
TEST_P(device_pool, one_code_is_judged_as_on_the_cpu) {
  const pool_window last{3, 3, 2, 2, 1, 1}, dense_last{3, 3, 1, 1, 1, 1};
  pool_window first = last, dense = dense_last;
  first.layout = dense.layout = pool_layout::channels_first;
  pool_window unpadded = first;
  unpadded.pad_top = unpadded.pad_left = 0;
  struct layer {
    pool_window window;
    std::int64_t width;
    bool relu = false;
  };
  for (const auto& [window, width, relu] :
       {layer{{3, 3, 3, 3}, 6}, layer{last, 6}, layer{dense_last, 6}, layer{first, 6}, layer{dense, 6},
        layer{first, 16}, layer{unpadded, 16}, layer{dense, 16}, layer{last, 6, true},
        layer{first, 16, true}}) {
    for (const std::int64_t channels : {1, 8}) {
      const bool rows = window.layout == pool_layout::channels_first;
      geometry g{window, {1, rows ? channels / 4 + 1 : channels, 1, 6, width, {}}, {}, false};
      ASSERT_TRUE(fit(g, 1));
      stored_map dy(g.y, GetParam(), rows, false, 0), dx(g.x, GetParam(), rows, false, 0), expected = dx;
      const auto count = static_cast<std::size_t>(g.y.count());
      dy.fill(std::vector<std::uint32_t>(count, exact(GetParam(), 1)));
      for (std::size_t i = 0; i < count; ++i) {
        for (int code = 0; code < 16; ++code) {
          // Tap 4 is a window's middle, which lies in x.
          std::vector<int> taps(count, 4);
          taps[i] = code;
          const std::vector<std::uint8_t> plane = reference_plane(taps, 4);
          encoded index(plane.size());
          std::copy(plane.begin(), plane.end(), index.data());
          const auto backward = [&, relu = relu, window = window](stored_map& to, const auto& where) {
            const tensor_view from = in_space(dy.view(), where), into = in_space(to.view(), where);
            if (relu)
              return relu_max_pool_backward(from, {relu_pool_of(window), from.type, from.dims, index.in()},
                                            into, window, where);
            max_pool_backward(from, {window_index_of(window), from.type, from.dims, index.in()}, into, window,
                              where);
          };
          backward(expected, on_host);
          const std::uint32_t status = std::exchange(index.report.status, 0U);
          backward(dx, on_device);
          ASSERT_EQ(index.report.status, status) << "code " << code << " at " << i;
          ASSERT_EQ(dx.bits(), expected.bits()) << "code " << code << " at " << i;
        }
      }
    }
  }
}

/// The same of windows with stride 1 wherever they lie: maps of several column tiles, pixel tiles and
/// halo tiles, every padding, rows and columns that no window begins in, and signs in a plane of their own;
/// and of windows with stride 2 over rows of any length. One code is wrong, or just where it is.
TEST_P(device_pool, one_code_among_many_is_judged_as_on_the_cpu) {
  enum class source { index, code, signs };
  std::mt19937 random(37);
  int judged = 0, corrupt = 0;
  for (int k = 0; k < 240; ++k) {
    const bool rows = k % 2 == 0, vec16s = rows && k % 3 == 0, stride_2 = rows && k % 3 == 2;
    pool_window window{3, 3, stride_2 ? 2 : 1, stride_2 ? 2 : 1, k / 2 % 3, rows ? 1 : k / 6 % 3};
    if (rows && !vec16s) window.pad_top = stride_2 ? k / 4 % 2 : 1;
    if (stride_2) window.pad_left = k / 8 % 2;
    if (rows) window.layout = pool_layout::channels_first;
    const std::int64_t width = vec16s ? 4 * pick(random, 1, 5) : pick(random, 1, rows ? 21 : 7),
                       height = pick(random, 1, 13);
    // Every tenth map has more than one block.
    const std::int64_t channels = !rows ? 8 * pick(random, 1, 2) : k % 20 == 10 ? 40 : pick(random, 1, 3);
    geometry g{window, {pick(random, 1, 2), channels, 1, height, width, {}}, {}, false};
    if (!fit(g, rows ? 1 : k % 3) || (rows && !stride_2 && g.y.w != width)) continue;
    // Some maps end before the last windows that there might be.
    if (k % 5 == 4 && g.y.h > 1) --g.y.h;
    SCOPED_TRACE(describe(g));
    stored_map dy(g.y, GetParam(), rows, false, 0), dx(g.x, GetParam(), rows, false, 0), expected = dx;
    const auto count = static_cast<std::size_t>(g.y.count());
    dy.fill(std::vector<std::uint32_t>(count, exact(GetParam(), 1)));
    // Taps that the windows have, in memory's order: the nearest one to their middle.
    std::vector<int> legal;
    const auto tap = [](std::int64_t origin, std::int64_t in) {
      return static_cast<int>(
          std::clamp<std::int64_t>(1, std::max<std::int64_t>(0, -origin), in - 1 - origin));
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t pixel = rows ? i : i / static_cast<std::size_t>(channels);
      const auto x = static_cast<std::int64_t>(pixel) % g.y.w,
                 y = static_cast<std::int64_t>(pixel) / g.y.w % g.y.h;
      legal.push_back(3 * tap(y * window.stride_h - window.pad_top, height) +
                      tap(x * window.stride_w - window.pad_left, width));
    }
    const std::size_t sign_bytes = (count + 127) / 128 * 16;
    encoded signs(sign_bytes);
    for (std::size_t i = 0; i < sign_bytes; ++i)
      signs.data()[i] = static_cast<std::uint8_t>(random() >> 7);
    for (const source from : {source::index, source::code, source::signs}) {
      for (int n = 0; n < 60; ++n) {
        std::vector<int> taps = legal;
        const std::size_t at = random() % count;
        taps[at] = static_cast<int>(random() % 16);
        const std::vector<std::uint8_t> plane = reference_plane(taps, 4);
        encoded index(plane.size());
        std::copy(plane.begin(), plane.end(), index.data());
        const auto backward = [&](stored_map& to, const execution_context& where) {
          const tensor_view gradients = in_space(dy.view(), where), into = in_space(to.view(), where);
          if (from == source::index)
            return max_pool_backward(gradients,
                                     {window_index_of(window), gradients.type, gradients.dims, index.in()},
                                     into, window, where);
          if (from == source::code)
            return relu_max_pool_backward(gradients,
                                          {relu_pool_of(window), gradients.type, gradients.dims, index.in()},
                                          into, window, where);
          relu_max_pool_backward(gradients,
                                 {window_index_of(window), gradients.type, gradients.dims, index.in()},
                                 {parse_encoding("sign_mask"), gradients.type, gradients.dims, signs.in()},
                                 into, window, rules[0], where);
        };
        backward(expected, on_host);
        const std::uint32_t status = std::exchange(index.report.status, 0U);
        backward(dx, on_device);
        ASSERT_EQ(index.report.status, status)
            << "code " << taps[at] << " at " << at << " from " << static_cast<int>(from);
        ASSERT_EQ(dx.bits(), expected.bits()) << "code " << taps[at] << " at " << at;
        ++judged;
        corrupt += status != 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(corrupt, judged / 4);
  EXPECT_LT(corrupt, judged * 3 / 4);
}

}  // namespace
}  // namespace stash::test
