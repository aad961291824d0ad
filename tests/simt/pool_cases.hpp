// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One layer's pooling by the kernels and by the CPU: the same pooled values, planes, gradients and reports.
/// Device memory is ordinary memory here.

#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "encoders/pooling/pool_general_reference.hpp"
#include "encoders/pooling/pool_reference.hpp"
#include "simt/schedules.hpp"
#include "support/test_depth.hpp"

namespace stash::test {

inline constexpr execution_context on_host;
inline constexpr execution_context on_device{memory_space::device};

inline tensor_view in_space(tensor_view view, const execution_context& where) {
  view.space = where.space;
  return view;
}

inline std::size_t index_bytes(const geometry& g) {
  const std::size_t bits = g.window.taps() <= 4 ? 2 : g.window.taps() <= 16 ? 4 : 8;
  return (static_cast<std::size_t>(g.y.count()) * bits + 127) / 128 * 16;
}
inline std::size_t code_bytes(const geometry& g) {
  const std::size_t signs = (static_cast<std::size_t>(g.y.count()) + 127) / 128 * 16;
  return index_bytes(g) + (g.window.taps() <= 4 ? signs : 0);
}

/// For the case with this number: so many that small maps are cut as low as may be, or none, for which none
/// is.
inline std::uint64_t many_or_no_multiprocessors(int k) {
  return k % 2 == 0 ? 132 : 0;
}
/// Until its end the device has so many multiprocessors: threads that go down rows go down more of them the
/// fewer there are.
class with_multiprocessors {
 public:
  explicit with_multiprocessors(std::uint64_t count) { simt::set_multiprocessors(count); }
  ~with_multiprocessors() { simt::set_multiprocessors(before_); }
  with_multiprocessors(const with_multiprocessors&) = delete;
  with_multiprocessors& operator=(const with_multiprocessors&) = delete;

