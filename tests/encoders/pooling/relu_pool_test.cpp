// SPDX-License-Identifier: Apache-2.0
#include "encoders/pooling/pool_reference.hpp"
#include "encoders/support.hpp"
#include "stash/cpu.hpp"
#include "stash/relu.hpp"

namespace stash::test {
namespace {

constexpr execution_context serial;

bool has_code(const layer& l) {
  return l.window.taps() <= 15;
}

encoding how_of(encoding_kind kind, value_format values = value_format::source,
                underflow_rule underflow = underflow_rule::to_zero) {
  encoding e;
  e.kind = kind;
  e.values = values;
  e.underflow = underflow;
  return e;
}

/// ReLU and pooling one after the other by the reference, and what the joint layer must give.
struct expectation {
  expectation(const layer& l, const tensor& x, const tensor& dy, framework_rule rule)
      : rectified(l.x()), y(l.y()), dx(l.x()) {
    reference_relu(x, rectified);
    taps = reference_pool(l, rectified, y, rule);
    tensor pooled_gradient(l.x());
    reference_pool_backward(l, dy, taps, pooled_gradient);
    reference_relu_backward(pooled_gradient, rectified, dx, rule);
  }

  tensor rectified, y, dx;
  std::vector<int> taps;
};

/// The signs of y from every encoding that keeps them.
void check_stashes_of_y(const layer& l, const tensor& y, const tensor& dy, encoded& index,
                        const tensor& expected, framework_rule rule, const execution_context& context) {
  encoding mask = how_of(encoding_kind::sign_mask);
  mask.rule = rule;
  for (const encoding& e :
       {mask, how_of(encoding_kind::bitmap), how_of(encoding_kind::bitmap, value_format::fp16),
        how_of(encoding_kind::bitmap, value_format::fp8_e4m3),
        how_of(encoding_kind::cast, value_format::fp16, underflow_rule::keep_nonzero),
        how_of(encoding_kind::cast, value_format::fp8_e4m3, underflow_rule::keep_nonzero)}) {
    encoded stash(encoded_bytes_bound(e, dtype::f32, y.elements()));
    encode(e, y.view(), stash.out(), {}, context);
    tensor dx(l.x());
    relu_max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                           {e, dy.view().type, dy.view().dims, stash.in()}, dx.view(), l.window, rule,
                           context);
    ASSERT_EQ(dx.bits(), expected.bits()) << to_string(e);
    ASSERT_EQ(index.report.status, status_ok);
    ASSERT_EQ(stash.report.status, status_ok);
  }
}

void check_layer(const layer& l, const tensor& x, framework_rule rule, std::int64_t gap,
                 const execution_context& context, bool all_stashes) {
  SCOPED_TRACE(testing::Message() << "kernel " << l.window.kernel_h << "x" << l.window.kernel_w << " stride "
                                  << l.window.stride_h << "x" << l.window.stride_w << " pad "
                                  << l.window.pad_top << "," << l.window.pad_left << " map " << l.height
                                  << "x" << l.width << "x" << l.channels << " rule "
                                  << static_cast<int>(rule));
  tensor dy(l.y(), gap);
  fill_uniform(dy, 3);
  if (dy.elements() > 0) dy[dy.elements() / 2] = -0.0F;
  const expectation expected(l, x, dy, rule);

  tensor y(l.y(), gap), dx(l.x(), gap);
  const std::vector<std::uint8_t> index_bytes = reference_index(l, expected.taps);
  std::vector<std::uint8_t> code_bytes;
  if (has_code(l)) code_bytes = reference_code(l, expected.taps, expected.y, rule);
  encoded index(index_bytes.size()), code(code_bytes.size());
  relu_max_pool_forward(x.view(), y.view(), l.window, has_code(l) ? code.out() : encoded_view{}, index.out(),
                        rule, context);
  ASSERT_EQ(y.bits(), expected.y.bits());
  ASSERT_TRUE(y.gaps_intact());
  ASSERT_EQ(index.all(), index_bytes);
  ASSERT_TRUE(index.guard_intact());

  if (has_code(l)) {
    ASSERT_EQ(code.all(), code_bytes);
    ASSERT_TRUE(code.guard_intact());
    ASSERT_EQ(code.report.slot_bytes, code_bytes.size());
    encoded alone(code_bytes.size());
    relu_max_pool_forward(x.view(), y.view(), l.window, alone.out(), {}, rule, context);
    ASSERT_EQ(alone.all(), code_bytes);
    relu_max_pool_backward(dy.view(), {relu_pool_of(l.window), dy.view().type, dy.view().dims, code.in()},
                           dx.view(), l.window, context);
    ASSERT_EQ(dx.bits(), expected.dx.bits());
    ASSERT_TRUE(dx.gaps_intact());
    ASSERT_EQ(code.report.status, status_ok);
  }

  tensor from_y(l.x(), gap), from_x(l.x(), gap), plain(l.y());
  relu_max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                         y.view(), from_y.view(), l.window, rule, context);
  ASSERT_EQ(from_y.bits(), expected.dx.bits());
  ASSERT_EQ(index.report.status, status_ok);
  relu_max_pool_backward(dy.view(), x.view(), from_x.view(), l.window, rule, context);
  ASSERT_EQ(from_x.bits(), expected.dx.bits());
  relu_max_pool_forward(x.view(), plain.view(), l.window, {}, {}, rule, context);
  ASSERT_EQ(plain.bits(), expected.y.bits());
  if (all_stashes) check_stashes_of_y(l, y, dy, index, expected.dx, rule, context);
}

