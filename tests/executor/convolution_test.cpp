// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "executor/kernel_rig.hpp"
#include "executor/kernels/onednn.hpp"
#include "stash/error.hpp"

namespace stash::executor::testing {
namespace {

using planner::op_kind;

struct convolution_case {
  const char* name;
  std::int64_t n, h, w, c, out;
  std::int32_t kernel_h, kernel_w, stride, pad, groups;
  bool bias = true;
  bool image = false;
  std::int64_t x_margin = 0, y_margin = 0;  ///< channels next to the slice, on each side
};

void PrintTo(const convolution_case& c, std::ostream* os) {
  *os << c.name;
}

/// A convolution with all its tensors, run by the kernels and by plain loops in double.
struct layer {
  explicit layer(const convolution_case& c)
      : spec(c),
        oh((c.h + 2 * c.pad - c.kernel_h) / c.stride + 1),
        ow((c.w + 2 * c.pad - c.kernel_w) / c.stride + 1),
        x(c.n, {c.h, c.w, c.c}, c.x_margin, c.x_margin),
        y(c.n, {oh, ow, c.out}, c.y_margin, c.y_margin),
        dx(c.n, {c.h, c.w, c.c}, c.x_margin, c.x_margin),
        dy(c.n, {oh, ow, c.out}, c.y_margin, c.y_margin),
        weights(static_cast<std::size_t>(c.out * (c.c / c.groups) * c.kernel_h * c.kernel_w)),
        weight_gradient(weights.size(), untouched),
        bias(static_cast<std::size_t>(c.out)),
        bias_gradient(bias.size(), untouched) {
    x.fill(1);
    dy.fill(2);
    generator random(3);
    for (float& w : weights)
      w = random.value();
    for (float& b : bias)
      b = random.value();
    if (c.image) {
      pixels.resize(static_cast<std::size_t>(x.size()));
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        pixels[i] = static_cast<std::uint8_t>(random.bits());
        x[static_cast<std::int64_t>(i)] = (static_cast<float>(pixels[i]) - 128.0F) / 64.0F;
      }
    }
  }

  planner::op_attributes attributes() const {
    planner::op_attributes a;
    a.kernel_h = spec.kernel_h;
    a.kernel_w = spec.kernel_w;
    a.stride_h = a.stride_w = spec.stride;
    a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = spec.pad;
    a.groups = spec.groups;
    a.out_features = spec.out;
    a.bias = spec.bias;
    return a;
  }
  planner::tensor_ref x_ref(rig& r) const {
    if (!spec.image) return r.ref(x);
    return {r.storage({spec.h, spec.w, spec.c}, dtype::u8, planner::storage_role::image), 0, 0};
  }
  tensor_view x_view() {
    tensor_view view = x.view();
    if (spec.image) {
      view.data = pixels.data();
      view.type = dtype::u8;
    }
    return view;
  }

  std::string forward(int threads = 1) {
    rig r(spec.n);
    planner::op& o = r.op(op_kind::conv2d, {x_ref(r)}, {r.ref(y)});
    o.attributes = attributes();
    o.parameters = r.fixed(spec.bias ? 2 : 1);
    kernel_operands k;
    k.inputs = {x_view()};
    k.outputs = {y.view()};
    k.parameters = {weights.data()};
    if (spec.bias) k.parameters.push_back(bias.data());
    return run_last(r.graph, k, {threads});
  }
  std::string backward_weights(int threads = 1) {
    rig r(spec.n);
    const planner::tensor_ref gradient = r.ref(dy), source = x_ref(r);
    planner::op& o = r.op(op_kind::conv2d_backward_weights, {gradient}, {});
    o.attributes = attributes();
    o.alternatives = {{"from_x", {rig::read(source)}}};
    o.parameters_written = r.fixed(spec.bias ? 2 : 1);
    kernel_operands k;
    k.inputs = {dy.view()};
    k.form = "from_x";
    k.stash.resize(1);
    k.stash[0].view = x_view();
    k.parameters_written = {weight_gradient.data()};
    if (spec.bias) k.parameters_written.push_back(bias_gradient.data());
    return run_last(r.graph, k, {threads});
  }
  std::string backward_data(int threads = 1) {
    rig r(spec.n);
    planner::op& o = r.op(op_kind::conv2d_backward_data, {r.ref(dy)}, {r.ref(dx)});
    o.attributes = attributes();
    o.parameters = r.fixed(1);
    kernel_operands k;
    k.inputs = {dy.view()};
    k.outputs = {dx.view()};
    k.parameters = {weights.data()};
    return run_last(r.graph, k, {threads});
  }

