// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "executor/kernel_rig.hpp"
#include "stash/error.hpp"

namespace stash::executor::testing {
namespace {

using planner::need;
using planner::op_kind;

struct pool_case {
  const char* name;
  std::int64_t n, h, w, c, oh, ow;
  std::int32_t kernel_h, kernel_w, stride_h, stride_w, pad;
  std::int64_t x_margin = 0, y_margin = 0;
};

void PrintTo(const pool_case& c, std::ostream* os) {
  *os << c.name;
}

planner::op_attributes attributes_of(const pool_case& c) {
  planner::op_attributes a;
  a.kernel_h = c.kernel_h;
  a.kernel_w = c.kernel_w;
  a.stride_h = c.stride_h;
  a.stride_w = c.stride_w;
  a.pad_top = a.pad_left = c.pad;
  return a;
}

/// Encoded bytes with their report.
struct encoded {
  encoded(const encoding& e, std::int64_t elements, dtype source = dtype::f32)
      : how(e), count(elements), bytes(encoded_bytes_bound(e, source, elements) / 16) {}
  encoded_view view() { return {bytes.data(), bytes.size() * 16, nullptr, &report}; }
  stash_operand stash() {
    stash_operand operand;
    operand.dense = false;
    operand.stored = {how, dtype::f32, shape({count}), {bytes.data(), bytes.size() * 16, nullptr, &report}};
    return operand;
  }
  auxiliary_operand operand() { return {true, how, view()}; }

  struct alignas(16) block {
    std::byte data[16];
  };
  encoding how;
  std::int64_t count;
  std::vector<block> bytes;
  encode_report report;
};

class pool : public ::testing::TestWithParam<pool_case> {
 protected:
  pool()
      : spec(GetParam()),
        x(spec.n, {spec.h, spec.w, spec.c}, spec.x_margin, spec.x_margin),
        y(spec.n, {spec.oh, spec.ow, spec.c}, spec.y_margin, spec.y_margin),
        dy(spec.n, {spec.oh, spec.ow, spec.c}, spec.y_margin, spec.y_margin),
        index({.kind = encoding_kind::window_index, .window_taps = taps()}, y.size()),
        code({.kind = encoding_kind::relu_pool, .window_taps = std::min<std::uint16_t>(taps(), 15)},
             y.size()) {
    dy.fill(2);
    // A permutation of distinct values, none within 0.25 of another or of zero: far from every kink.
    std::vector<float> values;
    for (std::int64_t i = 0; i < x.size(); ++i)
      values.push_back(static_cast<float>(i - x.size() / 2) + 0.5F);
    generator random(11);
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[random.bits() % i]);
    x.set(values);
  }

  std::uint16_t taps() const { return static_cast<std::uint16_t>(GetParam().kernel_h * GetParam().kernel_w); }

  void forward(op_kind kind, bool want_index, bool want_code, int threads = 1) {
    rig r(spec.n);
    const planner::tensor_ref from = r.ref(x), to = r.ref(y);
    planner::op& o = r.op(kind, {from}, {to});
    o.attributes = attributes_of(spec);
    kernel_operands k;
    k.inputs = {x.view()};
    k.outputs = {y.view()};
    if (kind == op_kind::max_pool || kind == op_kind::relu_max_pool) {
      o.optional_outputs = {r.storage({spec.oh, spec.ow, spec.c})};
      k.optional_outputs = {want_index ? index.operand() : auxiliary_operand{}};
      if (kind == op_kind::relu_max_pool && taps() <= 15) {
        o.optional_outputs.push_back(r.storage({spec.oh, spec.ow, spec.c}));
        k.optional_outputs.push_back(want_code ? code.operand() : auxiliary_operand{});
      }
    }
    run_last(r.graph, k, {threads});
  }

  std::vector<float> backward(op_kind kind, const std::string& form, std::vector<stash_operand> stash,
                              int threads = 1) {
    tensor dx(spec.n, {spec.h, spec.w, spec.c}, spec.x_margin, spec.x_margin);
    rig r(spec.n);
    const planner::tensor_ref from = r.ref(dy), to = r.ref(dx), source = r.ref(x), result = r.ref(y);
    planner::op& o = r.op(kind, {from}, {to});
    o.attributes = attributes_of(spec);
    if (!form.empty()) {
      std::vector<planner::stash_read> reads(
          1, rig::read(form == "from_x" ? source : result, need::exact_value));
      if (stash.size() == 2) reads.push_back(rig::read(result, need::sign));
      o.alternatives = {{form, reads}};
    }
    kernel_operands k;
    k.inputs = {dy.view()};
    k.outputs = {dx.view()};
    k.form = form;
    k.stash = std::move(stash);
    run_last(r.graph, k, {threads});
    EXPECT_TRUE(dx.margins_untouched());
    return dx.values();
  }