TEST(relu_max_pool, every_geometry_matches_relu_then_pooling) {
  std::uint32_t seed = 0;
  each_geometry([&](const layer& l) {
    tensor x(l.x());
    ++seed % 2 == 0 ? fill_special(x, seed) : fill_uniform(x, seed);
    for (const framework_rule rule : rules) {
      check_layer(l, x, rule, 0, serial, seed % 7 == 0);
      if (testing::Test::HasFatalFailure()) FAIL();
    }
  });
}

TEST(relu_max_pool, edges_of_vectors_bytes_and_runs) {
  for (const layer& l : edge_layers()) {
    tensor x(l.x(), 2);
    fill_special(x, 5);
    check_layer(l, x, framework_rule::tensorflow, 2, serial, true);
    fill_special(x, 6);
    check_layer(l, x, framework_rule::pytorch, 0, threads(), true);
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

TEST(relu_max_pool, equals_the_separate_calls_of_the_library) {
  for (const layer& l : edge_layers()) {
    for (const framework_rule rule : rules) {
      tensor x(l.x()), dy(l.y());
      fill_special(x, 21);
      fill_uniform(dy, 22);
      tensor rectified(l.x()), y(l.y()), gradient(l.x()), dx(l.x());
      encoded mask(encoded_bytes_bound(how_of(encoding_kind::sign_mask), dtype::f32, x.elements()));
      encoded index(reference_index(l, std::vector<int>(static_cast<std::size_t>(l.pooled()), 0)).size());
      relu_forward(x.view(), rectified.view(), mask.out(), rule, serial);
      max_pool_forward(rectified.view(), y.view(), l.window, index.out(), rule, serial);
      max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                        gradient.view(), l.window, serial);
      relu_backward(gradient.view(),
                    {how_of(encoding_kind::sign_mask), gradient.view().type, gradient.view().dims, mask.in()},
                    dx.view(), rule, serial);

      tensor joint_y(l.y()), joint_dx(l.x());
      encoded joint_index(index.out().bytes);
      relu_max_pool_forward(x.view(), joint_y.view(), l.window, {}, joint_index.out(), rule, serial);
      relu_max_pool_backward(dy.view(), x.view(), joint_dx.view(), l.window, rule, serial);
      ASSERT_EQ(joint_y.bits(), y.bits());
      ASSERT_EQ(joint_index.all(), index.all());
      ASSERT_EQ(joint_dx.bits(), dx.bits());
    }
  }
}

TEST(relu_max_pool, stashes_agree_on_a_thread_that_takes_denormals_for_zeros) {
  if (!stash_test::denormals_are_zero::works) GTEST_SKIP();
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    set_cpu_target(target);
    for (const layer& l : edge_layers()) {
      if (l.channels > 64) continue;
      for (const framework_rule rule : rules) {
        tensor x(l.x()), dy(l.y()), rectified(l.x()), expected_y(l.y());
        fill_special(x, 31);
        fill_uniform(dy, 32);
        reference_relu(without_denormals(x), rectified);
        reference_pool(l, rectified, expected_y, rule);
        const std::vector<int> none(static_cast<std::size_t>(l.pooled()), 0);
        encoded index(reference_index(l, none).size());
        encoded code(has_code(l) ? reference_code(l, none, expected_y, rule).size() : 0);
        tensor y(l.y()), y_of_code(l.y()), from_x(l.x()), from_index(l.x()), from_code(l.x());
        {
          const stash_test::denormals_are_zero mode;
          relu_max_pool_forward(x.view(), y.view(), l.window, {}, index.out(), rule, serial);
          relu_max_pool_backward(dy.view(),
                                 {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                                 y.view(), from_index.view(), l.window, rule, serial);
          relu_max_pool_backward(dy.view(), x.view(), from_x.view(), l.window, rule, serial);
          if (has_code(l)) {
            relu_max_pool_forward(x.view(), y_of_code.view(), l.window, code.out(), {}, rule, serial);
            relu_max_pool_backward(dy.view(),
                                   {relu_pool_of(l.window), dy.view().type, dy.view().dims, code.in()},
                                   from_code.view(), l.window, serial);
          }
        }
        // A denormal may have become a zero or not.
        ASSERT_EQ(without_denormals(y).bits(), expected_y.bits()) << target;
        ASSERT_EQ(from_index.bits(), from_x.bits()) << target;
        if (!has_code(l)) continue;
        ASSERT_EQ(y_of_code.bits(), y.bits()) << target;
        ASSERT_EQ(from_code.bits(), from_x.bits()) << target;
      }
    }
  }
  set_cpu_target(before);
}

TEST(relu_max_pool, a_window_of_zeros_passes_nothing_and_names_its_first_tap) {
  const layer l = layer{1, 2, 2, 16, {2, 2, 2, 2, 1, 1}}.fit(true);
  tensor x(l.x()), y(l.y()), dy(l.y()), dx(l.x());
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x[i] = i % 2 == 0 ? -0.0F : -1.0F;
  for (std::int64_t i = 0; i < dy.elements(); ++i)
    dy[i] = -2.0F;
  encoded code(32), index(16);
  relu_max_pool_forward(x.view(), y.view(), l.window, code.out(), index.out(), framework_rule::pytorch,
                        serial);
  EXPECT_EQ(y.bits(), std::vector<std::uint32_t>(static_cast<std::size_t>(y.elements()), 0));
  EXPECT_EQ(code.all(), std::vector<std::uint8_t>(32, 0));
  // The four windows are clipped to their taps 3, 2, 1 and 0.
  const std::vector<std::uint8_t> first_taps = {0xff, 0xff, 0xff, 0xff, 0xaa, 0xaa, 0xaa, 0xaa,
                                                0x55, 0x55, 0x55, 0x55, 0,    0,    0,    0};
  EXPECT_EQ(index.all(), first_taps);
  relu_max_pool_backward(dy.view(), {relu_pool_of(l.window), dy.view().type, dy.view().dims, code.in()},
                         dx.view(), l.window, serial);
  EXPECT_EQ(dx.bits(), std::vector<std::uint32_t>(static_cast<std::size_t>(dx.elements()), 0));
  EXPECT_EQ(code.report.status, status_ok);
}

TEST(relu_max_pool, golden_bytes_of_the_format_document) {
  // -1 stands for "no gradient".
  const auto bytes_of = [](const layer& l, const std::vector<int>& argmaxes, std::size_t bytes) {
    tensor x(l.x()), y(l.y());
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x[i] = -1.0F;
    each_window(l, [&](std::int64_t i, std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t c) {
      const int tap = argmaxes[static_cast<std::size_t>(i)];
      if (tap < 0) return;
      const std::int64_t iy = oy * l.window.stride_h + tap / l.window.kernel_w;
      const std::int64_t ix = ox * l.window.stride_w + tap % l.window.kernel_w;
      x[at(l.x(), n, iy, ix, c)] = 1.0F;
    });
    encoded code(bytes);
    relu_max_pool_forward(x.view(), y.view(), l.window, code.out(), {}, framework_rule::tensorflow, serial);
    return code.all();
  };
  std::vector<std::uint8_t> two_planes(32, 0);
  two_planes[0] = 0x63;
  two_planes[16] = 0x1d;
  EXPECT_EQ(bytes_of(layer{1, 2, 10, 1, {2, 2, 2, 2}}.fit(false), {3, -1, 2, 1, 0}, 32), two_planes);
  std::vector<std::uint8_t> nibbles(16, 0);
  nibbles[0] = 0xf8;
  EXPECT_EQ(bytes_of(layer{1, 3, 9, 1, {3, 3, 3, 3}}.fit(false), {8, -1, 0}, 16), nibbles);
}

/// Every value that a code can hold, everywhere.
TEST(relu_max_pool, corrupt_codes_are_reported_and_dropped) {
  for (const pool_window& window :
       {pool_window{1, 3, 1, 2, 0, 2}, pool_window{3, 3, 2, 2, 2, 1}, pool_window{3, 5, 2, 2, 1, 4}}) {
    const layer l = layer{1, 6, 7, 5, window}.fit(true);
    const bool two_planes = window.taps() <= 4;
    tensor dy(l.y()), y(l.y()), dx(l.x()), expected(l.x());
    fill_uniform(dy, 3);
    for (int code = 0; code < (two_planes ? 8 : 16); ++code) {
      const int tap = two_planes ? code % 4 : code;
      const bool passes = two_planes ? code >= 4 : code != 15;
      std::vector<int> taps(static_cast<std::size_t>(l.pooled()), tap);
      std::vector<std::uint8_t> bytes = reference_plane(taps, two_planes ? 2 : 4);
      if (two_planes) {
        const auto signs = reference_plane(std::vector<int>(taps.size(), passes ? 1 : 0), 1);
        bytes.insert(bytes.end(), signs.begin(), signs.end());
      }
      encoded stored(bytes.size());
      std::memcpy(stored.data(), bytes.data(), bytes.size());
      bool corrupt = false;
      each_window(l, [&](std::int64_t i, std::int64_t, std::int64_t oy, std::int64_t ox, std::int64_t) {
        const std::int64_t iy = oy * window.stride_h - window.pad_top + tap / window.kernel_w;
        const std::int64_t ix = ox * window.stride_w - window.pad_left + tap % window.kernel_w;
        const bool valid = tap < window.taps() && iy >= 0 && iy < l.height && ix >= 0 && ix < l.width;
        if (!valid || !passes) taps[static_cast<std::size_t>(i)] = -1;
        corrupt = corrupt || (passes && !valid);
      });
      reference_pool_backward(l, dy, taps, expected);
      relu_max_pool_backward(dy.view(), {relu_pool_of(window), dy.view().type, dy.view().dims, stored.in()},
                             dx.view(), window, serial);
      EXPECT_EQ(dx.bits(), expected.bits()) << code;
      EXPECT_EQ(stored.report.status, corrupt ? status_corrupt : status_ok) << code;
    }
  }
}

TEST(relu_max_pool, one_flipped_bit_changes_the_gradient) {
  for (const pool_window& window : {pool_window{2, 2, 2, 2}, pool_window{3, 3, 3, 3}}) {
    const layer l = layer{1, 12, 12, 7, window}.fit(false);
    tensor x(l.x()), y(l.y()), dy(l.y()), dx(l.x()), changed(l.x());
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x[i] = static_cast<float>(i + 1);
    fill_uniform(dy, 1);
    encoded code(reference_code(l, std::vector<int>(static_cast<std::size_t>(l.pooled()), 0), y,
                                framework_rule::tensorflow)
                     .size());
    relu_max_pool_forward(x.view(), y.view(), window, code.out(), {}, framework_rule::tensorflow, serial);
    relu_max_pool_backward(dy.view(), {relu_pool_of(window), dy.view().type, dy.view().dims, code.in()},
                           dx.view(), window, serial);
    const std::int64_t bits = l.pooled() * (window.taps() <= 4 ? 2 : 4);
    for (std::int64_t bit = 0; bit < bits; bit += 5) {
      code.data()[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      relu_max_pool_backward(dy.view(), {relu_pool_of(window), dy.view().type, dy.view().dims, code.in()},
                             changed.view(), window, serial);
      EXPECT_NE(changed.bits(), dx.bits()) << bit;
      code.data()[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    }
  }
}

TEST(relu_max_pool, a_corrupt_stash_of_y_is_reported_on_its_own_report) {
  const layer l = layer{1, 64, 64, 3, {2, 2, 2, 2}}.fit(false);
  tensor x(l.x()), y(l.y()), dy(l.y()), dx(l.x());
  fill_special(x, 1);
  fill_uniform(dy, 2);
  const encoding e = how_of(encoding_kind::bitmap);
  encoded index(reference_plane(std::vector<int>(static_cast<std::size_t>(l.pooled()), 0), 2).size());
  encoded stash(encoded_bytes_bound(e, dtype::f32, y.elements()));
  relu_max_pool_forward(x.view(), y.view(), l.window, {}, index.out(), framework_rule::pytorch, serial);
  encode(e, y.view(), stash.out(), {}, serial);
  ASSERT_EQ(stash.report.flags & flag_mask_is_not_sign, static_cast<std::uint32_t>(flag_mask_is_not_sign));
  // The table of tiles follows the mask plane; an offset of all ones points far outside.
  std::memset(stash.data() + 3072 / 8, 0xff, 4);
  relu_max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                         {e, dy.view().type, dy.view().dims, stash.in()}, dx.view(), l.window,
                         framework_rule::pytorch, serial);
  EXPECT_NE(stash.report.status, status_ok);
  EXPECT_EQ(index.report.status, status_ok);
}

TEST(relu_max_pool, wrong_arguments) {
  const layer l = layer{2, 6, 6, 5, {2, 2, 2, 2}}.fit(false);
  const framework_rule rule = framework_rule::tensorflow;
  tensor x(l.x()), y(l.y()), dx(l.x());
  encoded code(48), index(32), stash(16);
  const auto forward = [&](const encoded_view& c, const encoded_view& i) {
    return code_of([&] { relu_max_pool_forward(x.view(), y.view(), l.window, c, i, rule, serial); });
  };
  EXPECT_EQ(forward(code.out(), index.out()), errc::ok);
  encoded_view small = code.out();
  small.bytes = 47;
  EXPECT_EQ(forward(small, {}), errc::capacity_exceeded);
  small = index.out();
  small.bytes = 16;
  EXPECT_EQ(forward({}, small), errc::capacity_exceeded);
  encoded_view silent = code.out();
  silent.report = nullptr;
  EXPECT_EQ(forward(silent, {}), errc::invalid_argument);

  const encoding mask = how_of(encoding_kind::sign_mask);
  encode(mask, y.view(), stash.out(), {}, serial);
  const auto backward = [&](const encoding& e, const const_encoded_view& s) {
    return code_of([&] {
      relu_max_pool_backward(y.view(), {window_index_of(l.window), y.view().type, y.view().dims, index.in()},
                             {e, y.view().type, y.view().dims, s}, dx.view(), l.window, rule, serial);
    });
  };
  EXPECT_EQ(backward(mask, stash.in()), errc::ok);
  EXPECT_EQ(backward(mask, {stash.data(), 0, nullptr, &stash.report}), errc::capacity_exceeded);
  EXPECT_EQ(backward(mask, {stash.data(), 16, nullptr, nullptr}), errc::invalid_argument);
  EXPECT_EQ(backward(how_of(encoding_kind::shape_only), stash.in()), errc::unsupported);
  EXPECT_EQ(backward(how_of(encoding_kind::cast, value_format::fp16), stash.in()), errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(
                  y.view(), {relu_pool_of(l.window), y.view().type, y.view().dims, const_encoded_view{}},
                  dx.view(), l.window, serial);
            }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(y.view(),
                                     {window_index_of(l.window), y.view().type, y.view().dims, index.in()},
                                     x.view(), dx.view(), l.window, rule, serial);
            }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] { relu_max_pool_backward(y.view(), y.view(), dx.view(), l.window, rule, serial); }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(y.view(), x.view(), dx.view(), l.window, static_cast<framework_rule>(2),
                                     serial);
            }),
            errc::invalid_argument);

  const layer large = layer{1, 8, 8, 2, {4, 4, 2, 2}}.fit(false);
  tensor large_x(large.x()), large_y(large.y());
  EXPECT_EQ(code_of([&] {
              relu_max_pool_forward(large_x.view(), large_y.view(), large.window, code.out(), {}, rule,
                                    serial);
            }),
            errc::unsupported);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(
                  large_y.view(),
                  {relu_pool_of(large.window), large_y.view().type, large_y.view().dims, code.in()},
                  large_x.view(), large.window, serial);
            }),
            errc::unsupported);
}

}  // namespace
}  // namespace stash::test
