// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A slow definition of pooling in every layout, rank and type: for every pooled value all taps, for every
/// gradient its one tap. Nothing here comes from the library but its public types.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "format/reference.hpp"
#include "stash/pool.hpp"

namespace stash::test {

/// A map as f32 values in the order (sample, channel, z, y, x), from which every layout is made.
struct map {
  std::int64_t n, c, d, h, w;
  std::vector<float> values;
  std::int64_t count() const { return n * c * d * h * w; }
  std::size_t index(std::int64_t s, std::int64_t ch, std::int64_t z, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>((((s * c + ch) * d + z) * h + y) * w + x);
  }
  float& at(std::int64_t s, std::int64_t ch, std::int64_t z, std::int64_t y, std::int64_t x) {
    return values[index(s, ch, z, y, x)];
  }
};

struct geometry {
  pool_window window;
  map x, y;
  bool deep = false;  ///< five dimensions
};

/// Gives y as many windows as fit with `pad_after` positions of padding after x; none if one has no tap in x.
inline bool fit(geometry& g, std::int64_t pad_after) {
  const pool_window& w = g.window;
  bool all = true;
  const auto windows = [&](std::int64_t in, int kernel, int stride, int pad, int dilation) {
    const std::int64_t reach = std::int64_t{kernel - 1} * dilation;
    const std::int64_t last_start = in + pad + std::min(pad_after, reach) - reach - 1;
    const std::int64_t count = last_start < 0 ? 0 : last_start / stride + 1;
    for (std::int64_t o = 0; o < count; ++o) {
      bool any = false;
      for (int k = 0; k < kernel; ++k) {
        const std::int64_t at = o * stride - pad + std::int64_t{k} * dilation;
        any = any || (at >= 0 && at < in);
      }
      all = all && any;
    }
    return count;
  };
  g.y = {g.x.n,
         g.x.c,
         windows(g.x.d, w.kernel_d, w.stride_d, w.pad_front, w.dilation_d),
         windows(g.x.h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h),
         windows(g.x.w, w.kernel_w, w.stride_w, w.pad_left, w.dilation_w),
         {}};
  return all && g.y.count() > 0;
}

/// Calls visit(tap, z, y, x) for the taps of a window that lie in x, in row-major order.
template <class Visit>
void for_each_tap(const geometry& g, std::int64_t oz, std::int64_t oy, std::int64_t ox, const Visit& visit) {
  const pool_window& w = g.window;
  for (int kz = 0; kz < w.kernel_d; ++kz)
    for (int ky = 0; ky < w.kernel_h; ++ky)
      for (int kx = 0; kx < w.kernel_w; ++kx) {
        const std::int64_t z = oz * w.stride_d - w.pad_front + std::int64_t{kz} * w.dilation_d;
        const std::int64_t y = oy * w.stride_h - w.pad_top + std::int64_t{ky} * w.dilation_h;
        const std::int64_t x = ox * w.stride_w - w.pad_left + std::int64_t{kx} * w.dilation_w;
        if (z < 0 || z >= g.x.d || y < 0 || y >= g.x.h || x < 0 || x >= g.x.w) continue;
        visit((kz * w.kernel_h + ky) * w.kernel_w + kx, z, y, x);
      }
}

/// Calls visit(sample, channel, oz, oy, ox) for all pooled values, a channel's windows in row-major order.
template <class Visit>
void for_each_window(const geometry& g, const Visit& visit) {
  for (std::int64_t s = 0; s < g.y.n; ++s)
    for (std::int64_t c = 0; c < g.y.c; ++c)
      for (std::int64_t oz = 0; oz < g.y.d; ++oz)
        for (std::int64_t oy = 0; oy < g.y.h; ++oy)
          for (std::int64_t ox = 0; ox < g.y.w; ++ox)
            visit(s, c, oz, oy, ox);
}

/// In the order of g.y.values.
struct argmaxes {
  std::vector<int> taps;
  std::vector<bool> passes;
};

inline bool positive_or_nan(float v, framework_rule rule) {
  return rule == framework_rule::pytorch ? !(v <= 0) : v > 0;
}

/// Fills y.
inline argmaxes define_forward(geometry& g, bool relu, framework_rule rule) {
  argmaxes result;
  g.y.values.assign(static_cast<std::size_t>(g.y.count()), 0);
  for_each_window(g, [&](std::int64_t s, std::int64_t c, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
    int argmax = -1;
    float best = 0;
    for_each_tap(g, oz, oy, ox, [&](int tap, std::int64_t z, std::int64_t y, std::int64_t x) {
      float v = g.x.at(s, c, z, y, x);
      if (relu && v <= 0) v = 0.0F;
      if (argmax < 0 || v > best || (rule == framework_rule::pytorch && std::isnan(v))) {
        argmax = tap;
        best = v;
      }
    });
    g.y.at(s, c, oz, oy, ox) = best;
    result.taps.push_back(argmax);
    result.passes.push_back(!relu || positive_or_nan(best, rule));
  });
  return result;
}

/// dx from any taps; `corrupt` tells whether one that counts is no tap of its window in x.
inline map define_backward(const geometry& g, map& dy, const argmaxes& by, bool& corrupt) {
  map dx = g.x;
  dx.values.assign(static_cast<std::size_t>(dx.count()), 0);
  corrupt = false;
  for_each_window(g, [&](std::int64_t s, std::int64_t c, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
    const std::size_t i = g.y.index(s, c, oz, oy, ox);
    if (!by.passes[i]) return;
    bool found = false;
    for_each_tap(g, oz, oy, ox, [&](int tap, std::int64_t z, std::int64_t y, std::int64_t x) {
      if (tap != by.taps[i]) return;
      found = true;
      dx.at(s, c, z, y, x) += dy.at(s, c, oz, oy, ox);
    });
    corrupt = corrupt || !found;
  });
  return dx;
}

// --- types and layouts -----------------------------------------------------------------------------------

inline value_format format_of(dtype type) {
  return type == dtype::f16 ? value_format::fp16 : value_format::bf16;
}
inline float widened(dtype type, std::uint32_t bits) {
  return std::bit_cast<float>(type == dtype::f32 ? bits : reference::widen(format_of(type), bits));
}
inline std::uint32_t rounded(dtype type, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return type == dtype::f32 ? bits : reference::narrow(format_of(type), underflow_rule::to_zero, bits);
}
/// Of a sum.
inline std::uint32_t rounded_result(dtype type, float value) {
  return reference::result_in_type(type, std::bit_cast<std::uint32_t>(value));
}
/// Of a value that came from the type; a NaN keeps its payload.
inline std::uint32_t exact(dtype type, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == dtype::f32 || !std::isnan(value)) return rounded(type, value);
  return type == dtype::bf16 ? bits >> 16 : (bits >> 16 & 0x8000U) | 0x7c00U | (bits >> 13 & 0x3ffU);
}

