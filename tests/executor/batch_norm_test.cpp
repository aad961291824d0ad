// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/batch_norm.hpp"

#include <algorithm>

#include "executor/kernel_rig.hpp"
#include "stash/error.hpp"

namespace stash::executor::testing {
namespace {

using planner::need;
using planner::op_kind;

/// Batch norm with or without the joined ReLU, and all that it reads and writes.
struct layer {
  layer(std::int64_t n, std::vector<std::int64_t> sample, bool joined_relu, std::int64_t margin = 0)
      : batch(n),
        relu(joined_relu),
        channels(static_cast<std::size_t>(sample.back())),
        x(n, sample, margin, margin),
        y(n, sample, margin, margin),
        dy(n, sample, margin, margin),
        dx(n, sample, margin, margin),
        scale(channels),
        shift(channels),
        running_mean(channels),
        running_variance(channels),
        mean(channels),
        inverse(channels),
        scale_gradient(channels),
        shift_gradient(channels) {
    x.fill(1, 2.0F);
    dy.fill(2);
    generator random(3);
    for (std::size_t c = 0; c < channels; ++c) {
      scale[c] = 1.0F + 0.5F * random.value();
      shift[c] = random.value();
      running_mean[c] = random.value();
      running_variance[c] = 1.5F + random.value();
    }
  }

  void forward(bool training = true, int threads = 1) {
    rig r(batch);
    const planner::tensor_ref in = r.ref(x), out = r.ref(y);
    planner::op& o = r.op(op_kind::batch_norm, {in}, {out});
    o.attributes.fused_relu = relu;
    o.parameters = r.fixed(4);
    o.parameters_written = r.fixed(2);
    kernel_operands k;
    k.inputs = {x.view()};
    k.outputs = {y.view()};
    k.parameters = {scale.data(), shift.data(), running_mean.data(), running_variance.data()};
    k.parameters_written = {mean.data(), inverse.data()};
    k.training = training;
    run_last(r.graph, k, {threads});
  }
  void backward(const std::string& form, std::vector<stash_operand> stash, int threads = 1,
                bool in_place = false, framework_rule rule = framework_rule::tensorflow) {
    rig r(batch);
    const planner::tensor_ref in = r.ref(dy), out = in_place ? in : r.ref(dx), source = r.ref(x),
                              result = r.ref(y);
    planner::op& o = r.op(op_kind::batch_norm_backward, {in}, {out});
    o.attributes.fused_relu = relu;
    o.parameters = r.fixed(4);
    o.parameters_written = r.fixed(2);
    o.alternatives = {{form, {rig::read(source)}}};
    if (stash.size() == 2) o.alternatives[0].reads.push_back(rig::read(result, need::sign));
    kernel_operands k;
    k.inputs = {dy.view()};
    k.outputs = {in_place ? dy.view() : dx.view()};
    k.form = form;
    k.stash = std::move(stash);
    k.parameters = {scale.data(), shift.data(), mean.data(), inverse.data()};
    k.parameters_written = {scale_gradient.data(), shift_gradient.data()};
    run_last(r.graph, k, {threads, rule});
  }
  batch_norm_parameters parameters() const {
    return {scale.data(), shift.data(), mean.data(), inverse.data()};
  }
  std::int64_t pixels() const { return x.size() / static_cast<std::int64_t>(channels); }
  float& x_at(std::int64_t pixel, std::size_t c) {
    return x[pixel * static_cast<std::int64_t>(channels) + static_cast<std::int64_t>(c)];
  }

