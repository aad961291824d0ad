// Pooling kernels against the CPU, under every schedule: the same pooled values, planes, gradients and
// reports. Device memory is ordinary memory here. STASH_RANDOM_TENSORS sets how many layers are tried for
// each type.

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "common/divisor.hpp"
#include "encoders/pool_general_reference.hpp"
#include "encoders/pool_reference.hpp"
#include "simt/schedules.hpp"

namespace stash::test {
namespace {

constexpr execution_context on_host;
constexpr execution_context on_device{memory_space::device};

tensor_view in_space(tensor_view view, const execution_context& where) {
  view.space = where.space;
  return view;
}

std::size_t index_bytes(const geometry& g) {
  const std::size_t bits = g.window.cells() <= 4 ? 2 : g.window.cells() <= 16 ? 4 : 8;
  return (static_cast<std::size_t>(g.y.count()) * bits + 127) / 128 * 16;
}
std::size_t code_bytes(const geometry& g) {
  const std::size_t signs = (static_cast<std::size_t>(g.y.count()) + 127) / 128 * 16;
  return index_bytes(g) + (g.window.cells() <= 4 ? signs : 0);
}

bool same(const encode_report& a, const encode_report& b) {
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
float random_number(std::mt19937& random, dtype type) {
  for (;;) {
    const float value = random_value(random, type);
    if (!std::isnan(value)) return value;
  }
}
/// Some kernels take infinities of different signs for NaN at first.
float random_finite_number(std::mt19937& random, dtype type) {
  for (;;) {
    const float value = random_value(random, type);
    if (std::isfinite(value)) return value;
  }
}
float random_gradient_number(std::mt19937& random, dtype type) {
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
  bool has_code() const { return relu_ && g_.window.cells() <= 15; }

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
      compare("index",
              [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
                max_pool_backward(dy, r.index.in(), dx, g_.window, c);
              });
      return;
    }
    if (has_code()) {
      compare("code",
              [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
                relu_max_pool_backward(dy, r.code.in(), dx, g_.window, c);
              });
    }
    compare("y", [&](results& r, const tensor_view& dy, const tensor_view& dx, const execution_context& c) {
      relu_max_pool_backward(dy, r.index.in(), in_space(r.y.view(), c), dx, g_.window, rule_, c);
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
                  relu_max_pool_backward(dy, r.index.in(), e, stash.in(), dx, g_.window, rule_, c);
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

std::string describe(const geometry& g) {
  const pool_window& w = g.window;
  std::ostringstream text;
  text << (w.layout == pool_layout::channels_first ? "channels first" : "channels last") << " kernel "
       << w.kernel_d << 'x' << w.kernel_h << 'x' << w.kernel_w << " stride " << w.stride_d << ','
       << w.stride_h << ',' << w.stride_w << " pad " << w.pad_front << ',' << w.pad_top << ',' << w.pad_left
       << " dilation " << w.dilation_d << ',' << w.dilation_h << ',' << w.dilation_w << " map " << g.x.n
       << 'x' << g.x.c << 'x' << g.x.d << 'x' << g.x.h << 'x' << g.x.w;
  return text.str();
}

class device_pool : public testing::TestWithParam<dtype> {
 protected:
  void TearDown() override { simt::set_schedule({}); }
};
INSTANTIATE_TEST_SUITE_P(types, device_pool, testing::Values(dtype::f32, dtype::f16, dtype::bf16));

TEST_P(device_pool, random_layers_are_as_on_the_cpu) {
  const char* wanted = std::getenv("STASH_RANDOM_TENSORS");
  for (const scheduled_run& run : scheduled_runs(wanted == nullptr ? 150 : std::atoi(wanted))) {
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

/// Windows that have kernels for runs of a row.
std::vector<pool_window> run_windows() {
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
float random_far_gradient(std::mt19937& random, dtype type) {
  const float large = type == dtype::f16 ? 0x1p14F : 0x1p40F, small = type == dtype::f16 ? 0x1p-12F : 1.0F;
  const float few[] = {large, -large, small, -3 * small};
  return few[random() % std::size(few)];
}

/// Layer number `k` of a series: with and without a ReLU, and both rules; every third map has NaN.
void check_layer(const geometry& g, dtype type, int k, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
  simt::set_schedule(schedule_of(k));
  const bool nan = k % 3 == 0;
  layer_case(g, type, k / 2 % 2 == 1, rules[k / 4 % 2], 0, random, nan ? random_value : random_number,
             nan          ? random_gradient
             : k % 3 == 1 ? random_gradient_number
                          : random_far_gradient)
      .check();
}

/// Rows of every length around those of runs, and planes that end anywhere in a run. Every third map has NaN;
/// the others have as many elements as they like, so that some end within 16 bytes.
TEST_P(device_pool, runs_of_a_row) {
  int k = 0;
  std::mt19937 random(11);
  for (const pool_window& window : run_windows()) {
    for (const std::int64_t width :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 35, 56, 113}) {
      const std::int64_t height = pick(random, 1, 9);
      geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
      if (!fit(g, k % 3)) continue;
      check_layer(g, GetParam(), ++k, random);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(k, 120);
}

/// Windows of 2 x 2 side by side: rows of one piece and of many, maps that fill a part of a warp, of a block
/// and of several. Every third has NaN, which some warps meet and others do not where there are few.
TEST_P(device_pool, pairs_of_rows) {
  pool_window window{2, 2, 2, 2};
  window.layout = pool_layout::channels_first;
  int k = 0;
  std::mt19937 random(14);
  const auto rare_nan = [](std::mt19937& r, dtype type) {
    return r() % 512 == 0 ? std::numeric_limits<float>::quiet_NaN() : random_number(r, type);
  };
  for (const map& x : {map{1, 1, 1, 2, 16, {}}, map{1, 4, 1, 2, 8, {}}, map{3, 4, 1, 6, 8, {}},
                       map{2, 8, 1, 12, 24, {}}, map{1, 3, 1, 16, 40, {}}, map{2, 3, 3, 8, 48, {}},
                       map{1, 5, 1, 64, 56, {}}, map{1, 4, 1, 64, 64, {}}, map{1, 1, 1, 8, 2064, {}},
                       map{1, 1, 1, 2, 16400, {}}, map{1, 33, 1, 32, 32, {}}, map{2, 9, 1, 40, 104, {}}}) {
    for (const bool relu : {false, true}) {
      for (const framework_rule rule : rules) {
        geometry g{window, x, {}, x.d > 1};
        ASSERT_TRUE(fit(g, 0)) << describe(g);
        ++k;
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        simt::set_schedule(schedule_of(k));
        layer_case(g, GetParam(), relu, rule, 0, random,
                   k % 3 == 0   ? +random_value
                   : k % 3 == 1 ? +random_number
                                : +rare_nan,
                   k % 2 == 0 ? random_gradient : random_gradient_number)
            .check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Rows of whole pieces, with two columns for each window, and planes of every height.
TEST_P(device_pool, pieces_of_rows) {
  int k = 0;
  std::mt19937 random(17);
  for (const std::int32_t pad_top : {0, 1, 2}) {
    for (const std::int32_t pad_left : {0, 1}) {
      pool_window window{3, 3, 2, 2, pad_top, pad_left};
      window.layout = pool_layout::channels_first;
      for (const std::int64_t width : {4, 8, 12, 16, 24, 40, 64, 112}) {
        for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
          geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
          if (height % 3 == 0 && width < 64) g.x.d = 2, g.deep = true;
          if (!fit(g, k % 2 + (pad_left == 0 ? 1 : 0)) || g.y.w * 2 != width) continue;
          check_layer(g, GetParam(), ++k, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(k, 200);
}

/// Rows of whole pieces with a window for each column, and stacks of every height: lower ones where threads
/// are few, several below each other where planes are high.
TEST_P(device_pool, stacks_of_pieces) {
  int k = 0;
  std::mt19937 random(23);
  for (const std::int32_t pad_top : {0, 1, 2}) {
    pool_window window{3, 3, 1, 1, pad_top, 1};
    window.layout = pool_layout::channels_first;
    for (const std::int64_t width : {4, 8, 12, 16, 24, 40, 136}) {
      for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 67}) {
        if (width > 8 && height > 7 && height != 33) continue;
        if (width > 40 && height > 7) continue;
        geometry g{window, {pick(random, 1, 2), pick(random, 1, 3), 1, height, width, {}}, {}, false};
        if (height % 3 == 0 && width < 40) g.x.d = 2, g.deep = true;
        if (!fit(g, 1) || g.y.w != width) continue;
        check_layer(g, GetParam(), ++k, random);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(k, GetParam() == dtype::f32 ? 150 : 100);
}

/// Depth without windows of its own, of which y ends before x: what is no plane beside the others.
TEST_P(device_pool, slices_that_no_window_has) {
  int k = 0;
  std::mt19937 random(41);
  for (pool_window window : run_windows()) {
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

/// Blocks that begin and end anywhere in rows and planes, also in those of a map with slices.
TEST_P(device_pool, stretches_of_runs) {
  struct stretched {
    pool_window window;
    map x;
  };
  const std::vector<pool_window> windows = run_windows();
  std::vector<stretched> maps;
  for (const std::size_t w : {0U, 1U, 4U, 5U}) {
    maps.push_back({windows[w], {2, 3, 1, 33, 35, {}}});
    maps.push_back({windows[w], {1, 3, 1, 5, 2100, {}}});
    maps.push_back({windows[w], {2, 40, 1, 7, 7, {}}});
    maps.push_back({windows[w], {1, 700, 1, 3, 3, {}}});
    maps.push_back({windows[w], {1, 2, 5, 13, 27, {}}});
  }
  int k = 0;
  std::mt19937 random(12);
  for (const stretched& m : maps) {
    geometry g{m.window, m.x, {}, m.x.d > 1};
    ASSERT_TRUE(fit(g, 0)) << describe(g);
    SCOPED_TRACE(describe(g));
    simt::set_schedule(schedule_of(++k));
    layer_case(g, GetParam(), k % 2 == 1, rules[k / 2 % 2], 0, random, random_number, random_gradient_number)
        .check();
    if (HasFatalFailure()) return;
  }
}

/// Maps of all sizes around a block's, channels last. Every third has NaN, another third infinities, every
/// fifth pitch is wider.
TEST_P(device_pool, blocks_of_pixels) {
  int k = 0;
  std::mt19937 random(13);
  for (pool_window window : run_windows()) {
    window.layout = pool_layout::channels_last;
    for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 9}) {
      for (const std::int64_t width : {1, 2, 3, 4, 5, 7, 12}) {
        geometry g{window, {pick(random, 1, 2), 8 * pick(random, 1, 2), 1, height, width, {}}, {}, false};
        if (k % 7 == 0) g.x.d = 2, g.deep = true;
        if (!fit(g, k % 3)) continue;
        ++k;
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        simt::set_schedule(schedule_of(k));
        const random_source values[] = {random_value, random_number, random_finite_number};
        layer_case(g, GetParam(), k / 2 % 2 == 1, rules[k / 4 % 2], k % 5 == 0 ? 8 : 0, random, values[k % 3],
                   k % 3 == 0 ? random_gradient : random_gradient_number)
            .check();
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(k, 300);
}

/// Few values, so that most windows have several maxima; rarely an infinity or a NaN.
float random_tie(std::mt19937& random, dtype type) {
  constexpr float few[] = {-0.0F, 0.0F, -1.0F, 1.0F};
  return random() % 512 == 0 ? random_value(random, type) : few[random() % std::size(few)];
}
float random_positive_tie(std::mt19937& random, dtype) {
  return static_cast<float>(random() % 2);
}
/// Overlapping windows found again in x, channels last: strips of every height and place, whose last row or
/// column the map may lack, groups of channels that are a part of a warp, a warp and more, and every padding.
/// Each map has a pitch of its own.
TEST_P(device_pool, strips_of_pixels) {
  constexpr random_source values[] = {random_tie, random_positive_tie, random_value, random_number};
  std::mt19937 random(19);
  int k = 0;
  for (const std::int32_t stride : {1, 2}) {
    for (const std::int32_t pad : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
      for (const std::int64_t height : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33}) {
        const std::int64_t width = height % 2 == 0 ? pick(random, 1, 5) : pick(random, 6, 19);
        constexpr std::int64_t some_channels[] = {8, 16, 24, 32, 264};
        const std::int64_t channels = some_channels[pick(random, 0, width > 9 ? 3 : 4)];
        geometry g{{3, 3, stride, stride, pad % 3, pad / 3},
                   {pick(random, 1, 3), channels, 1, height, width, {}},
                   {},
                   false};
        g.window.layout = pool_layout::channels_last;
        if (k % 5 == 4) g.x.d = 2, g.deep = true;
        if (!fit(g, k % 3)) continue;
        simt::set_schedule(schedule_of(++k));
        SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
        map gradient = g.y;
        fill_values(g.x, GetParam(), random, values[k % 4]);
        fill_values(gradient, GetParam(), random,
                    k % 3 == 0   ? random_gradient
                    : k % 3 == 1 ? random_gradient_number
                                 : random_far_gradient);
        const auto of = [&](const map& m, int gap) {
          return stored_map(m, GetParam(), false, g.deep, 8 * (gap % 3));
        };
        stored_map x = of(g.x, k), dy = of(g.y, k / 2), dx = of(g.x, k / 4), expected = dx;
        x.fill(bits_in_memory_order(g.x, GetParam(), false, exact));
        dy.fill(bits_in_memory_order(gradient, GetParam(), false, exact));
        for (const bool relu : {false, true}) {
          const framework_rule rule = rules[k / 3 % 2];
          const auto backward = [&](stored_map& to, const execution_context& c) {
            const tensor_view in = in_space(x.view(), c), from = in_space(dy.view(), c),
                              out = in_space(to.view(), c);
            if (relu) return relu_max_pool_backward(from, in, out, g.window, rule, c);
            max_pool_backward(from, in, out, g.window, rule, c);
          };
          dx.forget();
          backward(dx, on_device);
          backward(expected, on_host);
          ASSERT_EQ(dx.bits(), expected.bits()) << "ReLU " << relu;
          ASSERT_TRUE(dx.gaps_intact());
        }
      }
    }
  }
  EXPECT_GT(k, 180);
}

/// The same from codes, one apart.
TEST_P(device_pool, coded_strips_of_pixels) {
  int k = 0;
  std::mt19937 random(29);
  for (const std::int32_t pad : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
    for (const std::int64_t height : {1, 2, 3, 4, 6, 31, 32, 33, 34, 35, 68}) {
      constexpr std::int64_t some_channels[] = {8, 16, 24, 32, 264};
      const std::int64_t channels = some_channels[pick(random, 0, height > 6 ? 2 : 4)];
      const std::int64_t width = height > 6 ? pick(random, 1, 4) : pick(random, 1, 9);
      geometry g{
          {3, 3, 1, 1, pad % 3, pad / 3}, {pick(random, 1, 2), channels, 1, height, width, {}}, {}, false};
      g.window.layout = pool_layout::channels_last;
      if (k % 5 == 4) g.x.d = 2, g.deep = true;
      if (!fit(g, k % 3)) continue;
      check_layer(g, GetParam(), ++k, random);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(k, 70);
}

/// A thread has 16 bytes of the channels of two windows.
TEST_P(device_pool, small_square_windows_of_channels_take_pairs_of_pixels) {
  for (pool_window window : run_windows()) {
    window.layout = pool_layout::channels_last;
    geometry g{window, {2, 64, 1, 56, 56, {}}, {}, false};
    ASSERT_TRUE(fit(g, 0));
    stored_map x(g.x, GetParam(), false, false, 0), y(g.y, GetParam(), false, false, 0);
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    encoded index(index_bytes(g));
    max_pool_forward(in_space(x.view(), on_device), in_space(y.view(), on_device), window, index.out(),
                     rules[0], on_device);
    const double bytes = GetParam() == dtype::f32 ? 4 : 2;
    EXPECT_GT(static_cast<double>(g.y.count()) * bytes / static_cast<double>(simt::threads_of_last_launch()),
              30);
  }
}

/// Backward from codes a thread has four pixels of eight channels, from x 16 bytes of the channels of four
/// rows or more, of one column or two.
TEST_P(device_pool, overlapping_windows_of_channels_take_blocks_and_strips_of_pixels) {
  for (const std::int32_t stride : {1, 2}) {
    pool_window window{3, 3, stride, stride, 1, 1};
    window.layout = pool_layout::channels_last;
    geometry g{window, {2, 64, 1, 56, 56, {}}, {}, false};
    ASSERT_TRUE(fit(g, 0));
    stored_map dy(g.y, GetParam(), false, false, 0), dx(g.x, GetParam(), false, false, 0);
    dy.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.y.count()), 0));
    stored_map x = dx;
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    const auto of_a_thread = [&] {
      return static_cast<double>(g.x.count()) / static_cast<double>(simt::threads_of_last_launch());
    };
    encoded index(index_bytes(g));
    std::memset(index.data(), 0x44, index.all().size());
    max_pool_backward(in_space(dy.view(), on_device), index.in(), in_space(dx.view(), on_device), window,
                      on_device);
    EXPECT_EQ(index.report.status, status_ok);
    EXPECT_GT(of_a_thread(), 28);
    max_pool_backward(in_space(dy.view(), on_device), in_space(x.view(), on_device),
                      in_space(dx.view(), on_device), window, rules[0], on_device);
    EXPECT_GT(of_a_thread(), stride == 2 && GetParam() != dtype::f32 ? 48 : 24);
  }
}

/// The maps of networks have threads with more than one value.
TEST_P(device_pool, small_square_windows_take_runs) {
  struct usual {
    std::int64_t width;
    pool_window window;
  };
  std::vector<usual> maps;
  for (const std::int64_t width : {7, 13, 14, 17, 27, 28, 35, 55, 56, 73, 112}) {
    maps.push_back({width, {3, 3, 2, 2, 1, 1}});
    maps.push_back({width, {3, 3, 2, 2}});
    maps.push_back({width, {3, 3, 1, 1, 1, 1}});
  }
  for (const std::int64_t width : {7, 13, 15, 27, 73})
    maps.push_back({width, {2, 2, 2, 2}});
  for (const usual& m : maps) {
    geometry g{m.window, {1, 4096 / (m.width * m.width) + 16, 1, m.width, m.width, {}}, {}, false};
    g.window.layout = pool_layout::channels_first;
    ASSERT_TRUE(fit(g, 0));
    SCOPED_TRACE(describe(g));
    stored_map x(g.x, GetParam(), true, false, 0), y(g.y, GetParam(), true, false, 0), dx = x;
    x.fill(std::vector<std::uint32_t>(static_cast<std::size_t>(g.x.count()), 0));
    encoded index(index_bytes(g));
    const auto threads = [](std::int64_t values) {
      return static_cast<double>(values) / static_cast<double>(simt::threads_of_last_launch());
    };
    max_pool_forward(in_space(x.view(), on_device), in_space(y.view(), on_device), g.window, index.out(),
                     rules[0], on_device);
    EXPECT_GT(threads(g.y.count()), 1.5);
    max_pool_backward(in_space(y.view(), on_device), index.in(), in_space(dx.view(), on_device), g.window,
                      on_device);
    EXPECT_GT(threads(g.x.count()), 1.5);
  }
}

/// Rows of whole pieces with a window for each column: a thread has 16 bytes of up to 32 rows. Maps that
/// begin elsewhere than at a multiple of 16 bytes are pooled in another way, with the same result.
TEST_P(device_pool, windows_one_apart_take_stacks) {
  pool_window window{3, 3, 1, 1, 1, 1};
  window.layout = pool_layout::channels_first;
  geometry g{window, {2, 4, 1, 40, 40, {}}, {}, false};
  ASSERT_TRUE(fit(g, 1));
  std::mt19937 random(31);
  fill_values(g.x, GetParam(), random, random_number);
  const std::vector<std::uint32_t> values = bits_in_memory_order(g.x, GetParam(), true, exact);
  const std::size_t size = size_of(GetParam()), count = values.size();
  for (const std::size_t skipped : {std::size_t{0}, size}) {
    std::vector<std::uint8_t> bytes[4];
    tensor_view maps[4];  // x, y, dx of codes, dx of x
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[i].resize(count * size + skipped);
      maps[i] = {bytes[i].data() + skipped, GetParam(), memory_space::host, shape{g.x.n, g.x.c, g.x.h, g.x.w},
                 0};
    }
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(bytes[0].data() + skipped + i * size, &values[i], size);
    std::vector<std::uint8_t> expected[4];
    for (const execution_context& where : {on_host, on_device}) {
      const auto of = [&](std::size_t i) { return in_space(maps[i], where); };
      const auto expect_stack = [&] {
        if (where.space != memory_space::device || skipped != 0) return;
        const auto threads = static_cast<double>(simt::threads_of_last_launch());
        EXPECT_GT(static_cast<double>(count) / threads, 5);
      };
      encoded index(index_bytes(g));
      max_pool_forward(of(0), of(1), window, index.out(), rules[0], where);
      expect_stack();
      max_pool_backward(of(1), index.in(), of(2), window, where);
      expect_stack();
      max_pool_backward(of(1), of(0), of(3), window, rules[0], where);
      expect_stack();
      for (std::size_t i = 1; i < 4; ++i) {
        if (where.space == memory_space::host) {
          expected[i] = bytes[i];
        } else {
          ASSERT_EQ(bytes[i], expected[i]) << "map " << i << " from byte " << skipped << " on";
        }
      }
    }
  }
}

/// Every code at every place, the other codes being legal: whether it is corrupt, and what it does.
TEST_P(device_pool, one_code_is_judged_as_on_the_cpu) {
  const pool_window last{3, 3, 2, 2, 1, 1}, dense_last{3, 3, 1, 1, 1, 1};
  pool_window first = last, dense = dense_last;
  first.layout = dense.layout = pool_layout::channels_first;
  pool_window unpadded = first;
  unpadded.pad_top = unpadded.pad_left = 0;
  struct layer {
    pool_window window;
    std::int64_t width;
    bool relu = false;
  };
  for (const auto& [window, width, relu] :
       {layer{{3, 3, 3, 3}, 6}, layer{last, 6}, layer{dense_last, 6}, layer{first, 6}, layer{dense, 6},
        layer{first, 16}, layer{unpadded, 16}, layer{dense, 16}, layer{last, 6, true},
        layer{first, 16, true}}) {
    for (const std::int64_t channels : {1, 8}) {
      const bool rows = window.layout == pool_layout::channels_first;
      geometry g{window, {1, rows ? channels / 4 + 1 : channels, 1, 6, width, {}}, {}, false};
      ASSERT_TRUE(fit(g, 1));
      stored_map dy(g.y, GetParam(), rows, false, 0), dx(g.x, GetParam(), rows, false, 0), expected = dx;
      const auto count = static_cast<std::size_t>(g.y.count());
      dy.fill(std::vector<std::uint32_t>(count, exact(GetParam(), 1)));
      for (std::size_t i = 0; i < count; ++i) {
        for (int code = 0; code < 16; ++code) {
          // Cell 4 is a window's middle, which lies in x.
          std::vector<int> cells(count, 4);
          cells[i] = code;
          const std::vector<std::uint8_t> plane = reference_plane(cells, 4);
          encoded index(plane.size());
          std::copy(plane.begin(), plane.end(), index.data());
          const auto backward = [&, relu = relu, window = window](stored_map& to, const auto& where) {
            const tensor_view from = in_space(dy.view(), where), into = in_space(to.view(), where);
            if (relu) return relu_max_pool_backward(from, index.in(), into, window, where);
            max_pool_backward(from, index.in(), into, window, where);
          };
          backward(expected, on_host);
          const std::uint32_t status = std::exchange(index.report.status, 0U);
          backward(dx, on_device);
          ASSERT_EQ(index.report.status, status) << "code " << code << " at " << i;
          ASSERT_EQ(dx.bits(), expected.bits()) << "code " << code << " at " << i;
        }
      }
    }
  }
}

/// The same of windows one apart wherever they lie: maps of several stacks and strips, every padding, rows
/// and columns that no window begins in, and signs in a plane of their own. One code is wrong, or just where
/// it is.
TEST_P(device_pool, one_code_of_windows_one_apart_is_judged_as_on_the_cpu) {
  enum class source { index, code, signs };
  std::mt19937 random(37);
  int judged = 0, corrupt = 0;
  for (int k = 0; k < 160; ++k) {
    const bool rows = k % 2 == 0;
    pool_window window{3, 3, 1, 1, k / 2 % 3, rows ? 1 : k / 6 % 3};
    if (rows) window.layout = pool_layout::channels_first;
    const std::int64_t width = rows ? 4 * pick(random, 1, 5) : pick(random, 1, 7),
                       height = pick(random, 1, 13);
    const std::int64_t channels = rows ? pick(random, 1, 3) : 8 * pick(random, 1, 2);
    geometry g{window, {pick(random, 1, 2), channels, 1, height, width, {}}, {}, false};
    if (!fit(g, rows ? 1 : k % 3) || (rows && g.y.w != width)) continue;
    // Some maps end before the last windows that there might be.
    if (k % 5 == 4 && g.y.h > 1) --g.y.h;
    SCOPED_TRACE(describe(g));
    stored_map dy(g.y, GetParam(), rows, false, 0), dx(g.x, GetParam(), rows, false, 0), expected = dx;
    const auto count = static_cast<std::size_t>(g.y.count());
    dy.fill(std::vector<std::uint32_t>(count, exact(GetParam(), 1)));
    // Cells that the windows have, in memory's order: the nearest one to their middle.
    std::vector<int> legal;
    const auto cell = [](std::int64_t origin, std::int64_t in) {
      return static_cast<int>(
          std::clamp<std::int64_t>(1, std::max<std::int64_t>(0, -origin), in - 1 - origin));
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t pixel = rows ? i : i / static_cast<std::size_t>(channels);
      const auto x = static_cast<std::int64_t>(pixel) % g.y.w,
                 y = static_cast<std::int64_t>(pixel) / g.y.w % g.y.h;
      legal.push_back(3 * cell(y - window.pad_top, height) + cell(x - window.pad_left, width));
    }
    const std::size_t sign_bytes = (count + 127) / 128 * 16;
    encoded signs(sign_bytes);
    for (std::size_t i = 0; i < sign_bytes; ++i)
      signs.data()[i] = static_cast<std::uint8_t>(random() >> 7);
    for (const source from : {source::index, source::code, source::signs}) {
      for (int n = 0; n < 60; ++n) {
        std::vector<int> cells = legal;
        const std::size_t at = random() % count;
        cells[at] = static_cast<int>(random() % 16);
        const std::vector<std::uint8_t> plane = reference_plane(cells, 4);
        encoded index(plane.size());
        std::copy(plane.begin(), plane.end(), index.data());
        const auto backward = [&](stored_map& to, const execution_context& where) {
          const tensor_view gradients = in_space(dy.view(), where), into = in_space(to.view(), where);
          if (from == source::index) return max_pool_backward(gradients, index.in(), into, window, where);
          if (from == source::code) return relu_max_pool_backward(gradients, index.in(), into, window, where);
          relu_max_pool_backward(gradients, index.in(), parse_encoding("sign_mask"), signs.in(), into, window,
                                 rules[0], where);
        };
        backward(expected, on_host);
        const std::uint32_t status = std::exchange(index.report.status, 0U);
        backward(dx, on_device);
        ASSERT_EQ(index.report.status, status)
            << "code " << cells[at] << " at " << at << " from " << static_cast<int>(from);
        ASSERT_EQ(dx.bits(), expected.bits()) << "code " << cells[at] << " at " << at;
        ++judged;
        corrupt += status != 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(corrupt, judged / 4);
  EXPECT_LT(corrupt, judged * 3 / 4);
}

TEST_P(device_pool, windows_above_256_cells_are_pooled_without_index) {
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
  EXPECT_NO_THROW(max_pool_backward(none, index.in(), map, first, on_device));
  EXPECT_EQ(full.bits(), std::vector<std::uint32_t>(96, 0)) << "no window: no gradient";
  const tensor_view no_samples{nullptr, dtype::bf16, memory_space::device, {0, 3, 4, 4}, 0};
  const tensor_view no_pooled{nullptr, dtype::bf16, memory_space::device, {0, 3, 2, 2}, 0};
  EXPECT_NO_THROW(max_pool_forward(no_samples, no_pooled, first, index.out(), rules[0], on_device));
  EXPECT_NO_THROW(max_pool_backward(no_pooled, index.in(), no_samples, first, on_device));
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
  const auto forward = [&](const tensor_view& from, const tensor_view& to, const encoded_view& cells) {
    return code_of([&] { max_pool_forward(from, to, l.window, cells, rules[0], on_device); });
  };
  EXPECT_EQ(forward(in, out, index.out()), errc::ok);
  EXPECT_EQ(forward(x.view(), out, {}), errc::invalid_argument) << "x in host memory";
  EXPECT_EQ(forward(in, y.view(), {}), errc::invalid_argument) << "y in host memory";
  EXPECT_EQ(forward(in, spread, {}), errc::invalid_argument) << "y of another shape";
  EXPECT_EQ(forward(in, out, {index.data(), 32, nullptr, &index.report}), errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] { max_pool_backward(out, index.in(), dx.view(), l.window, on_device); }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] { max_pool_backward(out, x.view(), spread, l.window, rules[0], on_device); }),
            errc::invalid_argument);
  for (const char* name : {"bitmap", "csr", "fp16", "sign_mask"}) {
    encoding e = parse_encoding(name);
    e.underflow = underflow_rule::keep_nonzero;
    encoded stash(encoded_bytes_bound(e, dtype::f32, y.elements()));
    encode(e, y.view(), stash.out(), {}, on_host);
    EXPECT_EQ(code_of([&] {
                relu_max_pool_backward(out, index.in(), e, stash.in(), spread, l.window, rules[0], on_device);
              }),
              errc::ok)
        << name;
  }
}

}  // namespace
}  // namespace stash::test