  /// visit(x index, y index) for every tap of every window.
  template <class Visit>
  void taps_of_windows(const Visit& visit) const {
    for (std::int64_t p = 0; p < spec.n * spec.oh * spec.ow; ++p) {
      const std::int64_t n = p / (spec.oh * spec.ow), oy = p / spec.ow % spec.oh, ox = p % spec.ow;
      for (std::int64_t ky = 0; ky < spec.kernel_h; ++ky) {
        for (std::int64_t kx = 0; kx < spec.kernel_w; ++kx) {
          const std::int64_t iy = oy * spec.stride_h - spec.pad + ky, ix = ox * spec.stride_w - spec.pad + kx;
          if (iy < 0 || iy >= spec.h || ix < 0 || ix >= spec.w) continue;
          for (std::int64_t c = 0; c < spec.c; ++c) {
            visit(((n * spec.h + iy) * spec.w + ix) * spec.c + c, p * spec.c + c);
          }
        }
      }
    }
  }

  void check_gradient(op_kind kind, const std::vector<float>& dx, float step) {
    generator random(13);
    for (int i = 0; i < 6; ++i) {
      const auto at = static_cast<std::int64_t>(random.bits()) % x.size();
      const double expected = central_difference(x[at], step, [&] {
        forward(kind, false, false);
        return weighted_sum(dy, y);
      });
      // Values reach hundreds: the sum of float products bounds what a difference can resolve.
      EXPECT_NEAR(static_cast<double>(dx[static_cast<std::size_t>(at)]), expected, 1e-3) << at;
    }
  }

  pool_case spec;
  tensor x, y, dy;
  encoded index, code;
};

TEST_P(pool, max_pool_takes_the_maximum) {
  for (const op_kind kind : {op_kind::max_pool, op_kind::relu_max_pool}) {
    std::vector<float> expected(static_cast<std::size_t>(y.size()),
                                kind == op_kind::max_pool ? -std::numeric_limits<float>::infinity() : 0.0F);
    taps_of_windows([&](std::int64_t xi, std::int64_t yi) {
      float& e = expected[static_cast<std::size_t>(yi)];
      e = std::max(e, x[xi]);
    });
    forward(kind, true, true);
    EXPECT_EQ(y.values(), expected);
    EXPECT_TRUE(y.margins_untouched());
  }
}

TEST_P(pool, max_pool_forms_agree_and_match_central_differences) {
  forward(op_kind::max_pool, true, false);
  const std::vector<float> from_x = backward(op_kind::max_pool_backward, "from_x", {dense_stash(x)});
  EXPECT_EQ(bits_of(backward(op_kind::max_pool_backward, "from_index", {index.stash()})), bits_of(from_x));
  EXPECT_EQ(bits_of(backward(op_kind::max_pool_backward, "from_index", {index.stash()}, 2)), bits_of(from_x));
  check_gradient(op_kind::max_pool, from_x, 0.25F);
}

TEST_P(pool, relu_max_pool_forms_agree_and_match_central_differences) {
  forward(op_kind::relu_max_pool, true, true);
  const auto kind = op_kind::relu_max_pool_backward;
  const std::vector<float> from_x = backward(kind, "from_x", {dense_stash(x)});
  if (taps() <= 15) {
    EXPECT_EQ(bits_of(backward(kind, "from_code", {code.stash()})), bits_of(from_x));
    EXPECT_EQ(bits_of(backward(kind, "from_code", {code.stash()}, 2)), bits_of(from_x));
  }
  EXPECT_EQ(bits_of(backward(kind, "from_index_and_y", {index.stash(), dense_stash(y)})), bits_of(from_x));
  for (const char* name : {"sign_mask", "bitmap"}) {
    encoded sign(parse_encoding(name), y.size());
    encode(sign.how, y.view(), sign.view(), {}, {});
    EXPECT_EQ(bits_of(backward(kind, "from_index_and_y", {index.stash(), sign.stash()})), bits_of(from_x))
        << name;
  }
  check_gradient(op_kind::relu_max_pool, from_x, 0.25F);
}

TEST_P(pool, mean_counts_the_taps_inside_only) {
  std::vector<double> sums(static_cast<std::size_t>(y.size())), counts(sums.size());
  taps_of_windows([&](std::int64_t xi, std::int64_t yi) {
    sums[static_cast<std::size_t>(yi)] += static_cast<double>(x[xi]);
    counts[static_cast<std::size_t>(yi)] += 1.0;
  });
  forward(op_kind::avg_pool, false, false);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_FLOAT_EQ(y[static_cast<std::int64_t>(i)], static_cast<float>(sums[i] / counts[i])) << i;
  }
  EXPECT_TRUE(y.margins_untouched());
  const std::vector<std::uint32_t> one_thread = bits_of(y);
  forward(op_kind::avg_pool, false, false, 2);
  EXPECT_EQ(bits_of(y), one_thread);

