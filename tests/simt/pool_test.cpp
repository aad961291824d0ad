// SPDX-License-Identifier: Apache-2.0
// Pooling kernels against the CPU, under every schedule: random layers, edges and arguments.
// STASH_RANDOM_TENSORS sets how many layers are tried for each type.

#include <bit>
#include <limits>

#include "common/divisor.hpp"
#include "simt/pool_cases.hpp"

namespace stash::test {
namespace {

TEST_P(device_pool, random_layers_are_as_on_the_cpu) {
  for (const scheduled_run& run : scheduled_runs(random_layers(150))) {
    const auto k = static_cast<std::uint32_t>(run.tensor);
    std::mt19937 random(k);
    geometry g = random_geometry(random);
    std::int64_t gap = k % 5 == 0 ? 3 : 0;
    // Every other layer has groups of eight channels.
    if (k % 2 == 0) {
      g.x.c = g.y.c = 8 * pick(random, 1, 3);
      g.window.layout = pool_layout::channels_last;
      gap = k % 4 == 0 ? 0 : 8;
    }
    // y may end before the last windows that there might be.
    if (k % 3 == 0) {
      for (std::int64_t* axis : {&g.y.d, &g.y.h, &g.y.w})
        *axis -= pick(random, 0, 2) * (*axis > 2 ? 1 : 0);
    }
    SCOPED_TRACE(testing::Message() << text_of(run) << ": " << describe(g));
    simt::set_schedule(run.schedule);
    layer_case(g, GetParam(), k / 2 % 2 == 1, rules[k / 4 % 2], gap, random).check();
    if (HasFatalFailure()) return;
  }
}

TEST_P(device_pool, edges) {
  const pool_window halves{2, 2, 2, 2}, overlapping{3, 3, 2, 2, 1, 1}, dense{3, 3, 1, 1, 1, 1};
  pool_window deep = halves, blocks = halves, cube{5, 5, 2, 2, 2, 2}, far{1, 2, 1, 1, 0, 1 << 30};
  deep.kernel_d = 3, deep.stride_d = 2, deep.pad_front = 1;
  blocks.kernel_d = blocks.stride_d = 2;
  cube.kernel_d = 5, cube.stride_d = 3, cube.pad_front = 2;
  far.dilation_w = 1 << 30;
  struct edge {
    pool_window window;
    map x;
  };
  std::vector<edge> edges;
  for (const std::int64_t channels : {1, 7, 8, 9, 16, 64})
    edges.push_back({channels % 2 == 0 ? overlapping : dense, {1, channels, 1, 7, 6, {}}});
  for (const std::int64_t width : {2, 4, 8, 14, 28, 32, 34, 66, 130})
    edges.push_back({halves, {2, 2, 1, 4, width, {}}});
  edges.push_back({halves, {1, 8, 1, 28, 28, {}}});
  edges.push_back({halves, {1, 8, 1, 29, 30, {}}});
  edges.push_back({{3, 3, 3, 3}, {1, 8, 1, 9, 6, {}}});
  edges.push_back({blocks, {2, 8, 4, 4, 6, {}}});
  edges.push_back({overlapping, {2, 3, 1, 33, 35, {}}});
  edges.push_back({deep, {1, 8, 7, 6, 8, {}}});
  edges.push_back({cube, {1, 8, 6, 5, 7, {}}});
  edges.push_back({far, {1, 8, 1, 2, 9, {}}});
  int k = 0;
  std::mt19937 random(7);
  for (const edge& e : edges) {
    for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
      for (const bool relu : {false, true}) {
        geometry g{e.window, e.x, {}, e.x.d > 1};
        g.window.layout = layout;
        ASSERT_TRUE(fit(g, e.window == far ? 0 : 1)) << describe(g);
        SCOPED_TRACE(describe(g));
        simt::set_schedule(schedule_of(++k));
        layer_case(g, GetParam(), relu, rules[k % 2], k % 3 == 0 ? 5 : 0, random).check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Depth without windows of its own, of which y ends before x: what is no plane next to the others.
TEST_P(device_pool, slices_that_no_window_has) {
  int k = 0;
  std::mt19937 random(41);
  for (pool_window window : small_windows()) {
    for (const pool_layout layout : {pool_layout::channels_first, pool_layout::channels_last}) {
      window.layout = layout;
      for (const std::int64_t width : {15, 16}) {
        geometry g{window, {2, 8, 3, 6, width, {}}, {}, true};
        ASSERT_TRUE(fit(g, 1)) << describe(g);
        g.y.d = 2;
        check_layer(g, GetParam(), ++k, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(device_pool, windows_above_256_taps_are_pooled_without_index) {
  for (const std::int64_t channels : {3, 8}) {
    for (const bool relu : {false, true}) {
      std::mt19937 random(3);
      geometry g{{20, 30, 7, 9, 4, 5}, {1, channels, 1, 25, 70, {}}, {}, false};
      ASSERT_TRUE(fit(g, 4));
      fill_values(g.x, GetParam(), random, random_value);
      stored_map x(g.x, GetParam(), false, false, 0);
      x.fill(bits_in_memory_order(g.x, GetParam(), false, exact));
      for (const framework_rule rule : rules) {
        stored_map y(g.y, GetParam(), false, false, 0), expected = y;
        const auto forward = [&](stored_map& out, const encoded_view& index, const execution_context& c) {
          const tensor_view in = in_space(x.view(), c), to = in_space(out.view(), c);
          if (relu) return relu_max_pool_forward(in, to, g.window, {}, index, rule, c);
          max_pool_forward(in, to, g.window, index, rule, c);
        };
        forward(expected, {}, on_host);
        forward(y, {}, on_device);
        EXPECT_EQ(y.bits(), expected.bits());
        encoded index(4096);
        EXPECT_EQ(code_of([&] { forward(y, index.out(), on_device); }), errc::unsupported);
      }
    }
  }
}

TEST(device_pool_empty, maps_are_left_alone) {
  const pool_window first{.layout = pool_layout::channels_first};
  tensor full({2, 3, 4, 4});
  fill_uniform(full, 1);
  const tensor_view none{nullptr, dtype::f32, memory_space::device, {2, 3, 0, 2}, 0};
  const tensor_view map = in_space(full.view(), on_device);
  EXPECT_NO_THROW(max_pool_forward(map, none, first, {}, rules[0], on_device));
  encoded index(0);
  EXPECT_NO_THROW(max_pool_backward(none, {window_index_of(first), none.type, none.dims, index.in()}, map,
                                    first, on_device));
  EXPECT_EQ(full.bits(), std::vector<std::uint32_t>(96, 0)) << "no window: no gradient";
  const tensor_view no_samples{nullptr, dtype::bf16, memory_space::device, {0, 3, 4, 4}, 0};
  const tensor_view no_pooled{nullptr, dtype::bf16, memory_space::device, {0, 3, 2, 2}, 0};
  EXPECT_NO_THROW(max_pool_forward(no_samples, no_pooled, first, index.out(), rules[0], on_device));
  EXPECT_NO_THROW(max_pool_backward(no_pooled,
                                    {window_index_of(first), no_pooled.type, no_pooled.dims, index.in()},
                                    no_samples, first, on_device));
  EXPECT_EQ(index.report.slot_bytes, 0U);
}

TEST(divisor, divides_all_that_a_tensor_can_have) {
  std::mt19937_64 random(5);
  constexpr std::uint64_t most = std::uint64_t{1} << 56;
  std::vector<std::uint64_t> numbers;
  for (int bit = 0; bit <= 56; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    for (const std::uint64_t n : {power - 1, power, power + 1, power + random() % power})
      if (n > 0 && n <= most) numbers.push_back(n);
  }
  for (std::uint64_t n = 1; n < 100; ++n)
    numbers.push_back(n);
  for (const std::uint64_t value : numbers) {
    const kernels::divisor d = kernels::divisor_of(static_cast<std::int64_t>(value));
    for (std::uint64_t n : numbers) {
      ASSERT_EQ(kernels::quotient(n, d), n / value) << n << " / " << value;
      n = n / value * value;
      ASSERT_EQ(kernels::quotient(n, d), n / value) << n << " / " << value;
      if (n == 0) continue;
      ASSERT_EQ(kernels::quotient(n - 1, d), (n - 1) / value) << n - 1 << " / " << value;
    }
  }
}

/// Sums whose NaN a device would make its own.
TEST(device_pool_sums, keep_the_bits_of_nan) {
  const pool_window w{1, 2, 1, 1};
  const auto from_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  const float infinity = std::numeric_limits<float>::infinity();
  const float gradients[][2] = {
      {from_bits(0xff812345U), 1}, {1, from_bits(0xffc54321U)}, {-0.0F, -0.0F}, {infinity, 1}};
  tensor x({1, 1, 3, 1}), dy({1, 1, 2, 1}), expected({1, 1, 3, 1}), dx({1, 1, 3, 1});
  x[0] = 0, x[1] = 1, x[2] = 0;
  for (const auto& pair : gradients) {
    dy[0] = pair[0], dy[1] = pair[1];
    max_pool_backward(dy.view(), x.view(), expected.view(), w, rules[0], on_host);
    max_pool_backward(in_space(dy.view(), on_device), in_space(x.view(), on_device),
                      in_space(dx.view(), on_device), w, rules[0], on_device);
    EXPECT_EQ(dx.bits(), expected.bits());
  }
}

TEST(device_pool_arguments, are_checked) {
  const layer l = layer{2, 6, 6, 8, {2, 2, 2, 2}}.fit(false);
  tensor x(l.x()), y(l.y()), dx(l.x());
  const tensor_view in = in_space(x.view(), on_device), out = in_space(y.view(), on_device),
                    spread = in_space(dx.view(), on_device);
  encoded index(64);
  const auto forward = [&](const tensor_view& from, const tensor_view& to, const encoded_view& taps) {
    return code_of([&] { max_pool_forward(from, to, l.window, taps, rules[0], on_device); });
  };
  EXPECT_EQ(forward(in, out, index.out()), errc::ok);
  EXPECT_EQ(forward(x.view(), out, {}), errc::invalid_argument) << "x in host memory";
  EXPECT_EQ(forward(in, y.view(), {}), errc::invalid_argument) << "y in host memory";
  EXPECT_EQ(forward(in, spread, {}), errc::invalid_argument) << "y of another shape";
  EXPECT_EQ(forward(in, out, {index.data(), 32, nullptr, &index.report}), errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] {
              max_pool_backward(out, {window_index_of(l.window), out.type, out.dims, index.in()}, dx.view(),
                                l.window, on_device);
            }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] { max_pool_backward(out, x.view(), spread, l.window, rules[0], on_device); }),
            errc::invalid_argument);
  for (const char* name : {"bitmap", "csr", "fp16", "sign_mask"}) {
    encoding e = parse_encoding(name);
    e.underflow = underflow_rule::keep_nonzero;
    encoded stash(encoded_bytes_bound(e, dtype::f32, y.elements()));
    encode(e, y.view(), stash.out(), {}, on_host);
    EXPECT_EQ(code_of([&] {
                relu_max_pool_backward(out, {window_index_of(l.window), out.type, out.dims, index.in()},
                                       {e, out.type, out.dims, stash.in()}, spread, l.window, rules[0],
                                       on_device);
              }),
              errc::ok)
        << name;
  }
}

}  // namespace
}  // namespace stash::test
