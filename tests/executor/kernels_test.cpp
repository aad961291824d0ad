// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "executor/kernel_rig.hpp"
#include "stash/error.hpp"

namespace stash::executor::testing {
namespace {

using planner::need;
using planner::op_kind;

template <class Function>
errc code_of(const Function& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

struct bits_mask {
  explicit bits_mask(std::int64_t elements)
      : count(elements), memory(static_cast<std::size_t>(elements / 128 + 1)), bytes(memory.size() * 16) {}
  encoded_view view() { return {memory.data(), bytes, nullptr, &report}; }
  stash_operand stash() {
    stash_operand operand;
    operand.dense = false;
    operand.stored = {{.kind = encoding_kind::sign_mask},
                      dtype::f32,
                      shape({count}),
                      {memory.data(), bytes, nullptr, &report}};
    return operand;
  }
  struct alignas(16) block {
    std::byte data[16];
  };
  std::int64_t count;
  std::vector<block> memory;
  std::size_t bytes;
  encode_report report;
};

/// An activation forward, x to y.
void activate(op_kind kind, tensor& x, tensor& y, bool in_place = false, int threads = 1,
              float slope = 0.1F) {
  rig r(x.dims()[0]);
  const planner::tensor_ref in = r.ref(x), out = in_place ? in : r.ref(y);
  r.op(kind, {in}, {out}).attributes.negative_slope = slope;
  kernel_operands k;
  k.inputs = {x.view()};
  k.outputs = {in_place ? x.view() : y.view()};
  run_last(r.graph, k, {threads});
}

void activate_backward(op_kind kind, tensor& dy, tensor& dx, const stash_operand& stash,
                       framework_rule rule = framework_rule::tensorflow, int threads = 1,
                       float slope = 0.1F) {
  rig r(dy.dims()[0]);
  const planner::tensor_ref in = r.ref(dy), out = r.ref(dx);
  planner::op& o = r.op(kind, {in}, {out});
  o.attributes.negative_slope = slope;
  o.alternatives = {{"from_y", {rig::read(out, need::sign)}}};
  kernel_operands k;
  k.inputs = {dy.view()};
  k.outputs = {dx.view()};
  k.form = "from_y";
  k.stash = {stash};
  run_last(r.graph, k, {threads, rule});
}

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct activation_pair {
  op_kind forward, backward;
};
constexpr std::array activations{activation_pair{op_kind::relu, op_kind::relu_backward},
                                 activation_pair{op_kind::leaky_relu, op_kind::leaky_relu_backward},
                                 activation_pair{op_kind::relu6, op_kind::relu6_backward}};

TEST(activations, special_values) {
  const std::vector<float> inputs{-0.0F, 0.0F, -1.0F, 2.0F, 6.0F, 7.0F, infinity, -infinity, 1e-45F, -1e-45F};
  tensor x(1, {10}), y(1, {10});
  x.set(inputs);
  activate(op_kind::leaky_relu, x, y, false, 1, 0.5F);
  EXPECT_EQ(y.values(),
            (std::vector<float>{-0.0F, 0.0F, -0.5F, 2.0F, 6.0F, 7.0F, infinity, -infinity, 1e-45F, -0.0F}));
  activate(op_kind::relu6, x, y);
  EXPECT_EQ(bits_of(y), bits_of(std::vector<float>{0, 0, 0, 2.0F, 6.0F, 6.0F, 6.0F, 0, 1e-45F, 0}));
  activate(op_kind::relu, x, y);
  EXPECT_EQ(bits_of(y), bits_of(std::vector<float>{0, 0, 0, 2.0F, 6.0F, 7.0F, infinity, 0, 1e-45F, 0}));
  for (const activation_pair& pair : activations) {
    x.fill(1);
    x[3] = nan;
    activate(pair.forward, x, y);
    EXPECT_TRUE(std::isnan(y[3]));
  }
}

TEST(activations, nan_passes_gradient_as_the_rule_says) {
  tensor y(1, {1}), dy(1, {1}), dx(1, {1});
  y[0] = nan;
  dy[0] = 3.0F;
  activate_backward(op_kind::leaky_relu_backward, dy, dx, dense_stash(y), framework_rule::tensorflow, 1,
                    0.5F);
  EXPECT_EQ(dx[0], 1.5F);
  activate_backward(op_kind::leaky_relu_backward, dy, dx, dense_stash(y), framework_rule::pytorch, 1, 0.5F);
  EXPECT_EQ(dx[0], 3.0F);
  activate_backward(op_kind::relu_backward, dy, dx, dense_stash(y), framework_rule::tensorflow);
  EXPECT_EQ(dx[0], 0.0F);
  activate_backward(op_kind::relu_backward, dy, dx, dense_stash(y), framework_rule::pytorch);
  EXPECT_EQ(dx[0], 3.0F);
  activate_backward(op_kind::relu6_backward, dy, dx, dense_stash(y));
  EXPECT_EQ(dx[0], 0.0F);
}

TEST(activations, gradients_match_central_differences) {
  for (const activation_pair& pair : activations) {
    tensor x(3, {37}), y(3, {37}), dy(3, {37}), dx(3, {37});
    dy.fill(2);
    for (std::int64_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 17) - 8.5F;  // 0.5 from every kink
    activate(pair.forward, x, y);
    activate_backward(pair.backward, dy, dx, dense_stash(y));
    const auto objective = [&] {
      activate(pair.forward, x, y);
      return weighted_sum(dy, y);
    };
    for (std::int64_t i = 0; i < x.size(); i += 3) {
      EXPECT_NEAR(static_cast<double>(dx[i]), central_difference(x[i], 0.25F, objective), 1e-5) << i;
    }
  }
}

// Pitched, in place, from a mask, two threads: always the bits of the plain run. 40,020 elements make several
// chunks.
TEST(activations, all_ways_give_the_same_bits) {
  for (const activation_pair& pair : activations) {
    tensor x(4, {15, 23, 29}), y(4, {15, 23, 29}), dy(4, {15, 23, 29}), dx(4, {15, 23, 29});
    x.fill(1, 10.0F);
    dy.fill(2);
    activate(pair.forward, x, y);
    activate_backward(pair.backward, dy, dx, dense_stash(y));
    const auto expected_y = bits_of(y), expected_dx = bits_of(dx);

    tensor sliced_x(4, {15, 23, 29}, 2, 1), sliced_y(4, {15, 23, 29}, 0, 3);
    sliced_x.set(x.values());
    activate(pair.forward, sliced_x, sliced_y, false, 2);
    EXPECT_EQ(bits_of(sliced_y), expected_y);
    EXPECT_TRUE(sliced_y.margins_untouched());

    tensor sliced_dy(4, {15, 23, 29}, 1, 1), sliced_dx(4, {15, 23, 29}, 3, 0);
    sliced_dy.set(dy.values());
    activate_backward(pair.backward, sliced_dy, sliced_dx, dense_stash(sliced_y), {}, 2);
    EXPECT_EQ(bits_of(sliced_dx), expected_dx);
    EXPECT_TRUE(sliced_dx.margins_untouched());

    if (pair.forward != op_kind::relu6) {
      bits_mask mask(y.size());
      encode({.kind = encoding_kind::sign_mask}, y.view(), mask.view(), {}, {});
      tensor from_mask(4, {15, 23, 29});
      activate_backward(pair.backward, dy, from_mask, mask.stash(), {}, 2);
      EXPECT_EQ(bits_of(from_mask), expected_dx);
      activate_backward(pair.backward, sliced_dy, sliced_dx, mask.stash());
      EXPECT_EQ(bits_of(sliced_dx), expected_dx);
    }
    activate_backward(pair.backward, dy, dy, dense_stash(y), {}, 2);
    EXPECT_EQ(bits_of(dy), expected_dx);
    activate(pair.forward, x, x, true, 2);
    EXPECT_EQ(bits_of(x), expected_y);
  }
}

TEST(activations, encoded_stashes_that_do_not_serve_are_refused) {
  tensor dy(1, {64}), dx(1, {64});
  dy.fill(1);
  bits_mask mask(64);
  EXPECT_EQ(code_of([&] { activate_backward(op_kind::relu6_backward, dy, dx, mask.stash()); }),
            errc::unsupported);
  stash_operand bitmap = mask.stash();
  bitmap.stored.how = {.kind = encoding_kind::bitmap};
  EXPECT_EQ(code_of([&] { activate_backward(op_kind::leaky_relu_backward, dy, dx, bitmap); }),
            errc::unsupported);
  stash_operand small = mask.stash();
  small.stored.bytes.bytes = 7;
  EXPECT_EQ(code_of([&] { activate_backward(op_kind::leaky_relu_backward, dy, dx, small); }),
            errc::capacity_exceeded);
}

TEST(sums, add_copy_and_accumulate) {
  for (const std::int64_t margin : {0, 2}) {
    for (const int threads : {1, 2}) {
      tensor a(2, {33, 17, 31}, margin, 0), b(2, {33, 17, 31}, 0, margin), c(2, {33, 17, 31}, margin, margin);
      a.fill(1);
      b.fill(2);
      rig r(2);
      const planner::tensor_ref ra = r.ref(a), rb = r.ref(b), rc = r.ref(c);
      kernel_operands k;
      k.inputs = {a.view(), b.view()};
      k.outputs = {c.view()};
      r.op(op_kind::add, {ra, rb}, {rc});
      run_last(r.graph, k, {threads});
      std::vector<float> expected;
      for (std::int64_t i = 0; i < a.size(); ++i)
        expected.push_back(a[i] + b[i]);
      EXPECT_EQ(c.values(), expected);

      k.inputs = {c.view(), a.view()};
      r.op(op_kind::accumulate, {rc, ra}, {rc});
      run_last(r.graph, k, {threads});
      for (std::int64_t i = 0; i < a.size(); ++i)
        expected[static_cast<std::size_t>(i)] += a[i];
      EXPECT_EQ(c.values(), expected);

      k.inputs = {a.view()};
      r.op(op_kind::copy, {ra}, {rc});
      run_last(r.graph, k, {threads});
      EXPECT_EQ(c.values(), a.values());
      EXPECT_TRUE(c.margins_untouched());
    }
  }
}

/// One dropout layer of 3 x 1,003 elements.
struct dropout_layer {
  explicit dropout_layer(std::int64_t margin = 0)
      : x(3, {17, 59}, margin, margin),
        y(3, {17, 59}, margin, 0),
        dy(3, {17, 59}, 0, margin),
        dx(3, {17, 59}) {
    x.fill(1);
    dy.fill(2);
  }
  void forward(const auxiliary_operand& mask, bool training = true, bool in_place = false) {
    rig r(3);
    const planner::tensor_ref in = r.ref(x), out = r.ref(y);
    planner::op& o = r.op(op_kind::dropout, {in}, {in_place ? in : out});
    o.attributes.drop_probability = 0.25F;
    o.optional_outputs = {r.storage({17, 59}, dtype::u8)};
    kernel_operands k;
    k.inputs = {x.view()};
    k.outputs = {in_place ? x.view() : y.view()};
    k.optional_outputs = {mask};
    k.key = key;
    k.training = training;
    run_last(r.graph, k);
  }
  void backward(const std::string& form, std::vector<stash_operand> stash) {
    rig r(3);
    const planner::tensor_ref in = r.ref(dy), out = r.ref(dx), mask{r.storage({17, 59}, dtype::u8), 0, 0};
    planner::op& o = r.op(op_kind::dropout_backward, {in}, {out});
    o.attributes.drop_probability = 0.25F;
    o.alternatives = {{form, {}}};
    if (!stash.empty()) o.alternatives[0].reads = {rig::read(mask, need::mask)};
    kernel_operands k;
    k.inputs = {dy.view()};
    k.outputs = {dx.view()};
    k.form = form;
    k.stash = std::move(stash);
    k.key = key;
    run_last(r.graph, k);
  }
  tensor x, y, dy, dx;
  dropout_key key{42, 7, 3};
};

TEST(dropout, forms_agree_and_are_the_derivative) {
  const auto factor = static_cast<float>(1.0 / 0.75);
  for (const std::int64_t margin : {0, 2}) {
    dropout_layer l(margin);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(l.x.size()) + 8, 99);
    encode_report report;
    l.forward({true, {}, {bytes.data(), static_cast<std::size_t>(l.x.size()), nullptr, &report}});
    const std::vector<std::uint32_t> expected_y = bits_of(l.y);
    EXPECT_EQ(bytes[static_cast<std::size_t>(l.x.size())], 99);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < l.x.size(); ++i) {
      const std::uint8_t keep = bytes[static_cast<std::size_t>(i)];
      ASSERT_LE(keep, 1);
      kept += keep;
      ASSERT_EQ(l.y[i], keep != 0 ? l.x[i] * factor : 0.0F) << i;
    }
    EXPECT_GT(kept, l.x.size() * 70 / 100);
    EXPECT_LT(kept, l.x.size() * 80 / 100);

    bits_mask mask(l.x.size());
    l.forward({true, {.kind = encoding_kind::sign_mask}, mask.view()});
    EXPECT_EQ(bits_of(l.y), expected_y);
    l.forward({});
    EXPECT_EQ(bits_of(l.y), expected_y);
    EXPECT_TRUE(l.y.margins_untouched());

    l.backward("from_seed", {});
    const std::vector<std::uint32_t> expected = bits_of(l.dx);
    for (std::int64_t i = 0; i < l.dx.size(); ++i) {
      ASSERT_EQ(l.dx[i], bytes[static_cast<std::size_t>(i)] != 0 ? l.dy[i] * factor : 0.0F) << i;
    }
    l.backward("from_mask", {mask.stash()});
    EXPECT_EQ(bits_of(l.dx), expected);
    stash_operand raw;
    raw.view = {bytes.data(), dtype::u8, memory_space::host, shape({l.x.size()})};
    l.backward("from_mask", {raw});
    EXPECT_EQ(bits_of(l.dx), expected);
    raw.dense = false;
    raw.stored.bytes = {bytes.data(), static_cast<std::size_t>(l.x.size()), nullptr, &report};
    l.backward("from_mask", {raw});
    EXPECT_EQ(bits_of(l.dx), expected);
    l.forward({}, true, true);
    EXPECT_EQ(bits_of(l.x), expected_y);
  }
}

TEST(dropout, is_the_identity_outside_training) {
  dropout_layer l;
  l.forward({}, false);
  EXPECT_EQ(bits_of(l.y), bits_of(l.x));
}

struct loss_layer {
  loss_layer(std::int64_t n, std::int64_t classes, std::int64_t margin = 0)
      : logits(n, {classes}, margin, 0), probabilities(n, {classes}, 0, margin), gradient(n, {classes}) {
    logits.fill(1, 4.0F);
    for (std::int64_t i = 0; i < n; ++i)
      labels.push_back(static_cast<std::int32_t>(i * 7 % classes));
  }
  tensor_view label_view() {
    return {labels.data(), dtype::s32, memory_space::host, shape({static_cast<std::int64_t>(labels.size())})};
  }
  void forward(int threads = 1, bool in_place = false) {
    rig r(logits.dims()[0]);
    const planner::tensor_ref in = r.ref(logits), out = r.ref(probabilities);
    const planner::tensor_ref label{r.storage({}, dtype::s32, planner::storage_role::label), 0, 0};
    r.op(op_kind::softmax_cross_entropy, {in, label}, {in_place ? in : out});
    kernel_operands k;
    k.inputs = {logits.view(), label_view()};
    k.outputs = {in_place ? logits.view() : probabilities.view()};
    k.loss = &loss;
    k.correct = &correct;
    run_last(r.graph, k, {threads});
  }
  void backward(int threads = 1, bool in_place = false) {
    rig r(logits.dims()[0]);
    const planner::tensor_ref out = r.ref(gradient), source = r.ref(probabilities);
    const planner::tensor_ref label{r.storage({}, dtype::s32, planner::storage_role::label), 0, 0};
    planner::op& o = r.op(op_kind::softmax_cross_entropy_backward, {label}, {in_place ? source : out});
    o.alternatives = {{"from_probabilities", {rig::read(source, need::exact_value)}}};
    kernel_operands k;
    k.inputs = {label_view()};
    k.outputs = {in_place ? probabilities.view() : gradient.view()};
    k.form = "from_probabilities";
    k.stash = {dense_stash(probabilities)};
    run_last(r.graph, k, {threads});
  }
  tensor logits, probabilities, gradient;
  std::vector<std::int32_t> labels;
  double loss = -1.0;
  std::int64_t correct = -1;
};

TEST(softmax_cross_entropy, matches_the_definition) {
  for (const std::int64_t classes : {1, 2, 10, 1000}) {
    loss_layer l(9, classes, classes == 10 ? 3 : 0);
    l.forward();
    double loss = 0.0;
    std::int64_t correct = 0;
    for (std::int64_t i = 0; i < 9; ++i) {
      double sum = 0.0;
      std::int64_t best = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        sum += std::exp(static_cast<double>(l.logits[i * classes + c]));
        if (l.logits[i * classes + c] > l.logits[i * classes + best]) best = c;
      }
      const std::int64_t label = l.labels[static_cast<std::size_t>(i)];
      loss += std::log(sum) - static_cast<double>(l.logits[i * classes + label]);
      correct += best == label ? 1 : 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double p = std::exp(static_cast<double>(l.logits[i * classes + c])) / sum;
        ASSERT_NEAR(static_cast<double>(l.probabilities[i * classes + c]), p, 1e-6 * p);
      }
    }
    EXPECT_NEAR(l.loss, loss / 9.0, 1e-6);
    EXPECT_EQ(l.correct, correct);
  }
}