/// Position of an element in memory order without pitch.
inline std::int64_t position(const map& m, bool first, std::int64_t s, std::int64_t ch, std::int64_t z,
                             std::int64_t y, std::int64_t x) {
  return first ? (((s * m.c + ch) * m.d + z) * m.h + y) * m.w + x
               : (((s * m.d + z) * m.h + y) * m.w + x) * m.c + ch;
}

/// For all elements of `values` (any type, in the order of map.values), in memory order.
template <class T>
std::vector<T> in_memory_order(const map& m, const std::vector<T>& values, bool first) {
  std::vector<T> out(values.size());
  for (std::int64_t s = 0; s < m.n; ++s)
    for (std::int64_t ch = 0; ch < m.c; ++ch)
      for (std::int64_t z = 0; z < m.d; ++z)
        for (std::int64_t y = 0; y < m.h; ++y)
          for (std::int64_t x = 0; x < m.w; ++x)
            out[static_cast<std::size_t>(position(m, first, s, ch, z, y, x))] =
                values[m.index(s, ch, z, y, x)];
  return out;
}

inline std::vector<std::uint32_t> bits_in_memory_order(const map& m, dtype type, bool first,
                                                       std::uint32_t (*to_bits)(dtype, float)) {
  std::vector<std::uint32_t> bits;
  for (const float v : in_memory_order(m, m.values, first))
    bits.push_back(to_bits(type, v));
  return bits;
}

/// A tensor of any type in memory, every byte of it, gaps included, a pattern at first. It ends where its
/// last element ends, so that a sanitizer sees what lies past it.
class stored_map {
 public:
  stored_map(const map& m, dtype type, bool first, bool deep, std::int64_t gap) : type_(type) {
    if (first) {
      dims_ = deep ? shape{m.n, m.c, m.d, m.h, m.w} : shape{m.n, m.c, m.h, m.w};
    } else {
      dims_ = deep ? shape{m.n, m.d, m.h, m.w, m.c} : shape{m.n, m.h, m.w, m.c};
    }
    pitch_ = dims_.inner() + (first ? 0 : gap);
    bytes_.assign(
        static_cast<std::size_t>((m.count() / dims_.inner() - 1) * pitch_ + dims_.inner()) * size_of(type),
        pattern);
  }
  tensor_view view() { return {bytes_.data(), type_, memory_space::host, dims_, pitch_}; }

  void fill(const std::vector<std::uint32_t>& bits) {
    for (std::size_t i = 0; i < bits.size(); ++i)
      std::memcpy(bytes_.data() + offset(i), &bits[i], size_of(type_));
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all(static_cast<std::size_t>(dims_.elements()), 0);
    for (std::size_t i = 0; i < all.size(); ++i)
      std::memcpy(&all[i], bytes_.data() + offset(i), size_of(type_));
    return all;
  }
  void forget() { bytes_.assign(bytes_.size(), pattern); }
  bool gaps_intact() const {
    const auto width = static_cast<std::int64_t>(size_of(type_));
    for (std::size_t b = 0; b < bytes_.size(); ++b) {
      if (static_cast<std::int64_t>(b) / width % pitch_ >= dims_.inner() && bytes_[b] != pattern)
        return false;
    }
    return true;
  }

