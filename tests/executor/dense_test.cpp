// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "executor/kernel_rig.hpp"

namespace stash::executor::testing {
namespace {

using planner::op_kind;

struct dense_case {
  const char* name;
  std::int64_t n;
  std::vector<std::int64_t> in;
  std::int64_t out;
  std::int64_t x_margin = 0, y_margin = 0;
};

void PrintTo(const dense_case& c, std::ostream* os) {
  *os << c.name;
}

struct layer {
  explicit layer(const dense_case& c)
      : spec(c),
        x(c.n, c.in, c.x_margin, c.x_margin),
        y(c.n, {c.out}, c.y_margin, c.y_margin),
        dx(c.n, c.in, c.x_margin, c.x_margin),
        dy(c.n, {c.out}, c.y_margin, c.y_margin),
        inputs(x.size() / c.n),
        weights(static_cast<std::size_t>(inputs * c.out)),
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
  }

  std::string forward(int threads = 1) {
    rig r(spec.n);
    const planner::tensor_ref from = r.ref(x), to = r.ref(y);
    r.op(op_kind::dense, {from}, {to}).parameters = r.fixed(2);
    kernel_operands k;
    k.inputs = {x.view()};
    k.outputs = {y.view()};
    k.parameters = {weights.data(), bias.data()};
    return run_last(r.graph, k, {threads});
  }
  std::string backward_weights(int threads = 1) {
    rig r(spec.n);
    const planner::tensor_ref gradient = r.ref(dy), source = r.ref(x);
    planner::op& o = r.op(op_kind::dense_backward_weights, {gradient}, {});
    o.alternatives = {{"from_x", {rig::read(source)}}};
    o.parameters_written = r.fixed(2);
    kernel_operands k;
    k.inputs = {dy.view()};
    k.form = "from_x";
    k.stash = {dense_stash(x)};
    k.parameters_written = {weight_gradient.data(), bias_gradient.data()};
    return run_last(r.graph, k, {threads});
  }
  std::string backward_data(int threads = 1) {
    rig r(spec.n);
    const planner::tensor_ref gradient = r.ref(dy), to = r.ref(dx);
    r.op(op_kind::dense_backward_data, {gradient}, {to}).parameters = r.fixed(1);
    kernel_operands k;
    k.inputs = {dy.view()};
    k.outputs = {dx.view()};
    k.parameters = {weights.data()};
    return run_last(r.graph, k, {threads});
  }

  dense_case spec;
  tensor x, y, dx, dy;
  std::int64_t inputs;
  std::vector<float> weights, weight_gradient, bias, bias_gradient;
};

class dense : public ::testing::TestWithParam<dense_case> {};

TEST_P(dense, matches_plain_loops) {
  layer l(GetParam());
  for (const std::string& implementation : {l.forward(), l.backward_weights(), l.backward_data()}) {
    EXPECT_FALSE(implementation.starts_with("ref")) << implementation;
  }
  const std::int64_t n = l.spec.n, in = l.inputs, out = l.spec.out;
  std::vector<double> y(static_cast<std::size_t>(n * out)), dx(static_cast<std::size_t>(n * in)),
      dw(l.weights.size()), db(l.bias.size());
  for (std::int64_t s = 0; s < n; ++s) {
    for (std::int64_t o = 0; o < out; ++o) {
      const auto gradient = static_cast<double>(l.dy[s * out + o]);
      double sum = static_cast<double>(l.bias[static_cast<std::size_t>(o)]);
      db[static_cast<std::size_t>(o)] += gradient;
      for (std::int64_t i = 0; i < in; ++i) {
        const auto w = static_cast<std::size_t>(o * in + i);
        sum += static_cast<double>(l.x[s * in + i]) * static_cast<double>(l.weights[w]);
        dw[w] += gradient * static_cast<double>(l.x[s * in + i]);
        dx[static_cast<std::size_t>(s * in + i)] += gradient * static_cast<double>(l.weights[w]);
      }
      y[static_cast<std::size_t>(s * out + o)] = sum;
    }
  }
  const auto compare = [](const std::vector<float>& got, const std::vector<double>& expected,
                          const char* what) {
    double scale = 1.0;
    for (const double e : expected)
      scale = std::max(scale, std::abs(e));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), expected[i], 2e-6 * scale) << what << " at " << i;
    }
  };
  compare(l.y.values(), y, "y");
  compare(l.weight_gradient, dw, "weight gradient");
  compare(l.bias_gradient, db, "bias gradient");
  compare(l.dx.values(), dx, "dx");
  EXPECT_TRUE(l.y.margins_untouched());
  EXPECT_TRUE(l.dx.margins_untouched());
}