TEST(softmax_cross_entropy, gradient_matches_central_differences) {
  loss_layer l(5, 11, 2);
  l.forward();
  l.backward();
  for (std::int64_t i = 0; i < l.logits.size(); ++i) {
    const double expected = central_difference(l.logits[i], 0.01F, [&] {
      l.forward();
      return l.loss;
    });
    EXPECT_NEAR(static_cast<double>(l.gradient[i]), expected, 1e-5) << i;
  }
}

TEST(softmax_cross_entropy, threads_and_memory_do_not_matter) {
  loss_layer one(33, 130), two(33, 130);
  one.forward();
  one.backward();
  two.forward(2);
  two.backward(2);
  EXPECT_EQ(one.loss, two.loss);
  EXPECT_EQ(bits_of(one.probabilities), bits_of(two.probabilities));
  EXPECT_EQ(bits_of(one.gradient), bits_of(two.gradient));
  two.forward(2, true);
  EXPECT_EQ(one.loss, two.loss);
  EXPECT_EQ(bits_of(two.logits), bits_of(one.probabilities));
  two.backward(1, true);
  EXPECT_EQ(bits_of(two.probabilities), bits_of(one.gradient));
}

TEST(softmax_cross_entropy, huge_logits_do_not_overflow) {
  loss_layer l(1, 3);
  l.logits.set({3e38F, -3e38F, 0.0F});
  l.labels = {0};
  l.forward();
  EXPECT_EQ(l.probabilities.values(), (std::vector<float>{1.0F, 0.0F, 0.0F}));
  EXPECT_EQ(l.loss, 0.0);
}

