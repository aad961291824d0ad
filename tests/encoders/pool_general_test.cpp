// Pooling in every layout, rank and type against a slow definition: for every pooled value all cells, for
// every gradient all windows.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "format/reference.hpp"
#include "stash/error.hpp"
#include "stash/pool.hpp"

namespace stash {
namespace {

void three_cuts(void*, std::int64_t count, std::int64_t, range_function body, void* state) {
  std::thread other([&] { body(state, 0, count / 5); });
  body(state, count / 5, count / 2);
  body(state, count / 2, count);
  other.join();
}

std::uint32_t to_type(dtype type, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == dtype::f32) return bits;
  return reference::narrow(type == dtype::f16 ? value_format::fp16 : value_format::bf16,
                           underflow_rule::to_zero, bits);
}
float from_type(dtype type, std::uint32_t bits) {
  if (type == dtype::f32) return std::bit_cast<float>(bits);
  return std::bit_cast<float>(
      reference::widen(type == dtype::f16 ? value_format::fp16 : value_format::bf16, bits));
}

/// A map as f32 values in the order (sample, channel, z, y, x), which every layout is made from.
struct map {
  std::int64_t n, c, d, h, w;
  std::vector<float> values;
  std::int64_t count() const { return n * c * d * h * w; }
  float& at(std::int64_t s, std::int64_t ch, std::int64_t z, std::int64_t y, std::int64_t x) {
    return values[static_cast<std::size_t>((((s * c + ch) * d + z) * h + y) * w + x)];
  }
};

struct stored_map {
  dtype type;
  shape dims;
  std::int64_t pitch;
  std::vector<std::uint8_t> bytes;
  tensor_view view() { return {bytes.data(), type, memory_space::host, dims, pitch}; }
};

/// Position of (s, ch, z, y, x) in memory order without pitch.
std::int64_t position(const map& m, bool first, std::int64_t s, std::int64_t ch, std::int64_t z,
                      std::int64_t y, std::int64_t x) {
  return first ? (((s * m.c + ch) * m.d + z) * m.h + y) * m.w + x
               : (((s * m.d + z) * m.h + y) * m.w + x) * m.c + ch;
}

stored_map store(map& m, dtype type, bool first, bool deep, std::int64_t gap) {
  stored_map out;
  out.type = type;
  if (first) {
    out.dims = deep ? shape{m.n, m.c, m.d, m.h, m.w} : shape{m.n, m.c, m.h, m.w};
    out.pitch = m.w;
  } else {
    out.dims = deep ? shape{m.n, m.d, m.h, m.w, m.c} : shape{m.n, m.h, m.w, m.c};
    out.pitch = m.c + gap;
  }
  const std::int64_t inner = out.dims.inner();
  const std::size_t width = type == dtype::f32 ? 4 : 2;
  out.bytes.assign(static_cast<std::size_t>(m.count() / inner * out.pitch) * width, 0xcd);
  for (std::int64_t s = 0; s < m.n; ++s)
    for (std::int64_t ch = 0; ch < m.c; ++ch)
      for (std::int64_t z = 0; z < m.d; ++z)
        for (std::int64_t y = 0; y < m.h; ++y)
          for (std::int64_t x = 0; x < m.w; ++x) {
            const std::int64_t p = position(m, first, s, ch, z, y, x);
            const std::uint32_t bits = to_type(type, m.at(s, ch, z, y, x));
            std::memcpy(
                out.bytes.data() + static_cast<std::size_t>(p / inner * out.pitch + p % inner) * width, &bits,
                width);
          }
  return out;
}

std::vector<std::uint32_t> take(const stored_map& m) {
  const std::int64_t inner = m.dims.inner();
  const std::size_t width = m.type == dtype::f32 ? 4 : 2;
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(m.dims.elements()), 0);
  for (std::int64_t p = 0; p < m.dims.elements(); ++p)
    std::memcpy(&bits[static_cast<std::size_t>(p)],
                m.bytes.data() + static_cast<std::size_t>(p / inner * m.pitch + p % inner) * width, width);
  return bits;
}

struct geometry {
  pool_window window;
  map x, y;
  bool deep = false;
};

