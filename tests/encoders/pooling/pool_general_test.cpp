// SPDX-License-Identifier: Apache-2.0
// Pooling in every layout, rank and type against its slow definition.

#include <optional>
#include <string>
#include <utility>

#include "encoders/pooling/pool_general_reference.hpp"
#include "encoders/pooling/pool_reference.hpp"

namespace stash::test {
namespace {

constexpr execution_context serial;

std::size_t bits_for(int taps) {
  return taps <= 4 ? 2 : taps <= 16 ? 4 : 8;
}

/// What a plane of window_index names, padding left out.
std::vector<int> decoded_plane(const std::uint8_t* plane, std::size_t bits, std::size_t count) {
  std::vector<int> codes;
  for (std::size_t i = 0; i < count; ++i)
    codes.push_back(plane[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1));
  return codes;
}

/// Inverse of in_memory_order().
std::vector<int> from_memory_order(const map& m, const std::vector<int>& stored, bool first) {
  std::vector<int> numbers(stored.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int>(i);
  std::vector<int> out(stored.size());
  const std::vector<int> order = in_memory_order(m, numbers, first);
  for (std::size_t i = 0; i < order.size(); ++i)
    out[static_cast<std::size_t>(order[i])] = stored[i];
  return out;
}

/// One layer with random values: everything that the library makes of it.
class layer_case {
 public:
  layer_case(geometry g, dtype type, bool relu, framework_rule rule, const execution_context& context,
             std::int64_t gap, std::mt19937& random)
      : g_(std::move(g)),
        first_(g_.window.layout == pool_layout::channels_first),
        type_(type),
        relu_(relu),
        rule_(rule),
        context_(context),
        random_(random),
        dy_(g_.y),
        x_(g_.x, type, first_, g_.deep, gap),
        y_(g_.y, type, first_, g_.deep, gap),
        gradient_(g_.y, type, first_, g_.deep, gap / 2),
        dx_(g_.x, type, first_, g_.deep, gap) {
    fill_values(g_.x, type, random, random_value);
    fill_values(dy_, type, random, random_gradient);
    x_.fill(bits_in_memory_order(g_.x, type, first_, exact));
    gradient_.fill(bits_in_memory_order(dy_, type, first_, exact));
    expected_ = define_forward(g_, relu, rule);
  }

  void check() {
    check_forward();
    if (testing::Test::HasFatalFailure()) return;
    check_backward();
    if (testing::Test::HasFatalFailure()) return;
    check_any_codes();
  }

 private:
  bool has_code() const { return relu_ && g_.window.taps() <= 15; }

  void check_forward() {
    const bool two_planes = g_.window.taps() <= 4;
    std::vector<int> taps = in_memory_order(g_.y, expected_.taps, first_);
    const std::vector<std::uint8_t> index = reference_plane(taps, bits_for(g_.window.taps()));
    index_.emplace(index.size());
    if (!relu_) {
      max_pool_forward(x_.view(), y_.view(), g_.window, index_->out(), rule_, context_);
    } else {
      std::vector<std::uint8_t> code;
      if (has_code()) {
        std::vector<int> signs;
        const std::vector<bool> passes = in_memory_order(g_.y, expected_.passes, first_);
        for (std::size_t i = 0; i < taps.size(); ++i) {
          signs.push_back(passes[i] ? 1 : 0);
          if (!passes[i]) taps[i] = two_planes ? 0 : 15;
        }
        code = reference_plane(taps, two_planes ? 2 : 4);
        if (two_planes) {
          const std::vector<std::uint8_t> plane = reference_plane(signs, 1);
          code.insert(code.end(), plane.begin(), plane.end());
        }
      }
      code_.emplace(code.size());
      relu_max_pool_forward(x_.view(), y_.view(), g_.window, has_code() ? code_->out() : encoded_view{},
                            index_->out(), rule_, context_);
      ASSERT_EQ(code_->all(), code);
      ASSERT_TRUE(code_->guard_intact());
    }
    const std::vector<std::uint32_t> y = bits_in_memory_order(g_.y, type_, first_, exact);
    ASSERT_EQ(y_.bits(), y);
    ASSERT_TRUE(y_.gaps_intact());
    ASSERT_EQ(index_->all(), index);
    ASSERT_TRUE(index_->guard_intact());
    y_.forget();
    if (relu_) {
      relu_max_pool_forward(x_.view(), y_.view(), g_.window, {}, {}, rule_, context_);
    } else {
      max_pool_forward(x_.view(), y_.view(), g_.window, {}, rule_, context_);
    }
    ASSERT_EQ(y_.bits(), y) << "without codes";
  }

  template <class Backward>
  void expect_gradient(const argmaxes& by, const char* what, const Backward& backward) {
    bool corrupt = false;
    const map expected = define_backward(g_, dy_, by, corrupt);
    dx_.forget();
    index_->report.status = 0;
    if (code_) code_->report.status = 0;
    backward();
    ASSERT_EQ(dx_.bits(), bits_in_memory_order(expected, type_, first_, rounded_result)) << what;
    ASSERT_TRUE(dx_.gaps_intact()) << what;
    const std::uint32_t status = index_->report.status | (code_ ? code_->report.status : 0U);
    ASSERT_EQ(status, corrupt ? status_corrupt : status_ok) << what;
  }

  void from_index(const argmaxes& by) {
    if (!relu_) {
      expect_gradient(by, "index", [&] {
        max_pool_backward(
            gradient_.view(),
            {window_index_of(g_.window), gradient_.view().type, gradient_.view().dims, index_->in()},
            dx_.view(), g_.window, context_);
      });
      return;
    }
    expect_gradient(by, "index and y", [&] {
      relu_max_pool_backward(
          gradient_.view(),
          {window_index_of(g_.window), gradient_.view().type, gradient_.view().dims, index_->in()}, y_.view(),
          dx_.view(), g_.window, rule_, context_);
    });
  }
  void from_code(const argmaxes& by) {
    expect_gradient(by, "code", [&] {
      relu_max_pool_backward(
          gradient_.view(),
          {relu_pool_of(g_.window), gradient_.view().type, gradient_.view().dims, code_->in()}, dx_.view(),
          g_.window, context_);
    });
  }

  void check_backward() {
    from_index(expected_);
    if (has_code()) from_code(expected_);
    expect_gradient(expected_, "x", [&] {
      if (relu_) {
        relu_max_pool_backward(gradient_.view(), x_.view(), dx_.view(), g_.window, rule_, context_);
      } else {
        max_pool_backward(gradient_.view(), x_.view(), dx_.view(), g_.window, rule_, context_);
      }
    });
    if (!relu_) return;
    for (const char* name : {"sign_mask", "bitmap", "csr"}) {
      encoding e = parse_encoding(name);
      e.rule = rule_;
      encoded stash(encoded_bytes_bound(e, type_, g_.y.count()));
      encode(e, y_.view(), stash.out(), {}, context_);
      expect_gradient(expected_, name, [&] {
        relu_max_pool_backward(
            gradient_.view(),
            {window_index_of(g_.window), gradient_.view().type, gradient_.view().dims, index_->in()},
            {e, gradient_.view().type, gradient_.view().dims, stash.in()}, dx_.view(), g_.window, rule_,
            context_);
      });
      ASSERT_EQ(stash.report.status, status_ok);
    }
  }

  /// Bytes that no encoder wrote: possible taps count, impossible ones are dropped and reported.
  void check_any_codes() {
    const std::size_t count = expected_.taps.size();
    const auto scribble = [&](encoded& bytes) {
      for (std::size_t i = 0; i < bytes.all().size(); ++i)
        bytes.data()[i] = static_cast<std::uint8_t>(random_() >> 7);
    };
    const auto decoded = [&](const std::uint8_t* plane, std::size_t bits) {
      return from_memory_order(g_.y, decoded_plane(plane, bits, count), first_);
    };
    argmaxes by = expected_;
    scribble(*index_);
    by.taps = decoded(index_->data(), bits_for(g_.window.taps()));
    // The pooled output's signs hold whatever the taps say, but a tap must be one wherever it is read.
    if (!relu_) {
      from_index(by);
    } else {
      dx_.forget();
      relu_max_pool_backward(
          gradient_.view(),
          {window_index_of(g_.window), gradient_.view().type, gradient_.view().dims, index_->in()}, y_.view(),
          dx_.view(), g_.window, rule_, context_);
      bool corrupt = false;
      const map dx = define_backward(g_, dy_, by, corrupt);
      ASSERT_EQ(dx_.bits(), bits_in_memory_order(dx, type_, first_, rounded_result));
    }
    if (!has_code()) return;
    scribble(*code_);
    const bool two_planes = g_.window.taps() <= 4;
    by.taps = decoded(code_->data(), two_planes ? 2 : 4);
    const std::vector<int> signs =
        two_planes ? decoded(code_->data() + (count * 2 + 127) / 128 * 16, 1) : std::vector<int>{};
    for (std::size_t i = 0; i < count; ++i)
      by.passes[i] = two_planes ? signs[i] != 0 : by.taps[i] != 15;
    from_code(by);
  }

  geometry g_;
  bool first_;
  dtype type_;
  bool relu_;
  framework_rule rule_;
  execution_context context_;
  std::mt19937& random_;
  map dy_;
  stored_map x_, y_, gradient_, dx_;
  argmaxes expected_;
  std::optional<encoded> index_, code_;
};

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

class pool_general : public testing::TestWithParam<dtype> {};
INSTANTIATE_TEST_SUITE_P(types, pool_general, testing::ValuesIn(types));

TEST_P(pool_general, random_layers_are_as_defined) {
  const auto layers = static_cast<std::uint32_t>(random_layers(1500));
  for (std::uint32_t k = 0; k < layers; ++k) {
    std::mt19937 random(k);
    const geometry g = random_geometry(random);
    SCOPED_TRACE(testing::Message() << k << ": " << describe(g));
    // Threads are slow to start.
    const execution_context context = k % 8 == 0 ? threads() : serial;
    layer_case(g, GetParam(), k % 2 == 1, rules[k / 2 % 2], context, k % 5 == 0 ? 3 : 0, random).check();
    if (HasFatalFailure()) return;
  }
}

TEST_P(pool_general, edges_of_runs_blocks_and_numbers) {
  const pool_window halves{2, 2, 2, 2}, overlapping{3, 3, 2, 2, 1, 1}, dense{3, 3, 1, 1, 1, 1};
  pool_window dilated{2, 3, 1, 1, 1, 3}, far{2, 2, 1, 70, 0, 0}, deep = halves, most{16, 16, 5, 5, 7, 7};
  pool_window flat{1, 200, 1, 3, 0, 50}, wide_dilation{1, 3, 1, 1, 0, 700}, cube{6, 6, 2, 2, 2, 2};
  dilated.dilation_w = 3;
  far.dilation_w = 300;
  wide_dilation.dilation_w = 700;
  deep.kernel_d = 3, deep.stride_d = 2, deep.pad_front = 1;
  cube.kernel_d = 7, cube.stride_d = 3, cube.pad_front = 3;
  struct edge {
    pool_window window;
    map x;
  };
  std::vector<edge> edges;
  for (const std::int64_t channels : {31, 32, 33, 127, 128, 129, 1023, 1024, 1025})
    edges.push_back({channels % 2 == 0 ? overlapping : dilated, {1, channels, 1, 4, 5, {}}});
  for (const std::int64_t width : {255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 8200})
    edges.push_back({width % 2 == 0 ? halves : dense, {1, 1, 1, 3, width, {}}});
  edges.push_back({overlapping, {2, 3, 1, 33, 65, {}}});
  edges.push_back({dense, {1, 9, 1, 40, 41, {}}});
  edges.push_back({far, {1, 2, 1, 3, 1000, {}}});
  edges.push_back({deep, {1, 2, 21, 20, 22, {}}});
  edges.push_back({most, {1, 2, 1, 30, 31, {}}});
  edges.push_back({flat, {1, 3, 1, 2, 900, {}}});
  edges.push_back({wide_dilation, {1, 2, 1, 2, 1500, {}}});
  edges.push_back({cube, {1, 2, 9, 8, 10, {}}});
  std::mt19937 random(7);
  for (const edge& e : edges) {
    for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
      geometry g{e.window, e.x, {}, e.x.d > 1};
      g.window.layout = layout;
      ASSERT_TRUE(fit(g, 1)) << describe(g);
      SCOPED_TRACE(describe(g));
      const bool relu = pick(random, 0, 1) == 1;
      layer_case(g, GetParam(), relu, rules[pick(random, 0, 1)], serial, relu ? 5 : 0, random).check();
      if (HasFatalFailure()) return;
    }
  }
}

/// The dedicated loops for f32 and those of this file, on the same bytes with and without a depth of 1.
TEST(pool_general_f32, equals_the_two_dimensional_loops) {
  std::mt19937 random(11);
  for (const layer& l : edge_layers()) {
    for (const framework_rule rule : rules) {
      tensor x(l.x()), dy(l.y()), y(l.y()), dx(l.x());
      fill_special(x, static_cast<std::uint32_t>(random()));
      fill_uniform(dy, static_cast<std::uint32_t>(random()));
      const std::size_t bytes = encoded_bytes_bound(
          {.kind = encoding_kind::window_index, .window_taps = static_cast<std::uint16_t>(l.window.taps())},
          dtype::f32, l.pooled());
      encoded index(bytes);
      max_pool_forward(x.view(), y.view(), l.window, index.out(), rule, serial);
      max_pool_backward(dy.view(), {window_index_of(l.window), dy.view().type, dy.view().dims, index.in()},
                        dx.view(), l.window, serial);

      const shape deep_x{l.samples, 1, l.height, l.width, l.channels};
      const shape deep_y{l.samples, 1, l.out_height, l.out_width, l.channels};
      const auto deep = [](tensor& t, const shape& dims) {
        return tensor_view{t.view().data, dtype::f32, memory_space::host, dims, 0};
      };
      tensor other_y(deep_y), other_dx(deep_x);
      encoded other(bytes);
      max_pool_forward(deep(x, deep_x), other_y.view(), l.window, other.out(), rule, serial);
      max_pool_backward(deep(dy, deep_y),
                        {window_index_of(l.window), deep(dy, deep_y).type, deep(dy, deep_y).dims, other.in()},
                        other_dx.view(), l.window, serial);
      ASSERT_EQ(other_y.bits(), y.bits());
      ASSERT_EQ(other.all(), index.all());
      ASSERT_EQ(other_dx.bits(), dx.bits());
    }
  }
}

TEST(pool_general_layouts, are_transposed_images_of_each_other) {
  for (std::uint32_t k = 0; k < 200; ++k) {
    std::mt19937 random(k + 1000);
    geometry g = random_geometry(random);
    SCOPED_TRACE(describe(g));
    for (const dtype type : types) {
      fill_values(g.x, type, random, random_value);
      map dy = g.y;
      fill_values(dy, type, random, random_gradient);
      std::vector<std::uint32_t> y[2], dx[2];
      for (const bool first : {false, true}) {
        g.window.layout = first ? pool_layout::channels_first : pool_layout::channels_last;
        stored_map x(g.x, type, first, g.deep, 0), pooled(g.y, type, first, g.deep, 0);
        stored_map gradient(g.y, type, first, g.deep, 0), spread(g.x, type, first, g.deep, 0);
        x.fill(bits_in_memory_order(g.x, type, first, exact));
        gradient.fill(bits_in_memory_order(dy, type, first, exact));
        max_pool_forward(x.view(), pooled.view(), g.window, {}, rules[k % 2], serial);
        max_pool_backward(gradient.view(), x.view(), spread.view(), g.window, rules[k % 2], serial);
        const auto back = [&](const map& m, const stored_map& s) {
          std::vector<int> bits;
          for (const std::uint32_t b : s.bits())
            bits.push_back(std::bit_cast<int>(b));
          const std::vector<int> ordered = from_memory_order(m, bits, first);
          return std::vector<std::uint32_t>(ordered.begin(), ordered.end());
        };
        y[first ? 1 : 0] = back(g.y, pooled);
        dx[first ? 1 : 0] = back(g.x, spread);
      }
      ASSERT_EQ(y[0], y[1]);
      ASSERT_EQ(dx[0], dx[1]);
    }
  }
}

TEST(pool_general_golden, depth_is_the_slowest_part_of_a_tap_number) {
  // One window of 2 x 2 x 2 taps for each of nine channels; channel i has its maximum in tap i mod 8.
  pool_window w;
  w.kernel_d = w.stride_d = 2;
  tensor x({1, 2, 2, 2, 9}), y({1, 1, 1, 1, 9});
  for (std::int64_t tap = 0; tap < 8; ++tap) {
    for (std::int64_t channel = 0; channel < 9; ++channel)
      x[tap * 9 + channel] = channel % 8 == tap ? 1.0F : -1.0F;
  }
  encoded index(16);
  max_pool_forward(x.view(), y.view(), w, index.out(), framework_rule::tensorflow, serial);
  std::vector<std::uint8_t> expected(16, 0);
  expected[0] = 0x10, expected[1] = 0x32, expected[2] = 0x54, expected[3] = 0x76;
  EXPECT_EQ(index.all(), expected);
}

TEST(pool_general_sums, of_16_bits_are_rounded_once) {
  // 2048 + 1 + 1 in f16: rounded after each step it stays 2048.
  pool_window w{1, 3, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, pool_layout::channels_first};
  const auto f16 = [](float v) { return static_cast<std::uint16_t>(rounded(dtype::f16, v)); };
  std::vector<std::uint16_t> x = {f16(0), f16(1), f16(0)}, dy = {f16(2048), f16(1), f16(1)}, dx(3);
  const auto view = [](std::vector<std::uint16_t>& v) {
    return tensor_view{v.data(), dtype::f16, memory_space::host, {1, 1, 1, 3}, 0};
  };
  max_pool_backward(view(dy), view(x), view(dx), w, framework_rule::tensorflow, serial);
  EXPECT_EQ(dx, (std::vector<std::uint16_t>{0, f16(2050), 0}));
  // Whoever scales losses looks for infinities, so none may hide.
  dy = {f16(65504), f16(-65504), f16(-65504)};
  max_pool_backward(view(dy), view(x), view(dx), w, framework_rule::tensorflow, serial);
  EXPECT_EQ(dx, (std::vector<std::uint16_t>{0, f16(-65504), 0}));
  dy = {f16(-65504), f16(-8), f16(-8)};
  max_pool_backward(view(dy), view(x), view(dx), w, framework_rule::tensorflow, serial);
  EXPECT_EQ(dx, (std::vector<std::uint16_t>{0, 0xfc00, 0}));
}

TEST(pool_general_windows, above_256_taps_are_pooled_without_index) {
  for (const dtype type : types) {
    for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
      for (const bool relu : {false, true}) {
        std::mt19937 random(3);
        geometry g{{20, 30, 7, 9, 4, 5}, {2, 9, 1, 25, 70, {}}, {}, false};
        g.window.layout = layout;
        g.window.dilation_w = 2 - relu;
        ASSERT_TRUE(fit(g, 4));
        fill_values(g.x, type, random, random_value);
        const bool first = layout == pool_layout::channels_first;
        stored_map x(g.x, type, first, false, 0), y(g.y, type, first, false, 0);
        x.fill(bits_in_memory_order(g.x, type, first, exact));
        for (const framework_rule rule : rules) {
          if (relu) {
            relu_max_pool_forward(x.view(), y.view(), g.window, {}, {}, rule, serial);
          } else {
            max_pool_forward(x.view(), y.view(), g.window, {}, rule, serial);
          }
          define_forward(g, relu, rule);
          EXPECT_EQ(y.bits(), bits_in_memory_order(g.y, type, first, exact));
        }
        encoded index(4096);
        const auto with_index = [&] {
          max_pool_forward(x.view(), y.view(), g.window, index.out(), rules[0], serial);
        };
        EXPECT_EQ(code_of(with_index), errc::unsupported);
        const auto search = [&] {
          max_pool_backward(y.view(), x.view(), x.view(), g.window, rules[0], serial);
        };
        EXPECT_EQ(code_of(search), errc::unsupported);
      }
    }
  }
}

TEST(pool_general_empty, maps_are_left_alone) {
  pool_window first{.layout = pool_layout::channels_first};
  tensor full({2, 3, 4, 4});
  fill_uniform(full, 1);
  const tensor_view none{nullptr, dtype::f32, memory_space::host, {2, 3, 0, 2}, 0};
  EXPECT_NO_THROW(max_pool_forward(full.view(), none, first, {}, rules[0], serial));
  encoded index(0);
  EXPECT_NO_THROW(max_pool_backward(none, {window_index_of(first), none.type, none.dims, index.in()},
                                    full.view(), first, serial));
  EXPECT_EQ(full.bits(), std::vector<std::uint32_t>(96, 0)) << "no window: no gradient";
  const tensor_view no_samples{nullptr, dtype::bf16, memory_space::host, {0, 3, 4, 4}, 0};
  const tensor_view no_pooled{nullptr, dtype::bf16, memory_space::host, {0, 3, 2, 2}, 0};
  EXPECT_NO_THROW(max_pool_forward(no_samples, no_pooled, first, index.out(), rules[0], serial));
  EXPECT_NO_THROW(max_pool_backward(no_pooled,
                                    {window_index_of(first), no_pooled.type, no_pooled.dims, index.in()},
                                    no_samples, first, serial));
}

class pool_general_arguments : public testing::Test {
 protected:
  tensor_view view(const shape& dims, dtype type = dtype::f32) {
    return {memory_.data(), type, memory_space::host, dims, 0};
  }
  /// In memory of its own.
  tensor_view pooled(const shape& dims, dtype type = dtype::f32) {
    return {pooled_memory_.data(), type, memory_space::host, dims, 0};
  }
  errc code(const tensor_view& x, const tensor_view& y, const pool_window& w) {
    return code_of([&] { max_pool_forward(x, y, w, {}, framework_rule::tensorflow, serial); });
  }
  errc code(const shape& x, const shape& y, const pool_window& w) { return code(view(x), pooled(y), w); }