TEST(softmax_cross_entropy, labels_must_name_a_class) {
  for (const std::int32_t label : {-1, 10}) {
    loss_layer l(2, 10);
    l.labels[1] = label;
    EXPECT_EQ(code_of([&] { l.forward(); }), errc::invalid_argument);
    EXPECT_EQ(code_of([&] { l.backward(); }), errc::invalid_argument);
  }
}

TEST(make_kernel, names_what_it_cannot_run) {
  for (const op_kind kind : {op_kind::lrn, op_kind::lrn_backward, op_kind::sgd_update}) {
    rig r(1);
    r.op(kind, {}, {});
    try {
      make_kernel(r.graph, planner::op_id(0), {});
      FAIL() << "no error";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::unsupported);
      EXPECT_NE(std::string(e.what()).find("op0"), std::string::npos) << e.what();
    }
  }
  rig r(1);
  const planner::tensor_ref x{r.storage({4}), 0, 0};
  r.op(op_kind::relu, {x}, {x});
  EXPECT_EQ(code_of([&] { make_kernel(r.graph, planner::op_id(0), {0}); }), errc::invalid_argument);
  r.graph.batch = 0;
  EXPECT_EQ(code_of([&] { make_kernel(r.graph, planner::op_id(0), {1}); }), errc::invalid_argument);
}