geometry random_geometry(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (;;) {
    geometry g;
    g.deep = pick(0, 1) == 1;
    pool_window& w = g.window;
    w = {pick(1, 3), pick(1, 4), pick(1, 3), pick(1, 3), pick(0, 2), pick(0, 2)};
    w.dilation_h = pick(1, 2);
    w.dilation_w = pick(1, 3);
    if (g.deep) {
      w.kernel_d = pick(1, 3);
      w.stride_d = pick(1, 2);
      w.pad_front = pick(0, 1);
      w.dilation_d = pick(1, 2);
    }
    w.layout = pick(0, 1) == 1 ? pool_layout::channels_first : pool_layout::channels_last;
    g.x = {pick(1, 2), pick(1, 5), g.deep ? pick(1, 5) : 1, pick(1, 8), pick(1, 9), {}};
    if (pick(0, 9) == 0) g.x.c = 300;
    if (pick(0, 9) == 0) g.x.w = 600;
    const auto out = [&](std::int64_t in, int kernel, int stride, int pad, int dilation) {
      const std::int64_t reach = in + 2 * pad - (kernel - 1) * dilation - 1;
      return reach < 0 ? std::int64_t{0} : reach / stride + 1;
    };
    g.y = {g.x.n,
           g.x.c,
           out(g.x.d, w.kernel_d, w.stride_d, w.pad_front, w.dilation_d),
           out(g.x.h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h),
           out(g.x.w, w.kernel_w, w.stride_w, w.pad_left, w.dilation_w),
           {}};
    if (g.y.count() == 0) continue;
    const auto every_window_has_a_cell = [&](std::int64_t in, std::int64_t windows, int kernel, int stride,
                                             int pad, int dilation) {
      for (std::int64_t o = 0; o < windows; ++o) {
        bool any = false;
        for (int k = 0; k < kernel; ++k) {
          const std::int64_t at = o * stride - pad + k * dilation;
          any = any || (at >= 0 && at < in);
        }
        if (!any) return false;
      }
      return true;
    };
    if (every_window_has_a_cell(g.x.d, g.y.d, w.kernel_d, w.stride_d, w.pad_front, w.dilation_d) &&
        every_window_has_a_cell(g.x.h, g.y.h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h) &&
        every_window_has_a_cell(g.x.w, g.y.w, w.kernel_w, w.stride_w, w.pad_left, w.dilation_w)) {
      return g;
    }
  }
}

/// Calls visit(cell, z, y, x) for the cells of a window that lie in x, in row-major order.
template <class Visit>
void for_each_cell(const geometry& g, std::int64_t oz, std::int64_t oy, std::int64_t ox, const Visit& visit) {
  const pool_window& w = g.window;
  for (int kz = 0; kz < w.kernel_d; ++kz)
    for (int ky = 0; ky < w.kernel_h; ++ky)
      for (int kx = 0; kx < w.kernel_w; ++kx) {
        const std::int64_t z = oz * w.stride_d - w.pad_front + kz * w.dilation_d;
        const std::int64_t y = oy * w.stride_h - w.pad_top + ky * w.dilation_h;
        const std::int64_t x = ox * w.stride_w - w.pad_left + kx * w.dilation_w;
        if (z < 0 || z >= g.x.d || y < 0 || y >= g.x.h || x < 0 || x >= g.x.w) continue;
        visit((kz * w.kernel_h + ky) * w.kernel_w + kx, z, y, x);
      }
}

struct expected_results {
  map y, dx;
  std::vector<std::int64_t> winners;  ///< in y's memory order
  std::vector<bool> passes;
};