  /// Calls visit(x index, y index, weight index) for every product of the convolution.
  template <class Visit>
  void products(const Visit& visit) const {
    const std::int64_t in_group = spec.c / spec.groups, out_group = spec.out / spec.groups;
    for (std::int64_t n = 0; n < spec.n; ++n) {
      for (std::int64_t oy = 0; oy < oh; ++oy) {
        for (std::int64_t ox = 0; ox < ow; ++ox) {
          for (std::int64_t ky = 0; ky < spec.kernel_h; ++ky) {
            for (std::int64_t kx = 0; kx < spec.kernel_w; ++kx) {
              const std::int64_t iy = oy * spec.stride - spec.pad + ky, ix = ox * spec.stride - spec.pad + kx;
              if (iy < 0 || iy >= spec.h || ix < 0 || ix >= spec.w) continue;
              for (std::int64_t o = 0; o < spec.out; ++o) {
                for (std::int64_t i = 0; i < in_group; ++i) {
                  visit(((n * spec.h + iy) * spec.w + ix) * spec.c + o / out_group * in_group + i,
                        ((n * oh + oy) * ow + ox) * spec.out + o,
                        ((o * in_group + i) * spec.kernel_h + ky) * spec.kernel_w + kx);
                }
              }
            }
          }
        }
      }
    }
  }

  convolution_case spec;
  std::int64_t oh, ow;
  tensor x, y, dx, dy;
  std::vector<float> weights, weight_gradient, bias, bias_gradient;
  std::vector<std::uint8_t> pixels;
};

void expect_all_close(const std::vector<float>& got, const std::vector<double>& expected, double tolerance,
                      const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1.0;
  for (const double e : expected)
    scale = std::max(scale, std::abs(e));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), expected[i], tolerance * scale) << what << " at " << i;
  }
}

class convolution : public ::testing::TestWithParam<convolution_case> {};

