// SPDX-License-Identifier: Apache-2.0
#include "encoders/pooling/pool_reference.hpp"
#include "encoders/support.hpp"
#include "stash/cpu.hpp"

namespace stash::test {
namespace {

constexpr execution_context serial;

/// Forward and both backwards of one layer against the reference, all bits.
void check_layer(const layer& l, const tensor& x, framework_rule rule, std::int64_t gap,
                 const execution_context& context) {
  SCOPED_TRACE(testing::Message() << "kernel " << l.window.kernel_h << "x" << l.window.kernel_w << " stride "
                                  << l.window.stride_h << "x" << l.window.stride_w << " pad "
                                  << l.window.pad_top << "," << l.window.pad_left << " map " << l.height
                                  << "x" << l.width << "x" << l.channels << " rule "
                                  << static_cast<int>(rule));
  tensor expected_y(l.y());
  const std::vector<int> taps = reference_pool(l, x, expected_y, rule);
  const std::vector<std::uint8_t> expected_index = reference_index(l, taps);

  tensor y(l.y(), gap);
  encoded index(expected_index.size());
  max_pool_forward(x.view(), y.view(), l.window, index.out(), rule, context);
  ASSERT_EQ(y.bits(), expected_y.bits());
  ASSERT_TRUE(y.gaps_intact());
  ASSERT_EQ(index.all(), expected_index);
  ASSERT_TRUE(index.guard_intact());
  ASSERT_EQ(index.report.slot_bytes, expected_index.size());

  tensor plain(l.y(), gap);
  max_pool_forward(x.view(), plain.view(), l.window, {}, rule, context);
  ASSERT_EQ(plain.bits(), expected_y.bits());

  tensor dy(l.y(), gap), expected_dx(l.x());
  fill_uniform(dy, 7);
  if (dy.elements() > 0) dy[dy.elements() / 2] = -0.0F;
  reference_pool_backward(l, dy, taps, expected_dx);
  tensor dx(l.x(), gap);
  max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                    dx.view(), l.window, context);
  ASSERT_EQ(dx.bits(), expected_dx.bits());
  ASSERT_TRUE(dx.gaps_intact());
  ASSERT_EQ(index.report.status, status_ok);