expected_results define(geometry& g, map& dy, dtype type, bool relu, framework_rule rule) {
  const bool first = g.window.layout == pool_layout::channels_first;
  expected_results e{g.y, g.x, {}, {}};
  e.y.values.assign(static_cast<std::size_t>(g.y.count()), 0);
  e.dx.values.assign(static_cast<std::size_t>(g.x.count()), 0);
  e.winners.assign(e.y.values.size(), 0);
  e.passes.assign(e.y.values.size(), true);
  for (std::int64_t s = 0; s < g.y.n; ++s)
    for (std::int64_t c = 0; c < g.y.c; ++c)
      for (std::int64_t oz = 0; oz < g.y.d; ++oz)
        for (std::int64_t oy = 0; oy < g.y.h; ++oy)
          for (std::int64_t ox = 0; ox < g.y.w; ++ox) {
            std::int64_t winner = -1;
            float best = 0;
            float* target = nullptr;
            for_each_cell(g, oz, oy, ox,
                          [&](std::int64_t cell, std::int64_t z, std::int64_t y, std::int64_t x) {
                            float v = g.x.at(s, c, z, y, x);
                            if (relu && v <= 0) v = 0.0F;
                            const bool take =
                                winner < 0 || v > best || (rule == framework_rule::pytorch && std::isnan(v));
                            if (!take) return;
                            winner = cell;
                            best = v;
                            target = &e.dx.at(s, c, z, y, x);
                          });
            const auto p = static_cast<std::size_t>(position(g.y, first, s, c, oz, oy, ox));
            e.y.at(s, c, oz, oy, ox) = best;
            e.winners[p] = winner;
            const bool pass = !relu || (rule == framework_rule::pytorch ? !(best <= 0) : best > 0);
            e.passes[p] = pass;
            if (pass) *target += dy.at(s, c, oz, oy, ox);
          }
  static_cast<void>(type);
  return e;
}

/// Encoded bytes with their report, as large as the encoding needs at most.
struct stored {
  std::vector<std::uint8_t> memory;
  std::uint8_t* bytes;
  std::size_t count;
  encode_report report{};

  stored(const encoding& e, std::int64_t elements)
      : memory(encoded_bytes_bound(e, dtype::f32, elements) + 16), count(memory.size() - 16) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    bytes = memory.data() + (16 - address % 16) % 16;
  }
  encoded_view to() { return {bytes, count, nullptr, &report}; }
  const_encoded_view from() { return {bytes, count, nullptr, &report}; }
};

class pool_general : public ::testing::TestWithParam<dtype> {};
INSTANTIATE_TEST_SUITE_P(types, pool_general, ::testing::Values(dtype::f32, dtype::f16, dtype::bf16));