 private:
  std::vector<float> memory_ = std::vector<float>(4096);
  std::vector<float> pooled_memory_ = std::vector<float>(4096);
};

TEST_F(pool_general_arguments, ranks_and_shapes_fit_each_other) {
  const pool_window first{.layout = pool_layout::channels_first};
  pool_window deep;
  deep.kernel_d = deep.stride_d = 2;
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 2, 2}, first), errc::ok);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 3, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4}, {2, 2, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 2, 2, 1}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4}, {1, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4, 4, 4}, {1, 2, 4, 4, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 3, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 4, 2}, {1, 2, 2, 2, 2}, deep), errc::ok);
  EXPECT_EQ(code({1, 4, 4, 4, 2}, {1, 3, 2, 2, 2}, deep), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 4, 2}, {1, 2, 2, 2, 3}, deep), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, deep), errc::invalid_argument) << "depth needs 5 dimensions";
  EXPECT_EQ(code(view({1, 2, 4, 4}, dtype::f16), pooled({1, 2, 2, 2}, dtype::bf16), first),
            errc::invalid_argument);
  EXPECT_EQ(code(view({1, 2, 4, 4}, dtype::s32), pooled({1, 2, 2, 2}, dtype::s32), first),
            errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.layout = static_cast<pool_layout>(7)}),
            errc::invalid_argument);
}

