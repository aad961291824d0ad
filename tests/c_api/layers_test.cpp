// SPDX-License-Identifier: Apache-2.0
// Every layer of the C API gives what its C++ namesake gives, bit for bit.

#include <gtest/gtest.h>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "stash/stash.hpp"

namespace {

using namespace stash_test;
namespace cpp = stash;

constexpr auto rule = cpp::framework_rule::pytorch;

/// A map of 4 x 6 x 8 x 16, its pooled form, and gradients of both.
struct layers : ::testing::Test {
  const std::vector<int64_t> wide_dims{4, 6, 8, 16}, small_dims{4, 3, 4, 16};
  const cpp::shape wide_shape{4, 6, 8, 16}, small_shape{4, 3, 4, 16};
  const std::vector<float> x = make_values(3072, 0.9, flavour::special, 1);
  const std::vector<float> dy_wide = make_values(3072, 1, flavour::mixed, 2);
  const std::vector<float> dy_small = make_values(768, 1, flavour::mixed, 3);
  std::vector<float> found = std::vector<float>(3072, -1.0F), expected = std::vector<float>(3072, -2.0F);
  std::vector<float> found_small = std::vector<float>(768, -1.0F),
                     expected_small = std::vector<float>(768, -2.0F);
  c_buffer c{1024}, c2{1024}, p{1024}, p2{1024};
  cpp::encode_report report, report2;

  const stash_tensor_view c_x = wide(x), c_dy = wide(dy_wide), c_dy_small = small(dy_small);
  const stash_tensor_view c_out = wide(found), c_out_small = small(found_small);
  stash_pool_window window = STASH_INIT(stash_pool_window);
  const cpp::execution_context here{};

  stash_tensor_view wide(const std::vector<float>& v) const {
    return c_view(v.data(), STASH_DTYPE_F32, wide_dims);
  }
  stash_tensor_view small(const std::vector<float>& v) const {
    return c_view(v.data(), STASH_DTYPE_F32, small_dims);
  }
  static cpp::const_tensor_view view(const std::vector<float>& v, const cpp::shape& s) {
    return {v.data(), cpp::dtype::f32, cpp::memory_space::host, s, 0};
  }
  static cpp::tensor_view view(std::vector<float>& v, const cpp::shape& s) {
    return {v.data(), cpp::dtype::f32, cpp::memory_space::host, s, 0};
  }
  cpp::encoded_view out(c_buffer& buffer, cpp::encode_report& r) {
    return {buffer.view.data, buffer.view.bytes, nullptr, &r};
  }
  cpp::const_encoded_view in(c_buffer& buffer, cpp::encode_report& r) {
    return {buffer.view.data, buffer.view.bytes, nullptr, &r};
  }

