// SPDX-License-Identifier: Apache-2.0
// Codes of window_index from positions of argmaxes and back, against their slow definition.

#include <memory>
#include <string>

#include "encoders/pooling/pool_reference.hpp"
#include "encoders/pooling/window_index_cases.hpp"
#include "encoders/support.hpp"

namespace stash::test {
namespace {

using stash_test::code_of;
using stash_test::message_of;

constexpr execution_context serial;

/// Positions in memory of exactly their size, which is not aligned to more than it has to be.
class exact_positions {
 public:
  explicit exact_positions(std::size_t count) : memory_(new std::int64_t[count + 1]), count_(count) {}
  explicit exact_positions(const std::vector<std::int64_t>& values) : exact_positions(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  std::int64_t* data() const { return memory_.get() + 1; }
  std::vector<std::int64_t> values() const { return {data(), data() + count_}; }

 private:
  std::unique_ptr<std::int64_t[]> memory_;
  std::size_t count_;
};

void expect_encoded(const window_index_case& c, const std::vector<std::int64_t>& flat,
                    const execution_context& context) {
  bool corrupt = false;
  const std::vector<std::uint8_t> expected = c.encoded(flat, corrupt);
  encoded index(c.bytes());
  encode_window_index(exact_positions(flat).data(), c.y, c.x, c.g.window, index.out(), context);
  ASSERT_EQ(index.all(), expected);
  ASSERT_TRUE(index.guard_intact());
  ASSERT_EQ(index.report.slot_bytes, c.bytes());
  ASSERT_EQ(index.report.status, corrupt ? status_corrupt : status_ok);
}

void expect_decoded(const window_index_case& c, encoded& index, const execution_context& context) {
  bool corrupt = false;
  const std::vector<std::int64_t> expected = c.decoded(index.data(), corrupt);
  const std::vector<std::uint8_t> before = index.all();
  index.report = {};
  const exact_positions flat(c.count());
  decode_window_index({window_index_of(c.g.window), dtype::f32, c.y, index.in()}, c.x, c.g.window,
                      flat.data(), context);
  ASSERT_EQ(flat.values(), expected);
  ASSERT_EQ(index.report.status, corrupt ? status_corrupt : status_ok);
  ASSERT_EQ(index.all(), before);
}

void check(const window_index_case& c, std::mt19937& random, const execution_context& context) {
  std::vector<std::int64_t> flat = c.random_positions(random);
  expect_encoded(c, flat, context);
  if (testing::Test::HasFatalFailure()) return;
  bool corrupt = true;
  const std::vector<std::uint8_t> plane = c.encoded(flat, corrupt);
  ASSERT_FALSE(corrupt);
  encoded index(c.bytes());
  std::copy(plane.begin(), plane.end(), index.data());
  ASSERT_EQ(c.decoded(index.data(), corrupt), flat);
  expect_decoded(c, index, context);
  if (testing::Test::HasFatalFailure()) return;
  for (std::size_t i = 0; i < c.bytes(); ++i)
    index.data()[i] = static_cast<std::uint8_t>(random());
  expect_decoded(c, index, context);
  c.damage(flat, random);
  expect_encoded(c, flat, context);
}

TEST(window_index, of_random_layers_is_as_defined) {
  for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(random_layers(1500)); ++k) {
    std::mt19937 random(k);
    const window_index_case c(random_geometry(random));
    SCOPED_TRACE(testing::Message() << k << ": " << describe(c.g));
    check(c, random, k % 8 == 0 ? threads() : serial);
    if (HasFatalFailure()) return;
  }
}

TEST(window_index, at_edges_of_words_tiles_and_windows) {
  std::mt19937 random(5);
  for (const geometry& g : window_index_edges()) {
    const window_index_case c(g);
    SCOPED_TRACE(describe(g));
    check(c, random, serial);
    check(c, random, threads());
    if (HasFatalFailure()) return;
  }
}

/// What PyTorch's pooling says is what ours does.
TEST(window_index, has_the_bytes_of_max_pool_forward) {
  for (std::uint32_t k = 0; k < 200; ++k) {
    std::mt19937 random(k + 100);
    geometry g = random_geometry(random);
    SCOPED_TRACE(describe(g));
    fill_values(g.x, dtype::f32, random, random_value);
    const window_index_case c(g);
    stored_map x(g.x, dtype::f32, c.first, g.deep, 0), y(g.y, dtype::f32, c.first, g.deep, 0);
    x.fill(bits_in_memory_order(g.x, dtype::f32, c.first, exact));
    encoded pooled(c.bytes()), made(c.bytes());
    max_pool_forward(x.view(), y.view(), g.window, pooled.out(), framework_rule::pytorch, serial);
    const exact_positions flat(c.count());
    decode_window_index({window_index_of(g.window), dtype::f32, c.y, pooled.in()}, c.x, g.window, flat.data(),
                        serial);
    encode_window_index(flat.data(), c.y, c.x, g.window, made.out(), serial);
    ASSERT_EQ(pooled.report.status | made.report.status, status_ok);
    ASSERT_EQ(made.all(), pooled.all());
    // And the positions are those of the maxima.
    const std::vector<std::uint32_t> values = y.bits();
    const std::vector<std::uint32_t> sources = x.bits();
    const std::int64_t plane = g.x.d * g.x.h * g.x.w, of_y = g.y.d * g.y.h * g.y.w;
    for (std::int64_t i = 0; i < g.y.count(); ++i) {
      const std::int64_t at = flat.data()[i];
      const std::int64_t from =
          c.first ? i / of_y * plane + at : (i / (of_y * g.y.c) * plane + at) * g.y.c + i % g.y.c;
      ASSERT_EQ(sources[static_cast<std::size_t>(from)], values[static_cast<std::size_t>(i)]) << i;
    }
  }
}

TEST(window_index, example_of_overlapping_windows) {
  // 3 x 3 with stride 2 and padding 1 over 4 x 4: as torch.nn.functional.max_pool2d(return_indices=True).
  const pool_window window{3, 3, 2, 2, 1, 1, 1, 1, 0, 1, 1, 1, pool_layout::channels_first};
  const shape x{1, 1, 4, 4}, y{1, 1, 2, 2};
  const std::vector<std::int64_t> flat{5, 6, 5, 15};
  encoded index(16);
  encode_window_index(flat.data(), y, x, window, index.out(), serial);
  std::vector<std::uint8_t> expected(16, 0);
  expected[0] = 0x78, expected[1] = 0x82;
  // Window (0, 1) begins at (-1, 1): 6 is its row 2 and column 1. Window (1, 0) begins at (1, -1).
  EXPECT_EQ(index.all(), expected);
  EXPECT_EQ(index.report.status, status_ok);
  std::vector<std::int64_t> back(4);
  decode_window_index({window_index_of(window), dtype::f32, y, index.in()}, x, window, back.data(), serial);
  EXPECT_EQ(back, flat);
}

/// x is not touched, so that it may be larger than any memory.
TEST(window_index, in_planes_beyond_32_bits) {
  struct {
    shape x, y;
    pool_window window;
  } const cases[] = {
      {{1, 1, 1 << 20, 1 << 20}, {1, 1, 3, 5}, {3, 3, 340000, 200000, 1, 1}},
      {{1, 1, 3, std::int64_t{1} << 40}, {1, 1, 1, 7}, {3, 3, 1, 2147483647, 0, 0}},
      {{1, 1, std::int64_t{1} << 40, 1}, {1, 1, 7, 1}, {3, 1, 2147483647, 1, 0, 0}},
      {{1, 1, 1 << 18, 1 << 18}, {1, 1, 2, 2}, {2, 2, 100000, 100000, 0, 0, 1, 1, 0, 130000, 130000}},
      {{1, 1, 2, 2147483648}, {1, 1, 1, 3}, {2, 2, 1, 715827882, 0, 0}},
      {{1, 1, 1, 2147483647}, {1, 1, 1, 3}, {1, 2, 1, 715827882, 0, 0}}};
  for (const auto& c : cases) {
    pool_window window = c.window;
    window.layout = pool_layout::channels_first;
    const std::int64_t rows = c.y[2], columns = c.y[3], taps = window.taps();
    std::vector<std::int64_t> flat;
    std::vector<int> codes;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t tap = i == 0 ? taps - 1 : i % taps;
      const std::int64_t row =
          i / columns * window.stride_h - window.pad_top + tap / window.kernel_w * window.dilation_h;
      const std::int64_t column =
          i % columns * window.stride_w - window.pad_left + tap % window.kernel_w * window.dilation_w;
      const bool inside = row >= 0 && row < c.x[2] && column >= 0 && column < c.x[3];
      codes.push_back(inside ? static_cast<int>(tap) : 0);
      flat.push_back(inside ? row * c.x[3] + column : -7);
    }
    const std::vector<std::uint8_t> expected = reference_plane(codes, taps <= 4 ? 2 : 4);
    encoded index(expected.size());
    encode_window_index(flat.data(), c.y, c.x, window, index.out(), serial);
    EXPECT_EQ(index.all(), expected);
    const bool corrupt = std::find(flat.begin(), flat.end(), -7) != flat.end();
    EXPECT_EQ(index.report.status, corrupt ? status_corrupt : status_ok);
    std::vector<std::int64_t> back(flat.size());
    decode_window_index({window_index_of(window), dtype::f32, c.y, index.in()}, c.x, window, back.data(),
                        serial);
    for (std::size_t i = 0; i < flat.size(); ++i) {
      if (flat[i] < 0) continue;
      EXPECT_EQ(back[i], flat[i]) << i;
    }
  }
}

TEST(window_index, of_nothing) {
  encoded index(0);
  const encoded_view none{nullptr, 0, nullptr, &index.report};
  for (const auto& [y, x] :
       {std::pair(shape{0, 3, 2, 2}, shape{0, 3, 4, 4}), std::pair(shape{2, 0, 2, 2}, shape{2, 0, 4, 4}),
        std::pair(shape{2, 3, 0, 0}, shape{2, 3, 0, 0}), std::pair(shape{2, 3, 0, 2}, shape{2, 3, 4, 4})}) {
    pool_window window;
    window.layout = pool_layout::channels_first;
    encode_window_index(nullptr, y, x, window, none, serial);
    decode_window_index({window_index_of(window), dtype::f32, y, {nullptr, 0, nullptr, &index.report}}, x,
                        window, nullptr, threads());
  }
  EXPECT_EQ(index.report.status, status_ok);
  EXPECT_EQ(index.report.slot_bytes, 0U);
}

TEST(window_index, refuses_what_does_not_fit) {
  const shape x{2, 3, 6, 8}, y{2, 3, 3, 4};
  pool_window window;
  window.layout = pool_layout::channels_first;
  constexpr std::int64_t count = 2 * 3 * 3 * 4;
  std::vector<std::int64_t> flat(count, 0);
  encoded index(32);
  const auto both = [&](const shape& of_y, const shape& of_x, const pool_window& w, const encoded_view& to,
                        std::int64_t* positions, const execution_context& context) {
    const auto encoding = [&] { encode_window_index(positions, of_y, of_x, w, to, context); };
    const auto decoding = [&] {
      decode_window_index({window_index_of(w), dtype::f32, of_y, {to.data, to.bytes, to.overflow, to.report}},
                          of_x, w, positions, context);
    };
    EXPECT_EQ(code_of(encoding), code_of(decoding));
    const std::string text = message_of(encoding), other = message_of(decoding);
    EXPECT_EQ(text.substr(0, 2) == "no" ? "" : text.substr(text.find(':')),
              other.substr(0, 2) == "no" ? "" : other.substr(other.find(':')));
    return std::pair(code_of(encoding), text);
  };
  const auto with = [&](const shape& of_y, const shape& of_x, const pool_window& w) {
    return both(of_y, of_x, w, index.out(), flat.data(), serial);
  };
  EXPECT_EQ(with(y, x, window).first, errc::ok);
  const auto refused = [](errc code, const char* text) {
    return std::pair(code, std::string("encode_window_index: ") + text);
  };
  EXPECT_EQ(with({6, 3, 4}, {6, 6, 8}, window),
            refused(errc::invalid_argument, "x: expected 4 or 5 dimensions, got 3"));
  EXPECT_EQ(with({2, 3, 1, 3, 4}, x, window),
            refused(errc::invalid_argument, "y: expected 4 dimensions as x, got 5"));
  EXPECT_EQ(with({2, 4, 3, 4}, x, window),
            refused(errc::invalid_argument, "y: expected 2 samples and 3 channels as in x, got 2 and 4"));
  EXPECT_EQ(with({2, 3, 4, 4}, x, window).first, errc::invalid_argument);
  pool_window other = window;
  other.kernel_d = 2;
  EXPECT_EQ(with(y, x, other), refused(errc::invalid_argument,
                                       "window: expected no depth with 4 dimensions, got kernel 2, stride 1, "
                                       "padding 0"));
  other = window;
  other.layout = static_cast<pool_layout>(2);
  EXPECT_EQ(with(y, x, other), refused(errc::invalid_argument, "window: expected a known layout, got 2"));
  other = window;
  other.stride_w = 0;
  EXPECT_EQ(with(y, x, other).first, errc::invalid_argument);
  other = window;
  other.kernel_h = 257, other.kernel_w = 1, other.pad_top = 255;
  EXPECT_EQ(with(y, x, other), refused(errc::unsupported, "window: expected at most 256 taps, got 257"));
  other.kernel_h = other.kernel_w = 2147483647;
  EXPECT_EQ(with(y, x, other).first, errc::unsupported);

  encoded_view to = index.out();
  to.bytes = 31;
  EXPECT_EQ(both(y, x, window, to, flat.data(), serial),
            refused(errc::capacity_exceeded, "index: expected at least 32 bytes, got 31"));
  to = index.out();
  to.report = nullptr;
  EXPECT_EQ(both(y, x, window, to, flat.data(), serial),
            refused(errc::invalid_argument, "index: expected a report, got null"));
  to = index.out();
  to.data = nullptr;
  EXPECT_EQ(both(y, x, window, to, flat.data(), serial),
            refused(errc::invalid_argument, "index: expected data, got a null pointer"));
  EXPECT_EQ(both(y, x, window, index.out(), nullptr, serial),
            refused(errc::invalid_argument, "flat: expected data, got a null pointer"));
  auto* const misaligned = reinterpret_cast<std::int64_t*>(reinterpret_cast<std::uint8_t*>(flat.data()) + 4);
  EXPECT_EQ(both(y, x, window, index.out(), misaligned, serial).first, errc::invalid_argument);
  execution_context context;
  context.space = memory_space::device;
  EXPECT_EQ(both(y, x, window, index.out(), flat.data(), context).first, errc::unsupported);
  context.space = memory_space::pinned_host;
  EXPECT_EQ(both(y, x, window, index.out(), flat.data(), context).first, errc::invalid_argument);

  // The index within the positions.
  alignas(16) std::int64_t shared[count] = {};
  to = index.out();
  to.data = shared + 8;
  EXPECT_EQ(code_of([&] { encode_window_index(shared, y, x, window, to, serial); }), errc::invalid_argument);
  const const_encoded_view from{to.data, to.bytes, nullptr, to.report};
  EXPECT_EQ(code_of([&] {
              decode_window_index({window_index_of(window), dtype::f32, y, from}, x, window, shared, serial);
            }),
            errc::invalid_argument);
  for (const std::int64_t position : shared)
    EXPECT_EQ(position, 0) << "a refused call writes nothing";
}

}  // namespace
}  // namespace stash::test
