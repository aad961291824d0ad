// SPDX-License-Identifier: Apache-2.0
// Pooling kernels of windows that have none of their own: threads that walk along y, and that scatter into
// tiles of dx.

#include "pool/pool_scatter_shape.hpp"
#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

pool_window deep_window(std::int32_t kernel, std::int32_t stride, std::int32_t pad) {
  pool_window w{kernel, kernel, stride, stride, pad, pad};
  w.kernel_d = kernel, w.stride_d = stride, w.pad_front = pad;
  return w;
}
pool_window dilated(pool_window w, std::int32_t dilation) {
  w.dilation_h = w.dilation_w = dilation;
  return w;
}

/// Windows of every kind: more and fewer taps than a code of half a byte names, that overlap, touch, or leave
/// positions between them; maps that are longer and wider than a thread's tile, in both layouts. Every third
/// map has NaN.
TEST_P(device_pool, windows_without_a_kernel_of_their_own) {
  struct usual {
    pool_window window;
    map x;
  };
  const usual layers[] = {{{5, 5, 1, 1, 2, 2}, {2, 3, 1, 28, 27, {}}},
                          {{5, 5, 2, 2, 2, 1}, {1, 8, 1, 13, 70, {}}},
                          {{5, 5, 7, 6}, {1, 2, 1, 40, 21, {}}},
                          {{3, 3, 1, 1}, {2, 5, 1, 9, 40, {}}},
                          {{3, 3, 1, 1, 2, 2}, {1, 8, 1, 6, 7, {}}},
                          {{4, 3, 3, 2, 1, 0}, {1, 3, 1, 70, 6, {}}},
                          {{2, 2, 1, 1}, {3, 8, 1, 5, 9, {}}},
                          {{9, 9, 1, 1, 4, 4}, {1, 2, 1, 13, 13, {}}},
                          {{7, 5, 1, 3, 3, 2}, {1, 16, 1, 11, 12, {}}},
                          {{1, 17, 1, 3, 0, 8}, {1, 3, 1, 3, 90, {}}},
                          {{33, 2, 1, 2}, {1, 1, 1, 70, 6, {}}},
                          {dilated({3, 3, 1, 1, 2, 2}, 2), {1, 9, 1, 12, 11, {}}},
                          {dilated({5, 5, 2, 1, 3, 6}, 3), {1, 3, 1, 29, 20, {}}},
                          {deep_window(3, 1, 1), {1, 3, 6, 7, 13, {}}},
                          {deep_window(3, 2, 1), {1, 8, 7, 5, 9, {}}},
                          {deep_window(4, 5, 0), {1, 2, 11, 14, 10, {}}},
                          {deep_window(2, 1, 0), {2, 3, 3, 18, 5, {}}}};
  int k = 0;
  std::mt19937 random(29);
  for (const usual& layer : layers) {
    for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
      geometry g{layer.window, layer.x, {}, layer.x.d > 1};
      g.window.layout = layout;
      ASSERT_TRUE(fit(g, k % 2) || fit(g, 0)) << describe(g);
      const with_multiprocessors device(many_or_no_multiprocessors(++k));
      check_layer(g, GetParam(), k, random);
      if (HasFatalFailure()) return;
    }
  }
}

/// Sums that a thread holds have space, and no tile is larger than the map.
TEST(scatter_shape, tiles_fit) {
  using kernels::pool_axis;
  int fitting = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5, 13, 40, 90}) {
    for (const std::int64_t dilation : {1, 2, 7}) {
      for (const std::int64_t in : {1, 7, 28, 113, 4096}) {
        const pool_axis a{in, in, kernel, 1, kernel / 2, dilation}, one = kernels::whole_axis;
        for (const kernels::scatter_axes& axes : {kernels::scatter_axes{a, one, a}, {a, a, a}}) {
          const kernels::scatter_shape shape = scatter_shape_of(axes);
          if (!shape.fits()) continue;
          ++fitting;
          EXPECT_GE(shape.ring, span_of(a));
          EXPECT_LE(shape.ring * shape.middle * shape.inner, std::int64_t{kernels::tuning::scatter_values});
          EXPECT_GE(shape.middle, 1);
          EXPECT_LE(shape.middle, axes.middle.in);
          EXPECT_GE(shape.inner, 1);
          EXPECT_LE(shape.inner, in);
        }
      }
    }
  }
  EXPECT_GT(fitting, 100);
}

}  // namespace
}  // namespace stash::test