TEST_P(convolution, forward_matches_plain_loops) {
  layer l(GetParam());
  const std::string implementation = l.forward();
  EXPECT_FALSE(implementation.starts_with("ref")) << implementation;
  std::vector<double> expected(static_cast<std::size_t>(l.y.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = l.spec.bias ? static_cast<double>(l.bias[i % l.bias.size()]) : 0.0;
  }
  l.products([&](std::int64_t xi, std::int64_t yi, std::int64_t wi) {
    expected[static_cast<std::size_t>(yi)] +=
        static_cast<double>(l.x[xi]) * static_cast<double>(l.weights[static_cast<std::size_t>(wi)]);
  });
  expect_all_close(l.y.values(), expected, 1e-6, "y");
  EXPECT_TRUE(l.y.margins_untouched());
}

TEST_P(convolution, weight_gradient_matches_plain_loops) {
  layer l(GetParam());
  const std::string implementation = l.backward_weights();
  EXPECT_FALSE(implementation.starts_with("ref")) << implementation;
  std::vector<double> expected(l.weights.size()), expected_bias(l.bias.size());
  l.products([&](std::int64_t xi, std::int64_t yi, std::int64_t wi) {
    expected[static_cast<std::size_t>(wi)] += static_cast<double>(l.x[xi]) * static_cast<double>(l.dy[yi]);
  });
  for (std::int64_t i = 0; i < l.dy.size(); ++i) {
    expected_bias[static_cast<std::size_t>(i % l.spec.out)] += static_cast<double>(l.dy[i]);
  }
  // A weight sums tens of thousands of products in single precision.
  expect_all_close(l.weight_gradient, expected, 1e-5, "weight gradient");
  if (l.spec.bias) {
    expect_all_close(l.bias_gradient, expected_bias, 1e-7, "bias gradient");
  } else {
    EXPECT_EQ(l.bias_gradient[0], untouched);
  }
}

TEST_P(convolution, input_gradient_matches_plain_loops) {
  if (GetParam().image) GTEST_SKIP() << "images have no gradient";
  layer l(GetParam());
  const std::string implementation = l.backward_data();
  EXPECT_FALSE(implementation.starts_with("ref")) << implementation;
  std::vector<double> expected(static_cast<std::size_t>(l.dx.size()));
  l.products([&](std::int64_t xi, std::int64_t yi, std::int64_t wi) {
    expected[static_cast<std::size_t>(xi)] +=
        static_cast<double>(l.dy[yi]) * static_cast<double>(l.weights[static_cast<std::size_t>(wi)]);
  });
  expect_all_close(l.dx.values(), expected, 2e-6, "dx");
  EXPECT_TRUE(l.dx.margins_untouched());
}

// The objective is linear in each operand, so a large step costs nothing but gains digits.
TEST_P(convolution, gradients_match_central_differences) {
  layer l(GetParam());
  l.backward_weights();
  if (!l.spec.image) l.backward_data();
  const auto objective = [&] {
    l.forward();
    return weighted_sum(l.dy, l.y);
  };
  const double tolerance = 1e-4 * std::sqrt(static_cast<double>(l.y.size()));
  generator random(7);
  for (int i = 0; i < 4; ++i) {
    const std::size_t w = random.bits() % l.weights.size();
    expect_close(static_cast<double>(l.weight_gradient[w]), central_difference(l.weights[w], 1.0F, objective),
                 tolerance, "weight");
    if (l.spec.bias) {
      const std::size_t b = random.bits() % l.bias.size();
      expect_close(static_cast<double>(l.bias_gradient[b]), central_difference(l.bias[b], 1.0F, objective),
                   tolerance, "bias");
    }
    if (!l.spec.image) {
      const auto at = static_cast<std::int64_t>(random.bits()) % l.x.size();
      expect_close(static_cast<double>(l.dx[at]), central_difference(l.x[at], 1.0F, objective), tolerance,
                   "x");
    }
  }
}

TEST_P(convolution, a_second_run_gives_the_same_bits) {
  for (const int threads : {1, 2}) {
    layer first(GetParam()), second(GetParam());
    for (layer* l : {&first, &second}) {
      l->forward(threads);
      l->backward_weights(threads);
      if (!l->spec.image) l->backward_data(threads);
    }
    EXPECT_EQ(bits_of(first.y), bits_of(second.y));
    EXPECT_EQ(bits_of(first.weight_gradient), bits_of(second.weight_gradient));
    EXPECT_EQ(bits_of(first.bias_gradient), bits_of(second.bias_gradient));
    EXPECT_EQ(bits_of(first.dx), bits_of(second.dx));
  }
}

TEST_P(convolution, bias_gradient_does_not_depend_on_threads) {
  if (!GetParam().bias) GTEST_SKIP() << "no bias";
  layer one(GetParam()), two(GetParam());
  one.backward_weights(1);
  two.backward_weights(2);
  EXPECT_EQ(bits_of(one.bias_gradient), bits_of(two.bias_gradient));
}

constexpr std::array cases{
    convolution_case{"k1", 3, 7, 5, 16, 24, 1, 1, 1, 0, 1},
    convolution_case{"k1_stride2", 2, 8, 8, 16, 32, 1, 1, 2, 0, 1, false},
    convolution_case{"k3", 4, 9, 9, 16, 8, 3, 3, 1, 1, 1},
    convolution_case{"k3_no_bias", 2, 12, 12, 8, 16, 3, 3, 1, 1, 1, false},
    convolution_case{"k3_odd", 3, 9, 7, 5, 7, 3, 3, 1, 1, 1},
    convolution_case{"k3_stride2", 2, 11, 10, 8, 8, 3, 3, 2, 1, 1},
    convolution_case{"k1x7", 2, 9, 9, 8, 8, 1, 7, 1, 3, 1},
    convolution_case{"k5", 2, 8, 8, 8, 16, 5, 5, 1, 2, 1},
    convolution_case{"k7_stride2", 2, 18, 18, 8, 16, 7, 7, 2, 3, 1},
    convolution_case{"k11_stride4", 2, 31, 32, 8, 16, 11, 11, 4, 0, 1},
    convolution_case{"groups2", 2, 8, 8, 16, 32, 3, 3, 1, 1, 2},
    convolution_case{"groups3_odd", 2, 6, 6, 9, 6, 3, 3, 1, 1, 3},
    convolution_case{"depthwise", 2, 8, 8, 16, 16, 3, 3, 1, 1, 16},
    convolution_case{"one_sample", 1, 5, 5, 8, 8, 3, 3, 1, 1, 1},
    convolution_case{"one_channel", 2, 6, 6, 1, 1, 3, 3, 1, 1, 1},
    convolution_case{"slice_in", 5, 8, 8, 16, 8, 3, 3, 1, 1, 1, true, false, 3, 0},
    convolution_case{"slice_out", 5, 8, 8, 8, 16, 3, 3, 1, 1, 1, true, false, 0, 5},
    convolution_case{"slice_both_parts", 11, 32, 32, 16, 16, 1, 1, 1, 0, 1, true, false, 2, 2},
    convolution_case{"image", 3, 12, 12, 3, 8, 3, 3, 1, 1, 1, true, true},
    convolution_case{"image_k11", 2, 35, 35, 3, 8, 11, 11, 4, 0, 1, true, true},
    convolution_case{"image_parts", 43, 64, 64, 3, 2, 3, 3, 2, 1, 1, true, true},
};
INSTANTIATE_TEST_SUITE_P(shapes, convolution, ::testing::ValuesIn(cases),
                         [](const auto& test) { return std::string(test.param.name); });

// 43 images of 64 x 64 x 3 floats are 2 MiB: the whole batch must not be converted at once.
TEST(convolution_workspace, images_are_converted_in_parts) {
  rig r(43);
  const planner::tensor_ref image{r.storage({64, 64, 3}, dtype::u8, planner::storage_role::image), 0, 0};
  const planner::tensor_ref y{r.storage({64, 64, 8}), 0, 0};
  planner::op& o = r.op(op_kind::conv2d, {image}, {y});
  o.attributes.kernel_h = o.attributes.kernel_w = 3;
  o.attributes.pad_top = o.attributes.pad_left = o.attributes.pad_bottom = o.attributes.pad_right = 1;
  o.parameters = r.fixed(2);
  const std::int64_t bytes = make_kernel(r.graph, planner::op_id(0), {})->workspace_bytes();
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, (1 << 20) + (64 << 10));
}