  tensor searched(l.x(), gap);
  max_pool_backward(dy.view(), x.view(), searched.view(), l.window, rule, context);
  ASSERT_EQ(searched.bits(), expected_dx.bits());
}

TEST(max_pool, every_geometry_matches_the_reference) {
  std::uint32_t seed = 0;
  each_geometry([&](const layer& l) {
    tensor x(l.x());
    ++seed % 2 == 0 ? fill_special(x, seed) : fill_uniform(x, seed);
    for (const framework_rule rule : rules) {
      check_layer(l, x, rule, 0, serial);
      if (testing::Test::HasFatalFailure()) FAIL();
    }
  });
}

TEST(max_pool, edges_of_vectors_bytes_and_runs) {
  for (const layer& l : edge_layers()) {
    tensor x(l.x(), 3);
    fill_special(x, 5);
    check_layer(l, x, framework_rule::pytorch, 3, serial);
    fill_uniform(x, 6);
    check_layer(l, x, framework_rule::tensorflow, 0, serial);
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

TEST(max_pool, any_cut_of_the_loop_gives_the_same_bytes) {
  for (const layer& l : edge_layers()) {
    tensor x(l.x(), 1);
    fill_special(x, 9);
    check_layer(l, x, framework_rule::tensorflow, 1, threads());
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

TEST(max_pool, denormals_are_zeros_to_a_thread_that_takes_them_so) {
  if (!stash_test::denormals_are_zero::works) GTEST_SKIP();
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    set_cpu_target(target);
    for (const layer& l : edge_layers()) {
      if (l.channels > 64) continue;
      for (const framework_rule rule : rules) {
        tensor x(l.x()), dy(l.y()), expected_y(l.y()), expected_dx(l.x());
        fill_special(x, 11);
        fill_uniform(dy, 12);
        const std::vector<int> taps = reference_pool(l, without_denormals(x), expected_y, rule);
        reference_pool_backward(l, dy, taps, expected_dx);
        tensor y(l.y()), plain(l.y()), dx(l.x()), searched(l.x());
        const std::vector<std::uint8_t> expected_index = reference_index(l, taps);
        encoded index(expected_index.size());
        {
          const stash_test::denormals_are_zero mode;
          max_pool_forward(x.view(), y.view(), l.window, index.out(), rule, serial);
          max_pool_forward(x.view(), plain.view(), l.window, {}, rule, serial);
          max_pool_backward(dy.view(),
                            {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                            dx.view(), l.window, serial);
          max_pool_backward(dy.view(), x.view(), searched.view(), l.window, rule, serial);
        }
        ASSERT_EQ(index.all(), expected_index) << target;
        // A denormal may have become a zero or not.
        ASSERT_EQ(without_denormals(y).bits(), expected_y.bits()) << target;
        ASSERT_EQ(without_denormals(plain).bits(), expected_y.bits()) << target;
        ASSERT_EQ(dx.bits(), expected_dx.bits()) << target;
        ASSERT_EQ(searched.bits(), expected_dx.bits()) << target;
      }
    }
  }
  set_cpu_target(before);
}

TEST(max_pool, golden_bytes_of_the_format_document) {
  const auto bytes_of = [](const layer& l, const std::vector<int>& argmaxes) {
    tensor x(l.x()), y(l.y());
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x[i] = -1.0F;
    each_window(l, [&](std::int64_t i, std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t c) {
      const int tap = argmaxes[static_cast<std::size_t>(i)];
      const std::int64_t iy = oy * l.window.stride_h + tap / l.window.kernel_w;
      const std::int64_t ix = ox * l.window.stride_w + tap % l.window.kernel_w;
      x[at(l.x(), n, iy, ix, c)] = 1.0F;
    });
    encoded index(16);
    max_pool_forward(x.view(), y.view(), l.window, index.out(), framework_rule::tensorflow, serial);
    return index.all();
  };
  const auto padded = [](std::vector<std::uint8_t> bytes) {
    bytes.resize(16);
    return bytes;
  };
  EXPECT_EQ(bytes_of(layer{1, 2, 10, 1, {2, 2, 2, 2}}.fit(false), {3, 0, 2, 1, 3}), padded({0x63, 0x03}));
  EXPECT_EQ(bytes_of(layer{1, 3, 9, 1, {3, 3, 3, 3}}.fit(false), {8, 0, 5}), padded({0x08, 0x05}));
  EXPECT_EQ(bytes_of(layer{1, 5, 10, 1, {5, 5, 5, 5}}.fit(false), {16, 3}), padded({0x10, 0x03}));
}

TEST(max_pool, nan_wins_as_the_framework_says) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const layer l = layer{1, 1, 4, 1, {1, 4, 1, 4}}.fit(false);
  const auto argmax = [&](std::initializer_list<float> values, framework_rule rule) {
    tensor x(l.x()), y(l.y());
    std::int64_t i = 0;
    for (const float value : values)
      x[i++] = value;
    encoded index(16);
    max_pool_forward(x.view(), y.view(), l.window, index.out(), rule, serial);
    return static_cast<int>(index.data()[0]);
  };
  EXPECT_EQ(argmax({nan, 2, nan, 1}, framework_rule::tensorflow), 0);
  EXPECT_EQ(argmax({1, nan, 2, nan}, framework_rule::tensorflow), 2);
  EXPECT_EQ(argmax({nan, 2, nan, 1}, framework_rule::pytorch), 2);
  EXPECT_EQ(argmax({1, nan, 5, 2}, framework_rule::pytorch), 1);
  EXPECT_EQ(argmax({-0.0F, 0.0F, -0.0F, 0.0F}, framework_rule::pytorch), 0);
  EXPECT_EQ(argmax({1, 3, 3, 2}, framework_rule::tensorflow), 1);
}

TEST(max_pool, not_finite_gradients_reach_the_chosen_taps_only) {
  const layer l = layer{1, 4, 4, 17, {2, 2, 2, 2}}.fit(false);
  tensor x(l.x()), y(l.y()), dy(l.y()), expected(l.x()), dx(l.x());
  fill_uniform(x, 1);
  fill_special(dy, 2);
  encoded index(32);
  max_pool_forward(x.view(), y.view(), l.window, index.out(), framework_rule::tensorflow, serial);
  reference_pool_backward(l, dy, reference_pool(l, x, y, framework_rule::tensorflow), expected);
  max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                    dx.view(), l.window, serial);
  EXPECT_EQ(dx.bits(), expected.bits());
}

TEST(max_pool, several_nan_sum_to_some_nan) {
  const std::string before = cpu_target();
  for (const std::int64_t channels : {1, 8, 33}) {
    const layer l = layer{1, 1, 3, channels, {1, 2, 1, 1}}.fit(false);
    tensor x(l.x()), dy(l.y()), dx(l.x());
    for (std::int64_t c = 0; c < channels; ++c) {
      x[c] = x[2 * channels + c] = 0.0F;
      x[channels + c] = 1.0F;
      dy[c] = std::bit_cast<float>(0x7fc00001U);
      dy[channels + c] = std::bit_cast<float>(0xffc00002U);
    }
    for (const std::string& target : cpu_targets()) {
      set_cpu_target(target);
      max_pool_backward(dy.view(), x.view(), dx.view(), l.window, framework_rule::tensorflow, serial);
      for (std::int64_t i = 0; i < dx.elements(); ++i)
        ASSERT_EQ(std::isnan(dx[i]), i / channels == 1) << target << ' ' << i;
    }
  }
  set_cpu_target(before);
}

TEST(max_pool, one_window_with_the_longest_stride_and_pitch) {
  const std::vector<float> x{1, 3, -2, 4};
  std::vector<float> y(4);
  const tensor_view map{const_cast<float*>(x.data()), dtype::f32, memory_space::host, shape{1, 1, 1, 4},
                        std::int64_t{1} << 34};
  const pool_window window{.kernel_h = 1, .kernel_w = 1, .stride_h = 2147483647, .stride_w = 2147483647};
  max_pool_forward(map, {y.data(), dtype::f32, memory_space::host, shape{1, 1, 1, 4}, 0}, window, {},
                   framework_rule::tensorflow, {});
  EXPECT_EQ(y, x);
}

TEST(max_pool, empty_maps) {
  for (const layer& l : {layer{0, 4, 4, 3, {2, 2, 2, 2}, 2, 2}, layer{2, 4, 4, 0, {2, 2, 2, 2}, 2, 2},
                         layer{2, 4, 4, 3, {2, 2, 2, 2}, 0, 0}, layer{1, 4, 4, 3, {2, 2, 2, 2}, 2, 0},
                         layer{1, 0, 4, 3, {2, 2, 2, 2}, 0, 2}}) {
    tensor x(l.x()), y(l.y()), dx(l.x());
    encoded index(0);
    max_pool_forward(x.view(), y.view(), l.window, index.out(), framework_rule::tensorflow, serial);
    max_pool_backward(y.view(), {window_index_of(l.window), y.view().type, y.view().dims, index.in()},
                      dx.view(), l.window, serial);
    EXPECT_EQ(dx.bits(), std::vector<std::uint32_t>(static_cast<std::size_t>(dx.elements()), 0));
    EXPECT_TRUE(index.guard_intact());
    EXPECT_EQ(index.report.status, status_ok);
  }
}

/// Every byte of every index is replaced by every value that its bits can hold: the report tells exactly
/// whether a tap does not exist, and the gradients of the others arrive.
TEST(max_pool, corrupt_taps_are_reported_and_dropped) {
  for (const pool_window& window : {pool_window{1, 3, 1, 2, 0, 2}, pool_window{3, 3, 2, 2, 2, 1},
                                    pool_window{3, 5, 2, 2, 1, 4}, pool_window{5, 5, 3, 3, 4, 4}}) {
    const layer l = layer{1, 6, 7, 5, window}.fit(true);
    const std::size_t bits = index_bits(l);
    tensor dy(l.y()), dx(l.x()), expected(l.x());
    fill_uniform(dy, 3);
    for (int code = 0; code < 1 << bits; ++code) {
      std::vector<int> taps(static_cast<std::size_t>(l.pooled()), code);
      encoded index(reference_index(l, taps).size());
      const std::vector<std::uint8_t> bytes = reference_index(l, taps);
      std::memcpy(index.data(), bytes.data(), bytes.size());
      bool corrupt = false;
      each_window(l, [&](std::int64_t i, std::int64_t, std::int64_t oy, std::int64_t ox, std::int64_t) {
        const std::int64_t iy = oy * window.stride_h - window.pad_top + code / window.kernel_w;
        const std::int64_t ix = ox * window.stride_w - window.pad_left + code % window.kernel_w;
        const bool valid = code < window.taps() && iy >= 0 && iy < l.height && ix >= 0 && ix < l.width;
        if (valid) return;
        taps[static_cast<std::size_t>(i)] = -1;
        corrupt = true;
      });
      reference_pool_backward(l, dy, taps, expected);
      max_pool_backward(dy.view(), {window_index_of(window), dy.view().type, dy.view().dims, index.in()},
                        dx.view(), window, serial);
      EXPECT_EQ(dx.bits(), expected.bits()) << code;
      EXPECT_EQ(index.report.status, corrupt ? status_corrupt : status_ok) << code;
    }
  }
}

TEST(max_pool, random_bytes_are_safe) {
  std::mt19937 generator(11);
  for (const layer& l : edge_layers()) {
    if (l.x().elements() > 30000) continue;
    tensor dy(l.y()), dx(l.x());
    fill_uniform(dy, 4);
    encoded index(reference_index(l, std::vector<int>(static_cast<std::size_t>(l.pooled()), 0)).size());
    for (std::uint8_t& byte : std::span(index.data(), index.out().bytes)) {
      byte = static_cast<std::uint8_t>(generator());
    }
    max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                      dx.view(), l.window, threads());
    EXPECT_EQ(index.report.status & ~static_cast<std::uint32_t>(status_corrupt), 0U);
    EXPECT_TRUE(index.guard_intact());
  }
}

TEST(max_pool, wrong_arguments) {
  const layer l = layer{2, 6, 6, 5, {2, 2, 2, 2}}.fit(false);
  tensor x(l.x()), y(l.y()), dx(l.x());
  encoded index(32);
  const auto forward = [&](const const_tensor_view& in, const tensor_view& out, const pool_window& window,
                           const encoded_view& encoded, const execution_context& context) {
    return code_of([&] { max_pool_forward(in, out, window, encoded, framework_rule::tensorflow, context); });
  };
  EXPECT_EQ(forward(x.view(), y.view(), l.window, index.out(), serial), errc::ok);

  execution_context device;
  device.space = memory_space::device;
  EXPECT_EQ(forward(x.view(), y.view(), l.window, index.out(), device), errc::unsupported);

  const_tensor_view other = x.view();
  other.type = dtype::u8;
  EXPECT_EQ(forward(other, y.view(), l.window, {}, serial), errc::invalid_argument);
  other = x.view();
  other.dims = {12, 6, 5};
  EXPECT_EQ(forward(other, y.view(), l.window, {}, serial), errc::invalid_argument);
  other = x.view();
  other.pixel_pitch = 4;
  EXPECT_EQ(forward(other, y.view(), l.window, {}, serial), errc::invalid_argument);
  other = x.view();
  other.data = nullptr;
  EXPECT_EQ(forward(other, y.view(), l.window, {}, serial), errc::invalid_argument);
  tensor more_channels(shape{2, 3, 3, 6}), more_samples(shape{3, 3, 3, 5}), more_rows(shape{2, 4, 3, 5});
  for (tensor* wrong : {&more_channels, &more_samples, &more_rows}) {
    EXPECT_EQ(forward(x.view(), wrong->view(), l.window, {}, serial), errc::invalid_argument);
  }
  for (const pool_window& window :
       {pool_window{0, 2, 2, 2}, pool_window{2, -1, 2, 2}, pool_window{2, 2, 0, 2}, pool_window{2, 2, 2, -3},
        pool_window{2, 2, 2, 2, -1, 0}, pool_window{2, 2, 2, 2, 0, -1}, pool_window{2, 2, 2, 2, 2, 0},
        pool_window{2, 2, 3, 2}, pool_window{2, 2, 2, std::numeric_limits<std::int32_t>::max()}}) {
    EXPECT_EQ(forward(x.view(), y.view(), window, {}, serial), errc::invalid_argument);
  }
  encoded_view bad = index.out();
  bad.bytes = 31;
  EXPECT_EQ(forward(x.view(), y.view(), l.window, bad, serial), errc::capacity_exceeded);
  bad = index.out();
  bad.report = nullptr;
  EXPECT_EQ(forward(x.view(), y.view(), l.window, bad, serial), errc::invalid_argument);
  bad = index.out();
  bad.data = index.data() + 8;
  EXPECT_EQ(forward(x.view(), y.view(), l.window, bad, serial), errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              max_pool_forward(x.view(), y.view(), l.window, {}, static_cast<framework_rule>(9), serial);
            }),
            errc::invalid_argument);