 private:
  static constexpr std::uint8_t pattern = 0xcd;
  std::size_t offset(std::size_t i) const {
    const auto at = static_cast<std::int64_t>(i);
    return static_cast<std::size_t>(at / dims_.inner() * pitch_ + at % dims_.inner()) * size_of(type_);
  }
  dtype type_;
  shape dims_;
  std::int64_t pitch_ = 0;
  std::vector<std::uint8_t> bytes_;
};

// --- random cases ----------------------------------------------------------------------------------------

inline int pick(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

inline geometry random_geometry(std::mt19937& random) {
  const auto any = [&](int low, int high) { return pick(random, low, high); };
  for (;;) {
    geometry g;
    g.deep = any(0, 1) == 1;
    pool_window& w = g.window;
    w = {any(1, 3), any(1, 4), any(1, 3), any(1, 3), any(0, 2), any(0, 2)};
    w.dilation_h = any(1, 2);
    w.dilation_w = any(1, 3);
    if (g.deep) {
      w.kernel_d = any(1, 3);
      w.stride_d = any(1, 2);
      w.pad_front = any(0, 1);
      w.dilation_d = any(1, 2);
    }
    w.layout = any(0, 1) == 1 ? pool_layout::channels_first : pool_layout::channels_last;
    g.x = {any(1, 2), any(1, 5), g.deep ? any(1, 5) : 1, any(1, 8), any(1, 9), {}};
    switch (any(0, 19)) {
      case 0:
        g.x.c = any(30, 40);
        break;
      case 1:
        g.x.n = 1, g.x.c = any(250, 300), g.x.h = any(1, 3), g.x.w = any(1, 3);
        break;
      case 2:
        g.x.n = 1, g.x.c = any(1, 2), g.x.h = any(1, 3), g.x.w = any(250, 600);
        break;
      case 3:
        w.stride_w = any(60, 70), g.x.w = any(1, 150);
        break;
      case 4:
        w.kernel_h = any(3, 12), w.kernel_w = any(3, 21), w.kernel_d = 1, g.x.h = any(2, 14);
        break;
      case 5:
        w.dilation_h = any(3, 9), w.pad_top = any(0, 9), w.dilation_w = any(3, 9), w.pad_left = any(0, 9);
        break;
      default:
        break;
    }
    if (fit(g, any(0, 2))) return g;
  }
}

/// How many random layers are tried for each type: STASH_RANDOM_TENSORS, or as many as are usual.
inline int random_layers(int usual) {
  const char* setting = std::getenv("STASH_RANDOM_TENSORS");
  return setting == nullptr ? usual : std::atoi(setting);
}

inline std::string describe(const geometry& g) {
  const pool_window& w = g.window;
  std::ostringstream text;
  text << (w.layout == pool_layout::channels_first ? "NCHW" : "NHWC") << " kernel " << w.kernel_d << 'x'
       << w.kernel_h << 'x' << w.kernel_w << " stride " << w.stride_d << ',' << w.stride_h << ','
       << w.stride_w << " pad " << w.pad_front << ',' << w.pad_top << ',' << w.pad_left << " dilation "
       << w.dilation_d << ',' << w.dilation_h << ',' << w.dilation_w << " map " << g.x.n << 'x' << g.x.c
       << 'x' << g.x.d << 'x' << g.x.h << 'x' << g.x.w;
  return text.str();
}

/// Few different values, so that maxima are often equal, and all kinds of special ones.
inline float random_value(std::mt19937& random, dtype type) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const int which = pick(random, 0, 39);
  if (which == 0) return infinity;
  if (which == 1) return -infinity;
  if (which == 2) return -0.0F;
  if (which == 3) return widened(type, type == dtype::f32 ? 0x7fc01234U : 0x7fc5U);
  if (which == 4) return widened(type, type == dtype::f32 ? 0xffd04321U : 0xffd7U);
  if (which == 5) return widened(type, 1);
  if (which == 6) return -widened(type, 3);
  return static_cast<float>(pick(random, -8, 8)) / 4;
}

/// Sums of these depend on their order. All NaN have the same bits, because which one a sum of two has is up
/// to the processor.
inline float random_gradient(std::mt19937& random, dtype type) {
  const int which = pick(random, 0, 99);
  if (which == 0) return std::numeric_limits<float>::infinity();
  if (which == 1)
    return widened(type, type == dtype::f32 ? 0x7fc01234U : type == dtype::f16 ? 0x7e05U : 0x7fc5U);
  if (which == 2) return -0.0F;
  if (which == 3) return widened(type, 1);
  if (which == 4) return type == dtype::f16 ? 65504.0F : 0x1p127F;
  const float value = std::ldexp(static_cast<float>(pick(random, -1000, 1000)), pick(random, -9, 3));
  return widened(type, rounded(type, value));
}

inline void fill_values(map& m, dtype type, std::mt19937& random, float (*value)(std::mt19937&, dtype)) {
  m.values.resize(static_cast<std::size_t>(m.count()));
  for (float& v : m.values)
    v = value(random, type);
}

}  // namespace stash::test