TEST(convolution_shape, maps_beyond_the_arithmetic_of_the_library_are_refused) {
  const auto made = [](std::int64_t side, std::int32_t pad) {
    onednn::convolution_shape s;
    s.in_h = s.in_w = side;
    s.kernel_h = s.kernel_w = 3;
    s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = pad;
    s.out_h = s.out_w = side + 2 * pad - 2;
    return onednn::convolution(onednn::direction::forward, s, false);
  };
  EXPECT_NO_THROW(made(46'338, 1));
  for (const auto& [side, pad] : {std::pair{65'536, 1}, {65'536, 0}, {46'340, 1}}) {
    try {
      made(side, pad);
      ADD_FAILURE() << side;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::unsupported) << e.what();
    }
  }
}

TEST(convolution_workspace, views_must_be_pitched_where_the_graph_says_so) {
  rig r(1);
  tensor x(1, {4, 4, 8}), y(1, {4, 4, 8});
  planner::op& o = r.op(op_kind::conv2d, {r.ref(x)}, {r.ref(y)});
  o.parameters = r.fixed(1);
  tensor sliced(1, {4, 4, 8}, 2, 2);
  std::vector<float> weights(64);
  kernel_operands k;
  k.inputs = {sliced.view()};
  k.outputs = {y.view()};
  k.parameters = {weights.data()};
  try {
    run_last(r.graph, k);
    FAIL() << "no error";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::invalid_argument);
  }
}

}  // namespace
}  // namespace stash::executor::testing