TEST(run, operands_must_fit_the_op) {
  tensor x(2, {4}), y(2, {4}), short_y(1, {4});
  x.fill(1);
  rig r(2);
  const planner::tensor_ref in = r.ref(x), out = r.ref(y);
  r.op(op_kind::relu, {in}, {out});
  const std::unique_ptr<op_kernel> kernel = make_kernel(r.graph, planner::op_id(0), {});
  const auto run = [&](std::vector<tensor_view> inputs, std::vector<tensor_view> outputs) {
    kernel_operands k;
    k.inputs = std::move(inputs);
    k.outputs = std::move(outputs);
    return code_of([&] { kernel->run(k); });
  };
  EXPECT_EQ(run({x.view()}, {y.view()}), errc::ok);
  EXPECT_EQ(run({}, {y.view()}), errc::invalid_argument);
  EXPECT_EQ(run({x.view()}, {y.view(), y.view()}), errc::invalid_argument);
  EXPECT_EQ(run({x.view()}, {short_y.view()}), errc::invalid_argument);
}

TEST(run, forms_must_be_the_ops) {
  tensor dy(1, {8}), dx(1, {8}), y(1, {8});
  rig r(1);
  const planner::tensor_ref in = r.ref(dy), out = r.ref(dx);
  r.op(op_kind::relu_backward, {in}, {out}).alternatives = {{"from_y", {rig::read(out)}}};
  const std::unique_ptr<op_kernel> kernel = make_kernel(r.graph, planner::op_id(0), {});
  kernel_operands k;
  k.inputs = {dy.view()};
  k.outputs = {dx.view()};
  k.form = "from_z";
  k.stash = {dense_stash(y)};
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::invalid_argument);
  k.form = "from_y";
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::ok);
  k.stash.clear();
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::invalid_argument);
}