TEST_P(dense, gradients_match_central_differences) {
  layer l(GetParam());
  l.backward_weights();
  l.backward_data();
  const auto objective = [&] {
    l.forward();
    return weighted_sum(l.dy, l.y);
  };
  const double tolerance = 2e-4 * std::sqrt(static_cast<double>(l.y.size()));
  generator random(5);
  for (int i = 0; i < 3; ++i) {
    const std::size_t w = random.bits() % l.weights.size(), b = random.bits() % l.bias.size();
    const auto at = static_cast<std::int64_t>(random.bits()) % l.x.size();
    expect_close(static_cast<double>(l.weight_gradient[w]), central_difference(l.weights[w], 1.0F, objective),
                 tolerance, "weight");
    expect_close(static_cast<double>(l.bias_gradient[b]), central_difference(l.bias[b], 1.0F, objective),
                 tolerance, "bias");
    expect_close(static_cast<double>(l.dx[at]), central_difference(l.x[at], 1.0F, objective), tolerance, "x");
  }
}

TEST_P(dense, a_second_run_gives_the_same_bits) {
  for (const int threads : {1, 2}) {
    layer first(GetParam()), second(GetParam());
    for (layer* l : {&first, &second}) {
      l->forward(threads);
      l->backward_weights(threads);
      l->backward_data(threads);
    }
    EXPECT_EQ(bits_of(first.y), bits_of(second.y));
    EXPECT_EQ(bits_of(first.weight_gradient), bits_of(second.weight_gradient));
    EXPECT_EQ(bits_of(first.bias_gradient), bits_of(second.bias_gradient));
    EXPECT_EQ(bits_of(first.dx), bits_of(second.dx));
  }
}

// "blocks" needs several blocks of weights and a shorter last one in every direction.
INSTANTIATE_TEST_SUITE_P(shapes, dense,
                         ::testing::Values(dense_case{"one", 1, {1}, 1}, dense_case{"odd", 5, {37}, 3},
                                           dense_case{"classifier", 64, {512}, 10},
                                           dense_case{"map", 6, {3, 3, 20}, 33},
                                           dense_case{"blocks", 3, {4100}, 300},
                                           dense_case{"slice_in", 4, {2, 3, 10}, 16, 3, 0},
                                           dense_case{"slice_out", 4, {24}, 16, 0, 3},
                                           dense_case{"slices_and_blocks", 2, {2, 2, 1030}, 290, 1, 2}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(dense_workspace, is_small_next_to_large_weights) {
  rig r(16);
  const planner::tensor_ref x{r.storage({7, 7, 512}), 0, 0}, y{r.storage({4096}), 0, 0};
  r.op(op_kind::dense, {x}, {y}).parameters = r.fixed(2);
  r.op(op_kind::dense_backward_data, {y}, {x}).parameters = r.fixed(1);
  EXPECT_LT(make_kernel(r.graph, planner::op_id(0), {})->workspace_bytes(), 8 << 20);
  EXPECT_LT(make_kernel(r.graph, planner::op_id(1), {})->workspace_bytes(), 8 << 20);
}

}  // namespace
}  // namespace stash::executor::testing