TEST_F(pool_general_arguments, windows_are_sound) {
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.dilation_h = 0}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.dilation_h = 2}), errc::ok);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.dilation_d = 0}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.stride_d = 0}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.stride_w = -1, .dilation_w = 2}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.pad_left = -1, .dilation_w = 2}), errc::invalid_argument);
  // A dilated window may step over a narrow map altogether, the second as well as the first.
  EXPECT_EQ(code({1, 1, 4, 2}, {1, 1, 2, 2}, {.pad_top = 1, .dilation_h = 3}), errc::invalid_argument);
  EXPECT_EQ(code({1, 1, 4, 2}, {1, 1, 2, 2}, {.pad_top = 3, .dilation_h = 3}), errc::ok);
  EXPECT_EQ(code({1, 1, 4, 2}, {1, 2, 2, 2}, {.stride_h = 1, .pad_top = 3, .dilation_h = 3}),
            errc::invalid_argument);
  EXPECT_EQ(code({1, 1, 4, 2}, {1, 2, 2, 2}, {.stride_h = 3, .pad_top = 3, .dilation_h = 3}), errc::ok);
  // Numbers whose products overflow.
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 1, 1, 2},
                 {.kernel_h = huge, .kernel_w = huge, .dilation_h = huge, .dilation_w = huge}),
            errc::ok);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 1, 1, 2}, {.pad_top = huge, .dilation_h = huge}), errc::ok);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 1, 1, 2}, {.pad_top = huge - 1, .dilation_h = huge}), errc::ok);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 1, 1, 2}, {.pad_top = huge, .dilation_h = huge - 5}),
            errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 4, 2}, {1, 1, 1, 1, 2},
                 {.kernel_h = huge, .kernel_w = huge, .kernel_d = huge, .stride_d = huge}),
            errc::ok);
}