  /// `status` is that of a C call whose C++ namesake was called before; compares all that they wrote.
  void expect_same(int32_t status) {
    EXPECT_EQ(status, STASH_OK) << last_error();
    EXPECT_EQ(bits_of(found), bits_of(expected));
    EXPECT_EQ(bits_of(found_small), bits_of(expected_small));
    EXPECT_EQ(c.bytes(), p.bytes());
    EXPECT_EQ(c2.bytes(), p2.bytes());
    EXPECT_EQ(c.report.status, report.status);
    EXPECT_EQ(c2.report.status, report2.status);
  }
  void SetUp() override {
    found = expected;
    found_small = expected_small;
  }
};

TEST_F(layers, relu) {
  cpp::relu_forward(view(x, wide_shape), view(expected, wide_shape), out(p, report), rule, here);
  expect_same(stash_relu_forward(&c_x, &c_out, &c.view, STASH_RULE_PYTORCH, nullptr));
  const std::vector<float> y = expected;
  const stash_tensor_view c_y = wide(y);
  const stash_encoding e = c_encoding("sign_mask");
  cpp::relu_backward(view(dy_wide, wide_shape),
                     {cpp::parse_encoding("sign_mask"), view(dy_wide, wide_shape).type,
                      view(dy_wide, wide_shape).dims, in(p, report)},
                     view(expected, wide_shape), rule, here);
  expect_same(stash_relu_backward(&c_dy, c_stored(e, &c.view, c_dy), &c_out, STASH_RULE_PYTORCH, nullptr));
  expected.assign(expected.size(), 0.0F);
  cpp::relu_backward(view(dy_wide, wide_shape), view(y, wide_shape), view(expected, wide_shape), rule, here);
  expect_same(stash_relu_backward_dense(&c_dy, &c_y, &c_out, STASH_RULE_PYTORCH, nullptr));
  EXPECT_EQ(stash_relu_forward(&c_x, &c_out, nullptr, STASH_RULE_PYTORCH, nullptr), STASH_OK)
      << "no mask requested";
  EXPECT_EQ(stash_relu_forward(&c_x, &c_out, nullptr, 5, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_relu_backward(&c_dy, nullptr, &c_out, STASH_RULE_PYTORCH, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_relu_backward: stash: expected a structure, got null");
}

TEST_F(layers, leaky_relu) {
  cpp::leaky_relu_forward(view(x, wide_shape), view(expected, wide_shape), out(p, report), 0.125F, here);
  expect_same(stash_leaky_relu_forward(&c_x, &c_out, &c.view, 0.125F, nullptr));
  const stash_encoding e = c_encoding("sign_mask");
  cpp::leaky_relu_backward(view(dy_wide, wide_shape),
                           {cpp::parse_encoding("sign_mask"), view(dy_wide, wide_shape).type,
                            view(dy_wide, wide_shape).dims, in(p, report)},
                           view(expected, wide_shape), 0.125F, here);
  expect_same(stash_leaky_relu_backward(&c_dy, c_stored(e, &c.view, c_dy), &c_out, 0.125F, nullptr));
  cpp::leaky_relu_backward(view(dy_wide, wide_shape), view(x, wide_shape), view(expected, wide_shape), -3.0F,
                           here);
  expect_same(stash_leaky_relu_backward_dense(&c_dy, &c_x, &c_out, -3.0F, nullptr));
}

TEST_F(layers, clip) {
  cpp::clip_forward(view(x, wide_shape), view(expected, wide_shape), out(p, report), -1, 2, rule, here);
  expect_same(stash_clip_forward(&c_x, &c_out, &c.view, -1, 2, STASH_RULE_PYTORCH, nullptr));
  const stash_encoding e = c_encoding("range_mask");
  cpp::clip_backward(view(dy_wide, wide_shape),
                     {cpp::parse_encoding("range_mask"), view(dy_wide, wide_shape).type,
                      view(dy_wide, wide_shape).dims, in(p, report)},
                     view(expected, wide_shape), -1, 2, rule, here);
  expect_same(
      stash_clip_backward(&c_dy, c_stored(e, &c.view, c_dy), &c_out, -1, 2, STASH_RULE_PYTORCH, nullptr));
  cpp::clip_backward(view(dy_wide, wide_shape), view(x, wide_shape), view(expected, wide_shape), 0, 1, rule,
                     here);
  expect_same(stash_clip_backward_dense(&c_dy, &c_x, &c_out, 0, 1, STASH_RULE_PYTORCH, nullptr));
}

TEST_F(layers, max_pool) {
  cpp::max_pool_forward(view(x, wide_shape), view(expected_small, small_shape), {}, out(p, report), rule,
                        here);
  expect_same(stash_max_pool_forward(&c_x, &c_out_small, &window, &c.view, STASH_RULE_PYTORCH, nullptr));
  cpp::max_pool_backward(view(dy_small, small_shape),
                         {cpp::window_index_of({}), view(dy_small, small_shape).type,
                          view(dy_small, small_shape).dims, in(p, report)},
                         view(expected, wide_shape), {}, here);
  expect_same(stash_max_pool_backward(&c_dy_small,
                                      c_stored(c_codes(STASH_KIND_WINDOW_INDEX, window), &c.view, c_dy_small),
                                      &c_out, &window, nullptr));
  expected.assign(expected.size(), 9.0F);
  cpp::max_pool_backward(view(dy_small, small_shape), view(x, wide_shape), view(expected, wide_shape), {},
                         rule, here);
  expect_same(stash_max_pool_backward_dense(&c_dy_small, &c_x, &c_out, &window, STASH_RULE_PYTORCH, nullptr));
}

TEST_F(layers, window_index) {
  const stash_encoding index_encoding = c_codes(STASH_KIND_WINDOW_INDEX, window);
  const std::int64_t y_dims[] = {4, 3, 4, 16}, x_dims[] = {4, 6, 8, 16};
  std::vector<std::int64_t> positions(768, -1), expected_positions(768, -2);
  cpp::max_pool_forward(view(x, wide_shape), view(expected_small, small_shape), {}, out(p, report), rule,
                        here);
  expect_same(stash_max_pool_forward(&c_x, &c_out_small, &window, &c.view, STASH_RULE_PYTORCH, nullptr));
  cpp::decode_window_index({cpp::window_index_of({}), cpp::dtype::f32, small_shape, in(p, report)},
                           wide_shape, {}, expected_positions.data(), here);
  expect_same(stash_decode_window_index(c_stored(index_encoding, &c.view, c_dy_small), x_dims, &window,
                                        positions.data(), nullptr));
  EXPECT_EQ(positions, expected_positions);
  positions[5] = expected_positions[5] = 48;  // past the plane
  cpp::encode_window_index(positions.data(), small_shape, wide_shape, {}, out(p2, report2), here);
  expect_same(stash_encode_window_index(positions.data(), 4, y_dims, x_dims, &window, &c2.view, nullptr));
  EXPECT_EQ(c2.report.status, STASH_STATUS_CORRUPT);
  EXPECT_EQ(c2.report.slot_bytes, report2.slot_bytes);

  const auto refused = [&](int32_t code, const std::string& text, const int64_t* flat, int32_t rank,
                           const int64_t* y, const int64_t* whole, const stash_encoded_view* index) {
    EXPECT_EQ(stash_encode_window_index(flat, rank, y, whole, &window, index, nullptr), code);
    EXPECT_EQ(last_error(), "stash_encode_window_index: " + text);
  };
  const std::int64_t* const some = positions.data();
  refused(STASH_INVALID_ARGUMENT, "flat: expected data, got a null pointer", nullptr, 4, y_dims, x_dims,
          &c.view);
  refused(STASH_INVALID_ARGUMENT, "y_dims: expected an address, got null", some, 4, nullptr, x_dims, &c.view);
  refused(STASH_INVALID_ARGUMENT, "x_dims: expected an address, got null", some, 4, y_dims, nullptr, &c.view);
  refused(STASH_INVALID_ARGUMENT, "y_dims: expected 0 to 8 dimensions, got 9", some, 9, y_dims, x_dims,
          &c.view);
  refused(STASH_INVALID_ARGUMENT, "x_dims: expected 4 or 5 dimensions, got 3", some, 3, y_dims, x_dims,
          &c.view);
  refused(STASH_INVALID_ARGUMENT, "y_dims: expected 4 samples and 16 channels as in x, got 3 and 4", some, 4,
          std::vector<std::int64_t>{3, 6, 8, 4}.data(), x_dims, &c.view);
  refused(STASH_INVALID_ARGUMENT, "index: expected a structure, got null", some, 4, y_dims, x_dims, nullptr);
  window.kernel_h = 257;
  window.kernel_w = 1;
  window.pad_top = 255;
  refused(STASH_UNSUPPORTED, "window: expected at most 256 taps, got 257", some, 4, y_dims, x_dims, &c.view);
}

TEST_F(layers, window_index_that_is_none) {
  const std::int64_t x_dims[] = {4, 6, 8, 16}, other[] = {4, 6, 8, 8};
  std::vector<std::int64_t> positions(768);
  const auto refused = [&](const std::string& text, const stash_encoding& how, const int64_t* whole,
                           int64_t* flat) {
    EXPECT_EQ(stash_decode_window_index(c_stored(how, &c.view, c_dy_small), whole, &window, flat, nullptr),
              STASH_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), "stash_decode_window_index: " + text);
  };
  stash_encoding how = c_codes(STASH_KIND_WINDOW_INDEX, window);
  refused("flat: expected data, got a null pointer", how, x_dims, nullptr);
  refused("x_dims: expected an address, got null", how, nullptr, positions.data());
  refused("y_dims: expected 4 samples and 8 channels as in x, got 4 and 16", how, other, positions.data());
  refused("index: expected window_index, got sign_mask", c_encoding("sign_mask"), x_dims, positions.data());
  how.window_taps = 9;
  refused("index: expected window_index of 4 taps, as the window has, got one of 9 taps", how, x_dims,
          positions.data());
  EXPECT_EQ(stash_decode_window_index(nullptr, x_dims, &window, positions.data(), nullptr),
            STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_decode_window_index: index: expected a structure, got null");
}

TEST_F(layers, pool_windows_arrive_whole) {
  cpp::pool_window w;
  w.kernel_h = window.kernel_h = 3;
  w.kernel_w = window.kernel_w = 2;
  w.stride_h = window.stride_h = 2;
  w.stride_w = window.stride_w = 2;
  w.pad_top = window.pad_top = 1;
  w.pad_left = window.pad_left = 1;
  w.dilation_h = window.dilation_h = 2;
  w.dilation_w = window.dilation_w = 3;
  cpp::max_pool_forward(view(x, wide_shape), view(expected_small, small_shape), w, out(p, report), rule,
                        here);
  expect_same(stash_max_pool_forward(&c_x, &c_out_small, &window, &c.view, STASH_RULE_PYTORCH, nullptr));

  // NCHW, and with depth: the same numbers as (4, 16, 6, 8) and as (2, 2, 6, 8, 16).
  const cpp::shape first{4, 16, 6, 8}, first_small{4, 16, 3, 4};
  cpp::pool_window channels_first;
  channels_first.layout = cpp::pool_layout::channels_first;
  window = STASH_INIT(stash_pool_window);
  window.layout = STASH_LAYOUT_CHANNELS_FIRST;
  const stash_tensor_view c_first = c_view(x.data(), STASH_DTYPE_F32, {4, 16, 6, 8});
  const stash_tensor_view c_first_small = c_view(found_small.data(), STASH_DTYPE_F32, {4, 16, 3, 4});
  cpp::max_pool_forward(view(x, first), view(expected_small, first_small), channels_first, out(p, report),
                        rule, here);
  expect_same(
      stash_max_pool_forward(&c_first, &c_first_small, &window, &c.view, STASH_RULE_PYTORCH, nullptr));

  const cpp::shape deep{2, 2, 6, 8, 16}, deep_small{2, 2, 3, 4, 16};
  cpp::pool_window with_depth;
  with_depth.kernel_d = 3;
  with_depth.stride_d = 1;
  with_depth.pad_front = 1;
  window = STASH_INIT(stash_pool_window);
  window.kernel_d = 3;
  window.pad_front = 1;
  const stash_tensor_view c_deep = c_view(x.data(), STASH_DTYPE_F32, {2, 2, 6, 8, 16});
  const stash_tensor_view c_deep_small = c_view(found_small.data(), STASH_DTYPE_F32, {2, 2, 3, 4, 16});
  cpp::max_pool_forward(view(x, deep), view(expected_small, deep_small), with_depth, out(p, report), rule,
                        here);
  expect_same(stash_max_pool_forward(&c_deep, &c_deep_small, &window, &c.view, STASH_RULE_PYTORCH, nullptr));
  EXPECT_EQ(stash_max_pool_forward(&c_deep, &c_deep_small, nullptr, &c.view, STASH_RULE_PYTORCH, nullptr),
            STASH_INVALID_ARGUMENT);
}

TEST_F(layers, relu_max_pool) {
  cpp::relu_max_pool_forward(view(x, wide_shape), view(expected_small, small_shape), {}, out(p, report),
                             out(p2, report2), rule, here);
  expect_same(stash_relu_max_pool_forward(&c_x, &c_out_small, &window, &c.view, &c2.view, STASH_RULE_PYTORCH,
                                          nullptr));
  const std::vector<float> y = expected_small;
  const stash_tensor_view c_y = small(y);
  cpp::relu_max_pool_backward(view(dy_small, small_shape),
                              {cpp::relu_pool_of({}), view(dy_small, small_shape).type,
                               view(dy_small, small_shape).dims, in(p, report)},
                              view(expected, wide_shape), {}, here);
  expect_same(stash_relu_max_pool_backward(
      &c_dy_small, c_stored(c_codes(STASH_KIND_RELU_POOL, window), &c.view, c_dy_small), &c_out, &window,
      nullptr));
  expected.assign(expected.size(), 9.0F);
  cpp::relu_max_pool_backward(view(dy_small, small_shape),
                              {cpp::window_index_of({}), view(dy_small, small_shape).type,
                               view(dy_small, small_shape).dims, in(p2, report2)},
                              view(y, small_shape), view(expected, wide_shape), {}, rule, here);
  expect_same(stash_relu_max_pool_backward_output(
      &c_dy_small, c_stored(c_codes(STASH_KIND_WINDOW_INDEX, window), &c2.view, c_dy_small), &c_y, &c_out,
      &window, STASH_RULE_PYTORCH, nullptr));
  expected.assign(expected.size(), 9.0F);
  cpp::relu_max_pool_backward(view(dy_small, small_shape), view(x, wide_shape), view(expected, wide_shape),
                              {}, rule, here);
  expect_same(
      stash_relu_max_pool_backward_dense(&c_dy_small, &c_x, &c_out, &window, STASH_RULE_PYTORCH, nullptr));

  cpp::encoding mask = cpp::parse_encoding("sign_mask");
  mask.rule = rule;
  stash_encoding c_mask = c_encoding("sign_mask");
  c_mask.rule = STASH_RULE_PYTORCH;
  cpp::encode(mask, view(y, small_shape), out(p, report), {}, here);
  ASSERT_EQ(stash_encode(&c_mask, &c_y, &c.view, nullptr, nullptr), STASH_OK);
  expected.assign(expected.size(), 9.0F);
  cpp::relu_max_pool_backward(
      view(dy_small, small_shape),
      {cpp::window_index_of({}), view(dy_small, small_shape).type, view(dy_small, small_shape).dims,
       in(p2, report2)},
      {mask, view(dy_small, small_shape).type, view(dy_small, small_shape).dims, in(p, report)},
      view(expected, wide_shape), {}, rule, here);
  expect_same(stash_relu_max_pool_backward_sign(
      &c_dy_small, c_stored(c_codes(STASH_KIND_WINDOW_INDEX, window), &c2.view, c_dy_small),
      c_stored(c_mask, &c.view, c_dy_small), &c_out, &window, STASH_RULE_PYTORCH, nullptr));
}

TEST_F(layers, dropout) {
  const cpp::dropout_key key{11, 12, 13};
  stash_dropout_key c_key = STASH_INIT(stash_dropout_key);
  c_key.seed = 11;
  c_key.step = 12;
  c_key.layer = 13;
  cpp::dropout_forward(view(x, wide_shape), view(expected, wide_shape), out(p, report), 0.3F, key, here);
  expect_same(stash_dropout_forward(&c_x, &c_out, &c.view, 0.3F, &c_key, nullptr));
  cpp::dropout_backward(view(dy_wide, wide_shape),
                        {{.kind = cpp::encoding_kind::sign_mask}, cpp::dtype::f32, wide_shape, in(p, report)},
                        view(expected, wide_shape), 0.3F, here);
  expect_same(
      stash_dropout_backward(&c_dy, c_stored(c_encoding("sign_mask"), &c.view, c_dy), &c_out, 0.3F, nullptr));
  expected.assign(expected.size(), 9.0F);
  cpp::dropout_backward(view(dy_wide, wide_shape), view(expected, wide_shape), 0.3F, key, here);
  expect_same(stash_dropout_backward_key(&c_dy, &c_out, 0.3F, &c_key, nullptr));
  stash_tensor_view halves = c_x;
  halves.type = STASH_DTYPE_F16;
  EXPECT_EQ(stash_dropout_forward(&halves, &c_out, nullptr, 0.5F, &c_key, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_STREQ(stash_last_error_message(), "stash_dropout_forward: y: expected f16, got f32");
  EXPECT_EQ(stash_dropout_forward(&c_x, &c_out, nullptr, 1.0F, &c_key, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_dropout_forward(&c_x, &c_out, nullptr, 0.5F, nullptr, nullptr), STASH_INVALID_ARGUMENT);
}

}  // namespace