  std::int64_t batch;
  bool relu;
  std::size_t channels;
  tensor x, y, dy, dx;
  std::vector<float> scale, shift, running_mean, running_variance, mean, inverse, scale_gradient,
      shift_gradient;
};

execution_context serial() {
  static const int one = 1;
  return openmp_context(one);
}

TEST(batch_norm, forward_uses_batch_statistics) {
  for (const bool relu : {false, true}) {
    for (const std::int64_t margin : {0, 2}) {
      layer l(5, {7, 6, 9}, relu, margin);
      l.forward();
      EXPECT_TRUE(l.y.margins_untouched());
      const auto n = static_cast<double>(l.pixels());
      for (std::size_t c = 0; c < l.channels; ++c) {
        double mean = 0.0, variance = 0.0;
        for (std::int64_t p = 0; p < l.pixels(); ++p)
          mean += static_cast<double>(l.x_at(p, c)) / n;
        for (std::int64_t p = 0; p < l.pixels(); ++p) {
          variance +=
              (static_cast<double>(l.x_at(p, c)) - mean) * (static_cast<double>(l.x_at(p, c)) - mean) / n;
        }
        const double inverse = 1.0 / std::sqrt(variance + 1e-5);
        EXPECT_NEAR(static_cast<double>(l.mean[c]), mean, 1e-7);
        EXPECT_NEAR(static_cast<double>(l.inverse[c]), inverse, 1e-6 * inverse);
        for (std::int64_t p = 0; p < l.pixels(); ++p) {
          double y = (static_cast<double>(l.x_at(p, c)) - mean) * inverse * static_cast<double>(l.scale[c]) +
                     static_cast<double>(l.shift[c]);
          if (relu) y = std::max(y, 0.0);
          const std::int64_t at = p * static_cast<std::int64_t>(l.channels) + static_cast<std::int64_t>(c);
          ASSERT_NEAR(static_cast<double>(l.y[at]), y, 2e-6);
        }
      }
    }
  }
}

// A mean far from zero is where single-precision sums of squares break down.
TEST(batch_norm, variance_survives_a_large_mean) {
  layer l(64, {8, 8, 2}, false);
  for (std::int64_t i = 0; i < l.x.size(); ++i)
    l.x[i] = 1000.0F + static_cast<float>(i / 2 % 2 == 0 ? 1 : -1);
  l.forward();
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(l.mean[c], 1000.0F);
    EXPECT_NEAR(static_cast<double>(l.inverse[c]), 1.0 / std::sqrt(1.0 + 1e-5), 1e-7);
  }
}

TEST(batch_norm, constant_channels_have_no_deviation) {
  layer l(3, {3, 3, 2}, false);
  for (std::int64_t i = 0; i < l.x.size(); ++i)
    l.x[i] = 0.1F;
  l.forward();
  for (std::int64_t i = 0; i < l.y.size(); ++i)
    EXPECT_NEAR(l.y[i], l.shift[static_cast<std::size_t>(i % 2)], 1e-5F);
}

TEST(batch_norm, inference_uses_running_statistics_and_saves_nothing) {
  layer l(2, {3, 3, 5}, false);
  l.mean.assign(5, untouched);
  l.inverse.assign(5, untouched);
  l.forward(false);
  EXPECT_EQ(l.mean, std::vector<float>(5, untouched));
  EXPECT_EQ(l.inverse, std::vector<float>(5, untouched));
  for (std::int64_t i = 0; i < l.x.size(); ++i) {
    const auto c = static_cast<std::size_t>(i % 5);
    const double expected = (static_cast<double>(l.x[i]) - static_cast<double>(l.running_mean[c])) /
                                std::sqrt(static_cast<double>(l.running_variance[c]) + 1e-5) *
                                static_cast<double>(l.scale[c]) +
                            static_cast<double>(l.shift[c]);
    EXPECT_NEAR(static_cast<double>(l.y[i]), expected, 1e-5);
  }
}

TEST(batch_norm, gradients_match_central_differences) {
  for (const bool relu : {false, true}) {
    layer l(4, {3, 4, 3}, relu, relu ? 2 : 0);
    // Keep every normalised value away from the kink, far enough for the steps below.
    for (int round = 0; relu && round < 50; ++round) {
      layer plain = l;
      plain.relu = false;
      plain.forward();
      for (std::int64_t i = 0; i < l.x.size(); ++i) {
        if (std::abs(plain.y[i]) < 0.02F) l.x[i] += 0.07F;
      }
    }
    l.forward();
    l.backward("from_x", {dense_stash(l.x)});
    EXPECT_TRUE(l.dx.margins_untouched());
    const auto objective = [&] {
      layer copy = l;
      copy.forward();
      return weighted_sum(copy.dy, copy.y);
    };
    for (std::int64_t i = 0; i < l.x.size(); i += 5) {
      EXPECT_NEAR(static_cast<double>(l.dx[i]), central_difference(l.x[i], 4e-3F, objective), 1e-3) << i;
    }
    for (std::size_t c = 0; c < l.channels; ++c) {
      EXPECT_NEAR(static_cast<double>(l.scale_gradient[c]), central_difference(l.scale[c], 4e-3F, objective),
                  1e-3);
      EXPECT_NEAR(static_cast<double>(l.shift_gradient[c]), central_difference(l.shift[c], 4e-3F, objective),
                  1e-3);
    }
  }
}

struct gradients {
  explicit gradients(const layer& l)
      : dx(bits_of(l.dx)), scale(bits_of(l.scale_gradient)), shift(bits_of(l.shift_gradient)) {}
  bool operator==(const gradients&) const = default;
  std::vector<std::uint32_t> dx, scale, shift;
};

// The sign comes from x again, from y, or from an encoded y: one result. Sizes cross mask bytes and tiles.
TEST(batch_norm, forms_with_a_joined_relu_agree) {
  for (const auto rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
    for (const std::int64_t margin : {0, 1}) {
      layer l(3, {11, 9, 13}, true, margin);
      l.forward();
      l.backward("from_x", {dense_stash(l.x)}, 1, false, rule);
      const gradients expected(l);
      l.backward("from_x_and_y", {dense_stash(l.x), dense_stash(l.y)}, 1, false, rule);
      EXPECT_EQ(gradients(l), expected);
      for (const char* name : {"sign_mask", "bitmap", "fp8"}) {
        stash_operand sign;
        sign.dense = false;
        encoding& how = sign.stored.how;
        how = parse_encoding(name);
        how.rule = rule;
        how.underflow = underflow_rule::keep_nonzero;
        if (how.kind == encoding_kind::sign_mask) how.underflow = underflow_rule::to_zero;
        encode_report report;
        std::vector<std::byte> memory(encoded_bytes_bound(how, dtype::f32, l.y.size()) + 16);
        void* start = memory.data();
        std::size_t space = memory.size();
        std::align(16, space - 16, start, space);
        encode(how, l.y.view(), {start, space, nullptr, &report}, {}, {});
        sign.stored.dims = shape({l.y.size()});
        sign.stored.bytes = {start, space, nullptr, &report};
        l.backward("from_x_and_y", {dense_stash(l.x), sign}, 1, false, rule);
        EXPECT_EQ(gradients(l), expected) << name;
      }
    }
  }
}

TEST(batch_norm, results_do_not_depend_on_threads_or_memory) {
  for (const bool relu : {false, true}) {
    layer one(6, {13, 11, 33}, relu);
    one.forward();
    one.backward("from_x", {dense_stash(one.x)});
    for (const int threads : {2, 3}) {
      layer many(6, {13, 11, 33}, relu);
      many.forward(true, threads);
      EXPECT_EQ(bits_of(many.y), bits_of(one.y));
      EXPECT_EQ(bits_of(many.mean), bits_of(one.mean));
      EXPECT_EQ(bits_of(many.inverse), bits_of(one.inverse));
      many.backward("from_x", {dense_stash(many.x)}, threads);
      EXPECT_EQ(gradients(many), gradients(one));
      many.backward("from_x", {dense_stash(many.x)}, threads, true);
      EXPECT_EQ(bits_of(many.dy), bits_of(one.dx));
    }
  }
}

TEST(batch_norm, pitched_gives_the_bits_of_dense) {
  layer dense(3, {5, 5, 10}, true), sliced(3, {5, 5, 10}, true, 3);
  for (layer* l : {&dense, &sliced}) {
    l->forward();
    l->backward("from_x", {dense_stash(l->x)});
  }
  EXPECT_EQ(bits_of(sliced.y), bits_of(dense.y));
  EXPECT_EQ(gradients(sliced), gradients(dense));
}

TEST(batch_norm_apply, gives_the_bits_of_the_forward) {
  for (const bool relu : {false, true}) {
    layer l(3, {5, 5, 10}, relu);
    l.x[7] = std::numeric_limits<float>::denorm_min();
    l.forward();
    tensor again(3, {5, 5, 10}, 1, 2);
    batch_norm_apply(l.x.view(), again.view(), l.parameters(), relu, serial());
    EXPECT_EQ(bits_of(again), bits_of(l.y));
    EXPECT_TRUE(again.margins_untouched());
    batch_norm_apply(l.x.view(), l.x.view(), l.parameters(), relu, serial());
    EXPECT_EQ(bits_of(l.x), bits_of(l.y));
  }
}

TEST(batch_norm_apply, relu_keeps_nan_and_has_no_negative_zero) {
  tensor x(1, {4}), y(1, {4});
  x.set({std::numeric_limits<float>::quiet_NaN(), -0.0F, -1.0F, 2.0F});
  const std::vector<float> one(4, 1.0F), zero(4, -0.0F);
  batch_norm_apply(x.view(), y.view(), {one.data(), zero.data(), zero.data(), one.data()}, true, serial());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(bits_of(y)[1], 0U);
  EXPECT_EQ(bits_of(y)[2], 0U);
  EXPECT_EQ(y[3], 2.0F);
}

TEST(batch_norm_apply, a_mask_decides_instead_of_the_relu) {
  layer l(3, {5, 5, 11}, false);
  l.forward();
  std::vector<std::uint8_t> mask(static_cast<std::size_t>((l.x.size() + 7) / 8));
  generator random(17);
  for (std::uint8_t& byte : mask)
    byte = static_cast<std::uint8_t>(random.bits());
  tensor y(3, {5, 5, 11}, 2, 0);
  batch_norm_apply(l.x.view(), y.view(), l.parameters(), const_encoded_view{mask.data(), mask.size()},
                   serial());
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const bool set = (mask[static_cast<std::size_t>(i / 8)] >> (i % 8) & 1) != 0;
    EXPECT_EQ(bits_of({y[i]}), bits_of({set ? l.y[i] : 0.0F})) << i;
  }
  EXPECT_TRUE(y.margins_untouched());
  try {
    batch_norm_apply(l.x.view(), y.view(), l.parameters(), const_encoded_view{mask.data(), mask.size() - 1},
                     serial());
    FAIL() << "no error";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::capacity_exceeded);
  }
}

TEST(batch_norm_apply, the_mask_of_the_forward_gives_the_forward) {
  layer l(2, {9, 9, 32}, true);
  l.forward();
  encode_report report;
  const encoding mask{.kind = encoding_kind::sign_mask};
  struct alignas(16) block {
    std::byte data[16];
  };
  std::vector<block> bytes(encoded_bytes_bound(mask, dtype::f32, l.y.size()) / 16);
  encode(mask, l.y.view(), {bytes.data(), bytes.size() * 16, nullptr, &report}, {}, {});
  batch_norm_apply(l.x.view(), l.x.view(), l.parameters(),
                   const_encoded_view{bytes.data(), bytes.size() * 16}, serial());
  EXPECT_EQ(bits_of(l.x), bits_of(l.y));
}

}  // namespace
}  // namespace stash::executor::testing