TEST_P(pool_general, as_defined) {
  const dtype type = GetParam();
  const char* wanted = std::getenv("STASH_RANDOM_TENSORS");
  const std::uint32_t geometries = wanted == nullptr ? 200 : static_cast<std::uint32_t>(std::atoi(wanted));
  for (std::uint32_t k = 0; k < geometries; ++k) {
    SCOPED_TRACE(k);
    std::mt19937 random(k);
    geometry g = random_geometry(random);
    const bool first = g.window.layout == pool_layout::channels_first;
    const bool relu = k % 2 == 1;
    const framework_rule rule = k % 4 < 2 ? framework_rule::tensorflow : framework_rule::pytorch;
    const auto value = [&] {
      const std::uint32_t r = static_cast<std::uint32_t>(random());
      if (r % 31 == 0) return std::numeric_limits<float>::quiet_NaN();
      if (r % 29 == 0) return -0.0F;
      return from_type(type,
                       to_type(type, static_cast<float>(static_cast<int>(r % 17) - 8) / 4));  // many ties
    };
    g.x.values.resize(static_cast<std::size_t>(g.x.count()));
    for (float& v : g.x.values)
      v = value();
    map dy = g.y;
    dy.values.resize(static_cast<std::size_t>(dy.count()));
    for (float& v : dy.values)
      v = from_type(type, to_type(type, static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 64));
    expected_results expected = define(g, dy, type, relu, rule);

    execution_context context;
    if (k % 3 == 0) context.parallel_for = three_cuts;
    const std::int64_t gap = k % 5 == 0 ? 3 : 0;
    stored_map x = store(g.x, type, first, g.deep, gap);
    stored_map y = store(expected.y, type, first, g.deep, gap);
    const std::vector<std::uint32_t> expected_y = take(y);
    std::fill(y.bytes.begin(), y.bytes.end(), std::uint8_t{0x77});
    stored_map dx = store(expected.dx, type, first, g.deep, gap);
    const std::vector<std::uint32_t> expected_dx = take(dx);
    stored_map gradient = store(dy, type, first, g.deep, 0);

    const auto cells = static_cast<std::uint16_t>(g.window.cells());
    const encoding index_form{.kind = encoding_kind::window_index, .window_cells = cells};
    const encoding code_form{.kind = encoding_kind::relu_pool, .window_cells = cells};
    const bool has_code = relu && cells <= 15;
    stored index(index_form, g.y.count()), code(has_code ? code_form : index_form, g.y.count());
    if (relu) {
      relu_max_pool_forward(x.view(), y.view(), g.window, has_code ? code.to() : encoded_view{}, index.to(),
                            rule, context);
    } else {
      max_pool_forward(x.view(), y.view(), g.window, index.to(), rule, context);
    }
    ASSERT_EQ(take(y), expected_y);
    for (std::size_t i = 0; i < expected.winners.size(); ++i) {
      const int bits = cells <= 4 ? 2 : cells <= 16 ? 4 : 8;
      const std::size_t bit = i * static_cast<std::size_t>(bits);
      const int got = index.bytes[bit / 8] >> (bit % 8) & ((1 << bits) - 1);
      ASSERT_EQ(got, expected.winners[i]) << i;
    }

    const auto expect_gradient = [&](const char* what, const auto& backward) {
      std::fill(dx.bytes.begin(), dx.bytes.end(), std::uint8_t{0x77});
      backward();
      const std::vector<std::uint32_t> got = take(dx);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected_dx[i]) << what << ' ' << i;
    };
    if (!relu) {
      expect_gradient(
          "index", [&] { max_pool_backward(gradient.view(), index.from(), dx.view(), g.window, context); });
      expect_gradient(
          "x", [&] { max_pool_backward(gradient.view(), x.view(), dx.view(), g.window, rule, context); });
    } else {
      if (has_code) {
        expect_gradient("code", [&] {
          relu_max_pool_backward(gradient.view(), code.from(), dx.view(), g.window, context);
        });
      }
      expect_gradient("index and y", [&] {
        relu_max_pool_backward(gradient.view(), index.from(), y.view(), dx.view(), g.window, rule, context);
      });
      expect_gradient("x", [&] {
        relu_max_pool_backward(gradient.view(), x.view(), dx.view(), g.window, rule, context);
      });
      const encoding bitmap = parse_encoding("bitmap");
      stored kept(bitmap, g.y.count());
      encode(bitmap, y.view(), kept.to(), {}, context);
      expect_gradient("index and stash", [&] {
        relu_max_pool_backward(gradient.view(), index.from(), bitmap, kept.from(), dx.view(), g.window, rule,
                               context);
      });
    }
    ASSERT_EQ(index.report.status | code.report.status, status_ok);
    // Any codes are safe; impossible ones are reported.
    std::memset(index.bytes, 0xff, index.count);
    if (!relu) {
      max_pool_backward(gradient.view(), index.from(), dx.view(), g.window, context);
      const bool all_ones_is_a_cell = cells == 4 || cells == 16;
      ASSERT_TRUE(all_ones_is_a_cell || index.report.status == status_corrupt);
    }
  }
}

TEST(pool_general_arguments, are_checked) {
  std::vector<float> memory(1024);
  const auto view = [&](const shape& dims) {
    return tensor_view{memory.data(), dtype::f32, memory_space::host, dims, 0};
  };
  const auto code = [&](const shape& x, const shape& y, const pool_window& w) {
    try {
      max_pool_forward(view(x), view(y), w, {}, framework_rule::tensorflow, {});
    } catch (const error& wrong) {
      return wrong.code();
    }
    return errc::ok;
  };
  pool_window first{.layout = pool_layout::channels_first};
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 2, 2}, first), errc::ok);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 3, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 2, 2, 1}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4}, {1, 2, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 2, 4, 4}, {1, 2, 3, 2}, first), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.kernel_d = 2}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.dilation_h = 0}), errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.dilation_h = 2}), errc::ok);
  EXPECT_EQ(code({1, 4, 4, 2}, {1, 2, 2, 2}, {.layout = static_cast<pool_layout>(7)}),
            errc::invalid_argument);
  EXPECT_EQ(code({1, 4, 4, 4, 2}, {1, 2, 2, 2, 2}, {.kernel_d = 2, .stride_d = 2}), errc::ok);
  EXPECT_EQ(
      code({1, 4, 4, 4, 2}, {1, 2, 2, 2, 2}, {.kernel_h = 17, .kernel_w = 16, .kernel_d = 2, .stride_d = 2}),
      errc::unsupported);
  // A dilated window may step over a narrow map altogether.
  EXPECT_EQ(code({1, 1, 4, 2}, {1, 1, 2, 2}, {.pad_top = 1, .dilation_h = 3}), errc::invalid_argument);
}

}  // namespace
}  // namespace stash