TEST_F(pool_general_arguments, maps_with_channels_first_are_dense) {
  const pool_window first{.layout = pool_layout::channels_first};
  tensor_view x = view({1, 2, 4, 4}), y = pooled({1, 2, 2, 2}), wide = x, wide_y = y;
  wide.pixel_pitch = 6;
  wide_y.pixel_pitch = 3;
  EXPECT_EQ(code(wide, y, first), errc::invalid_argument);
  EXPECT_EQ(code(x, wide_y, first), errc::invalid_argument);
  encoded index(16);
  const framework_rule rule = framework_rule::tensorflow;
  EXPECT_EQ(code_of([&] { max_pool_backward(y, wide, x, first, rule, serial); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { relu_max_pool_backward(y, wide, x, first, rule, serial); }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(y, {window_index_of(first), y.type, y.dims, index.in()}, wide_y, x,
                                     first, rule, serial);
            }),
            errc::invalid_argument);
}

TEST_F(pool_general_arguments, codes_have_capacity) {
  const pool_window first{.layout = pool_layout::channels_first};
  const tensor_view x = view({1, 5, 10, 10}), y = pooled({1, 5, 5, 5});
  encoded enough(32), small(16);
  const framework_rule rule = framework_rule::tensorflow;
  EXPECT_EQ(code_of([&] { max_pool_forward(x, y, first, small.out(), rule, serial); }),
            errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] {
              max_pool_backward(y, {window_index_of(first), y.type, y.dims, small.in()}, x, first, serial);
            }),
            errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] { relu_max_pool_forward(x, y, first, enough.out(), {}, rule, serial); }),
            errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] {
              relu_max_pool_backward(y, {relu_pool_of(first), y.type, y.dims, enough.in()}, x, first, serial);
            }),
            errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] { max_pool_forward(x, y, first, enough.out(), static_cast<framework_rule>(9), {}); }),
            errc::invalid_argument);
  pool_window sixteen{.kernel_h = 4, .kernel_w = 4, .layout = pool_layout::channels_first};
  EXPECT_EQ(code_of([&] {
              relu_max_pool_forward(x, pooled({1, 5, 4, 4}), sixteen, enough.out(), {}, rule, serial);
            }),
            errc::unsupported);
}

}  // namespace
}  // namespace stash::test