 private:
  std::uint64_t before_ = simt::multiprocessors();
};

inline bool same(const encode_report& a, const encode_report& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

/// What the CPU or the kernels make of one layer.
struct results {
  stored_map y, dx;
  encoded index, code;

  results(const geometry& g, dtype type, bool first, std::int64_t gap)
      : y(g.y, type, first, g.deep, gap),
        dx(g.x, type, first, g.deep, gap),
        index(index_bytes(g)),
        code(code_bytes(g)) {}
};

using random_source = float (*)(std::mt19937&, dtype);

/// random_value() and random_gradient() without NaN, for which some kernels have a way of their own; nor do
/// sums of these gradients make one.
inline float random_number(std::mt19937& random, dtype type) {
  for (;;) {
    const float value = random_value(random, type);
    if (!std::isnan(value)) return value;
  }
}
/// Some kernels take infinities of different signs for NaN at first.
inline float random_finite_number(std::mt19937& random, dtype type) {
  for (;;) {
    const float value = random_value(random, type);
    if (std::isfinite(value)) return value;
  }
}
inline float random_gradient_number(std::mt19937& random, dtype type) {
  for (;;) {
    const float value = random_gradient(random, type);
    if (!std::isnan(value)) return value;
  }
}

/// One layer with random values.
class layer_case {
 public:
  layer_case(geometry g, dtype type, bool relu, framework_rule rule, std::int64_t gap, std::mt19937& random,
             random_source value = random_value, random_source gradient_value = random_gradient)
      : g_(std::move(g)),
        type_(type),
        relu_(relu),
        rule_(rule),
        random_(random),
        x_(g_.x, type, first(), g_.deep, gap),
        dy_(g_.y, type, first(), g_.deep, gap),
        host_(g_, type, first(), gap),
        device_(g_, type, first(), gap) {
    fill_values(g_.x, type, random, value);
    map gradient = g_.y;
    fill_values(gradient, type, random, gradient_value);
    x_.fill(bits_in_memory_order(g_.x, type, first(), exact));
    dy_.fill(bits_in_memory_order(gradient, type, first(), exact));
  }

  void check() {
    for (const int planes : {0, 1, 2, 3}) {
      check_forward((planes & 1) != 0, has_code() && (planes & 2) != 0);
      if (testing::Test::HasFatalFailure()) return;
    }
    check_backward();
    if (testing::Test::HasFatalFailure()) return;
    // Bytes that no encoder wrote.
    for (encoded* bytes : {&host_.index, &host_.code}) {
      for (std::size_t i = 0; i < bytes->all().size(); ++i)
        bytes->data()[i] = static_cast<std::uint8_t>(random_() >> 7);
    }
    std::memcpy(device_.index.data(), host_.index.data(), host_.index.all().size());
    std::memcpy(device_.code.data(), host_.code.data(), host_.code.all().size());
    check_backward();
  }

 private:
  bool first() const { return g_.window.layout == pool_layout::channels_first; }
  bool has_code() const { return relu_ && g_.window.taps() <= 15; }

  void forward(results& r, bool index, bool code, const execution_context& where) {
    r.y.forget();
    const tensor_view x = in_space(x_.view(), where), y = in_space(r.y.view(), where);
    const encoded_view index_out = index ? r.index.out() : encoded_view{};
    if (relu_) {
      relu_max_pool_forward(x, y, g_.window, code ? r.code.out() : encoded_view{}, index_out, rule_, where);
    } else {
      max_pool_forward(x, y, g_.window, index_out, rule_, where);
    }
  }

  void check_forward(bool index, bool code) {
    forward(host_, index, code, on_host);
    forward(device_, index, code, on_device);
    ASSERT_EQ(device_.y.bits(), host_.y.bits());
    ASSERT_TRUE(device_.y.gaps_intact());
    ASSERT_EQ(device_.index.all(), host_.index.all());
    ASSERT_TRUE(device_.index.guard_intact());
    ASSERT_TRUE(same(device_.index.report, host_.index.report));
    ASSERT_EQ(device_.code.all(), host_.code.all());
    ASSERT_TRUE(device_.code.guard_intact());
    ASSERT_TRUE(same(device_.code.report, host_.code.report));
  }

  /// backward(results, dy, dx, context) on both sides.
  template <class Backward>
  void compare(const std::string& what, const Backward& backward) {
    for (results* r : {&host_, &device_}) {
      const execution_context& where = r == &host_ ? on_host : on_device;
      r->dx.forget();
      r->index.report = {};
      r->code.report = {};
      backward(*r, in_space(dy_.view(), where), in_space(r->dx.view(), where), where);
    }
    ASSERT_EQ(device_.dx.bits(), host_.dx.bits()) << what;
    ASSERT_TRUE(device_.dx.gaps_intact()) << what;
    ASSERT_TRUE(same(device_.index.report, host_.index.report)) << what;
    ASSERT_TRUE(same(device_.code.report, host_.code.report)) << what;
  }

  void check_backward() {
    compare("x", [&](results&, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
      if (relu_) return relu_max_pool_backward(dy, in_space(x_.view(), c), dx, g_.window, rule_, c);
      max_pool_backward(dy, in_space(x_.view(), c), dx, g_.window, rule_, c);
    });
    if (!relu_) {
      compare("index", [&](results& r, const tensor_view& dy, const tensor_view& dx,
                           const execution_context& c) {
        max_pool_backward(dy, {window_index_of(g_.window), dy.type, dy.dims, r.index.in()}, dx, g_.window, c);
      });
      return;
    }
    if (has_code()) {
      compare("code",
              [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
                relu_max_pool_backward(dy, {relu_pool_of(g_.window), dy.type, dy.dims, r.code.in()}, dx,
                                       g_.window, c);
              });
    }
    compare("y", [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
      relu_max_pool_backward(dy, {window_index_of(g_.window), dy.type, dy.dims, r.index.in()},
                             in_space(r.y.view(), c), dx, g_.window, rule_, c);
    });
    const char* const some_format[] = {"fp8", "fp10", "fp8_e5m2", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1"};
    const std::string narrow = some_format[random_() % std::size(some_format)];
    for (const std::string& name :
         {std::string("sign_mask"), std::string("raw"), narrow, std::string("bitmap"), "bitmap_" + narrow,
          std::string("csr"), "csr_" + narrow}) {
      encoding e = parse_encoding(name);
      e.rule = rule_;
      e.underflow = underflow_rule::keep_nonzero;
      encoded stash(encoded_bytes_bound(e, type_, g_.y.count()));
      encode(e, host_.y.view(), stash.out(), {}, on_host);
      const std::uint32_t flags = stash.report.flags;
      const auto compare_stash = [&] {
        encode_report reports[2];
        std::size_t side = 0;
        compare(name,
                [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
                  stash.report.status = status_ok;
                  relu_max_pool_backward(dy, {window_index_of(g_.window), dy.type, dy.dims, r.index.in()},
                                         {e, dy.type, dy.dims, stash.in()}, dx, g_.window, rule_, c);
                  reports[side++] = stash.report;
                });
        ASSERT_TRUE(same(reports[0], reports[1])) << name;
      };
      compare_stash();
      if (testing::Test::HasFatalFailure()) return;
      if (e.kind != encoding_kind::bitmap && e.kind != encoding_kind::csr) continue;
      // Values are looked at where the flag says so, and whatever the table says. Entries of csr only name
      // other regions: of columns out of order the page says nothing.
      const std::size_t table =
          (e.kind == encoding_kind::csr ? (static_cast<std::size_t>(g_.y.count()) + 255) / 256 * 2
                                        : (static_cast<std::size_t>(g_.y.count()) + 7) / 8) +
          15;
      stash.report.flags = flags ^ flag_mask_is_not_sign;
      compare_stash();
      if (testing::Test::HasFatalFailure() || table / 16 * 16 >= stash.all().size()) return;
      const bool csr = e.kind == encoding_kind::csr;
      const std::size_t byte = csr ? 3 : random_() % 4, bit = csr ? 6 + random_() % 2 : random_() % 8;
      stash.data()[table / 16 * 16 + byte] ^= static_cast<std::uint8_t>(1U << bit);
      compare_stash();
      stash.report.flags = flags;
      compare_stash();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  geometry g_;
  dtype type_;
  bool relu_;
  framework_rule rule_;
  std::mt19937& random_;
  stored_map x_, dy_;
  results host_, device_;
};

class device_pool : public testing::TestWithParam<dtype> {
 protected:
  // The kernels are those of f16; only conversions differ.
  void SetUp() override {
    if (stash_test::only_part() && GetParam() == dtype::bf16) GTEST_SKIP();
  }
  void TearDown() override { simt::set_schedule({}); }
};
INSTANTIATE_TEST_SUITE_P(types, device_pool, testing::Values(dtype::f32, dtype::f16, dtype::bf16));

/// The same window in NCHW.
inline pool_window first(pool_window window) {
  window.layout = pool_layout::channels_first;
  return window;
}

/// Small squares, most of which have kernels of their own in NCHW.
inline std::vector<pool_window> small_windows() {
  std::vector<pool_window> windows;
  for (const std::int32_t pad : {0, 1}) {
    windows.push_back({2, 2, 2, 2, pad, pad});
    for (const std::int32_t stride : {1, 2})
      windows.push_back({3, 3, stride, stride, pad, pad});
  }
  windows.push_back({3, 3, 1, 1, 2, 1});
  windows.push_back({3, 3, 2, 2, 1, 2});
  windows.push_back({2, 2, 2, 2, 1, 0});
  for (pool_window& w : windows)
    w.layout = pool_layout::channels_first;
  return windows;
}

/// Numbers so far from each other that a sum of three has another value in another order.
inline float random_far_gradient(std::mt19937& random, dtype type) {
  const float large = type == dtype::f16 ? 0x1p14F : 0x1p40F, small = type == dtype::f16 ? 0x1p-12F : 1.0F;
  const float few[] = {large, -large, small, -3 * small};
  return few[random() % std::size(few)];
}

/// Layer number `k` of a series: with and without a ReLU, and both rules; every third map has NaN.
inline void check_layer(const geometry& g, dtype type, int k, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
  simt::set_schedule(schedule_of(k));
  const bool nan = k % 3 == 0;
  layer_case(g, type, k / 2 % 2 == 1, rules[k / 4 % 2], 0, random, nan ? random_value : random_number,
             nan          ? random_gradient
             : k % 3 == 1 ? random_gradient_number
                          : random_far_gradient)
      .check();
}

}  // namespace stash::test