  const auto backward = [&](const const_encoded_view& encoded, const pool_window& window) {
    return code_of([&] {
      max_pool_backward(y.view(), {window_index_of(window), y.view().type, y.view().dims, encoded}, dx.view(),
                        window, serial);
    });
  };
  EXPECT_EQ(backward(index.in(), l.window), errc::ok);
  EXPECT_EQ(backward({}, l.window), errc::invalid_argument);
  EXPECT_EQ(backward(index.in(), pool_window{2, 2, 4, 4}), errc::invalid_argument);
  EXPECT_EQ(backward({index.data(), 16, nullptr, &index.report}, l.window), errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] {
              max_pool_backward(y.view(), y.view(), dx.view(), l.window, framework_rule::tensorflow, serial);
            }),
            errc::invalid_argument);
}

TEST(max_pool, windows_above_256_taps_have_no_index) {
  const layer l = layer{1, 20, 20, 2, {17, 16, 2, 2}}.fit(false);
  tensor x(l.x()), y(l.y()), expected(l.y()), dx(l.x());
  fill_uniform(x, 1);
  encoded index(64);
  const framework_rule rule = framework_rule::tensorflow;
  EXPECT_EQ(code_of([&] { max_pool_forward(x.view(), y.view(), l.window, index.out(), rule, serial); }),
            errc::unsupported);
  EXPECT_EQ(code_of([&] {
              max_pool_backward(y.view(),
                                {window_index_of(l.window), y.view().type, y.view().dims, index.in()},
                                dx.view(), l.window, serial);
            }),
            errc::unsupported);
  EXPECT_EQ(code_of([&] { max_pool_backward(y.view(), x.view(), dx.view(), l.window, rule, serial); }),
            errc::unsupported);
  max_pool_forward(x.view(), y.view(), l.window, {}, rule, serial);
  reference_pool(l, x, expected, rule);
  EXPECT_EQ(y.bits(), expected.bits());
}

}  // namespace
}  // namespace stash::test