TEST(run, the_workspace_must_be_large_and_aligned) {
  tensor x(4, {8}), y(4, {8});
  x.fill(1);
  rig r(4);
  const planner::tensor_ref in = r.ref(x), out = r.ref(y);
  planner::op& o = r.op(op_kind::batch_norm, {in}, {out});
  o.parameters = r.fixed(4);
  o.parameters_written = r.fixed(2);
  const std::unique_ptr<op_kernel> kernel = make_kernel(r.graph, planner::op_id(0), {});
  const auto bytes = static_cast<std::size_t>(kernel->workspace_bytes());
  ASSERT_GT(bytes, 0U);
  std::vector<std::byte> memory(bytes + 128);
  void* start = memory.data();
  std::size_t space = memory.size();
  std::align(64, bytes + 4, start, space);
  std::array<std::vector<float>, 6> values;
  values.fill(std::vector<float>(8, 1.0F));
  kernel_operands k;
  k.inputs = {x.view()};
  k.outputs = {y.view()};
  k.parameters = {values[0].data(), values[1].data(), values[2].data(), values[3].data()};
  k.parameters_written = {values[4].data(), values[5].data()};
  k.workspace = {start, bytes};
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::ok);
  k.workspace = {start, bytes - 1};
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::capacity_exceeded);
  k.workspace = {static_cast<std::byte*>(start) + 4, bytes};
  EXPECT_EQ(code_of([&] { kernel->run(k); }), errc::capacity_exceeded);
}