  const std::vector<float> dx = backward(op_kind::avg_pool_backward, "", {});
  EXPECT_EQ(bits_of(backward(op_kind::avg_pool_backward, "", {}, 2)), bits_of(dx));
  std::vector<double> expected(dx.size());
  taps_of_windows([&](std::int64_t xi, std::int64_t yi) {
    expected[static_cast<std::size_t>(xi)] +=
        static_cast<double>(dy[yi]) / counts[static_cast<std::size_t>(yi)];
  });
  for (std::size_t i = 0; i < dx.size(); ++i)
    EXPECT_NEAR(static_cast<double>(dx[i]), expected[i], 1e-6) << i;
  check_gradient(op_kind::avg_pool, dx, 8.0F);
}

INSTANTIATE_TEST_SUITE_P(shapes, pool,
                         ::testing::Values(pool_case{"k2", 3, 6, 8, 5, 3, 4, 2, 2, 2, 2, 0},
                                           pool_case{"k3_stride2_pad", 2, 7, 7, 6, 4, 4, 3, 3, 2, 2, 1},
                                           pool_case{"partial_last_window", 2, 6, 5, 4, 3, 3, 3, 3, 2, 2, 0},
                                           pool_case{"stride_beyond_kernel", 1, 9, 9, 3, 3, 3, 2, 2, 3, 3, 0},
                                           pool_case{"k5", 1, 9, 9, 3, 5, 5, 5, 5, 2, 2, 2},
                                           pool_case{"oblong", 2, 6, 9, 65, 3, 3, 2, 3, 2, 3, 0},
                                           pool_case{"one_tap", 1, 3, 3, 130, 3, 3, 1, 1, 1, 1, 0},
                                           pool_case{"slices", 2, 6, 6, 4, 3, 3, 2, 2, 2, 2, 0, 2, 3}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(global_mean, forward_and_backward) {
  for (const std::int64_t channels : {1, 63, 64, 65, 130}) {
    for (const std::int64_t margin : {0, 3}) {
      tensor x(3, {5, 4, channels}, margin, margin), y(3, {channels}),
          dx(3, {5, 4, channels}, margin, margin);
      x.fill(1);
      rig r(3);
      const planner::tensor_ref in = r.ref(x), out = r.ref(y);
      r.op(op_kind::global_avg_pool, {in}, {out});
      kernel_operands k;
      k.inputs = {x.view()};
      k.outputs = {y.view()};
      run_last(r.graph, k);
      r.op(op_kind::global_avg_pool_backward, {out}, {in});
      k.inputs = {y.view()};
      k.outputs = {dx.view()};
      run_last(r.graph, k, {2});
      EXPECT_TRUE(dx.margins_untouched());
      for (std::int64_t n = 0; n < 3; ++n) {
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0.0;
          for (std::int64_t p = 0; p < 20; ++p)
            sum += static_cast<double>(x[(n * 20 + p) * channels + c]);
          ASSERT_FLOAT_EQ(y[n * channels + c], static_cast<float>(sum / 20.0));
          for (std::int64_t p = 0; p < 20; ++p) {
            ASSERT_EQ(dx[(n * 20 + p) * channels + c], y[n * channels + c] / 20.0F);
          }
        }
      }
    }
  }
}

TEST(max_pool_operands, wrong_encodings_are_refused) {
  tensor x(1, {4, 4, 2}), y(1, {2, 2, 2});
  x.fill(1);
  rig r(1);
  const planner::tensor_ref in = r.ref(x), out = r.ref(y);
  planner::op& o = r.op(op_kind::max_pool, {in}, {out});
  o.attributes.kernel_h = o.attributes.kernel_w = o.attributes.stride_h = o.attributes.stride_w = 2;
  o.optional_outputs = {r.storage({2, 2, 2})};
  encoded wrong({.kind = encoding_kind::sign_mask}, y.size());
  kernel_operands k;
  k.inputs = {x.view()};
  k.outputs = {y.view()};
  k.optional_outputs = {wrong.operand()};
  try {
    run_last(r.graph, k);
    FAIL() << "no error";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::unsupported);
  }
}

}  // namespace
}  // namespace stash::executor::testing