TEST(annotate_workspaces, asks_every_kernel_and_names_the_machine) {
  rig r(2);
  const planner::tensor_ref x{r.storage({8, 8, 16}), 0, 0}, y{r.storage({8, 8, 16}), 0, 0};
  r.op(op_kind::conv2d, {x}, {y}).parameters = r.fixed(2);
  r.op(op_kind::relu, {y}, {y});
  r.op(op_kind::lrn, {y}, {y}).workspace_bytes = 77;
  const std::string machine = annotate_workspaces(r.graph, {});
  EXPECT_NE(machine.find("oneDNN"), std::string::npos) << machine;
  EXPECT_EQ(r.graph.ops[planner::op_id(0)].workspace_bytes,
            make_kernel(r.graph, planner::op_id(0), {})->workspace_bytes());
  EXPECT_GE(r.graph.ops[planner::op_id(0)].workspace_bytes, 16 * 16 * 4);
  EXPECT_EQ(r.graph.ops[planner::op_id(1)].workspace_bytes, 0);
  EXPECT_EQ(r.graph.ops[planner::op_id(2)].workspace_bytes, 0);
}

TEST(openmp_context, covers_every_range_once) {
  for (const int threads : {1, 2, 5}) {
    const execution_context context = openmp_context(threads);
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      context.parallel_for(
          context.user, count, 64,
          [](void* state, std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
              ++(*static_cast<std::vector<int>*>(state))[static_cast<std::size_t>(i)];
          },
          &visits);
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

}  // namespace
}  // namespace stash::executor::testing
