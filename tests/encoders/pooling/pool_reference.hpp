// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A naive second implementation of ReLU and max pooling, one value at a time, and what the pooling tests
/// share. Nothing here comes from the library but its public types.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "encoders/encoded.hpp"
#include "stash/error.hpp"
#include "stash/pool.hpp"

namespace stash::test {

/// A tensor with its memory, which ends with the last element. Gaps between pixels hold a pattern, so that
/// writes into them are found.
class tensor {
 public:
  tensor(const shape& dims, std::int64_t gap = 0)
      : dims_(dims),
        pitch_(std::max<std::int64_t>(1, dims.inner() + gap)),
        memory_(size(dims, gap), gap_value) {}

  std::int64_t elements() const { return dims_.elements(); }
  float& operator[](std::int64_t i) { return memory_[index(i)]; }
  float operator[](std::int64_t i) const { return memory_[index(i)]; }

  tensor_view view() { return {memory_.data(), dtype::f32, memory_space::host, dims_, pitch_}; }
  const_tensor_view view() const { return {memory_.data(), dtype::f32, memory_space::host, dims_, pitch_}; }
  const shape& dims() const { return dims_; }

  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (std::int64_t i = 0; i < elements(); ++i)
      all.push_back(std::bit_cast<std::uint32_t>((*this)[i]));
    return all;
  }
  bool gaps_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (static_cast<std::int64_t>(i) % pitch_ >= dims_.inner() && memory_[i] != gap_value) return false;
    }
    return true;
  }

 private:
  static constexpr float gap_value = 12345.0F;
  static std::size_t size(const shape& dims, std::int64_t gap) {
    return dims.elements() == 0
               ? 1
               : static_cast<std::size_t>(dims.elements() / dims.inner() * (dims.inner() + gap) - gap);
  }
  std::size_t index(std::int64_t i) const {
    return static_cast<std::size_t>(i / dims_.inner() * pitch_ + i % dims_.inner());
  }

  shape dims_;
  std::int64_t pitch_;
  std::vector<float> memory_;
};

/// A context whose loop runs on three threads over chunks of odd sizes, last chunk first.
inline execution_context threads() {
  execution_context context;
  context.parallel_for = [](void*, std::int64_t count, std::int64_t, range_function body, void* state) {
    struct chunk {
      std::int64_t begin, end;
    };
    std::vector<chunk> chunks;
    for (std::int64_t begin = 0, size = 1; begin < count; size = size % 7 + 2) {
      chunks.push_back({begin, std::min(count, begin + size)});
      begin = chunks.back().end;
    }
    std::vector<std::thread> team;
    for (std::size_t t = 0; t < 3; ++t) {
      team.emplace_back([&, t] {
        for (std::size_t p = chunks.size() - std::min(chunks.size(), t); p > 0;
             p -= std::min<std::size_t>(p, 3)) {
          body(state, chunks[p - 1].begin, chunks[p - 1].end);
        }
      });
    }
    for (std::thread& member : team)
      member.join();
  };
  return context;
}

struct layer {
  std::int64_t samples, height, width, channels;
  pool_window window;
  std::int64_t out_height = 0, out_width = 0;

  /// With as many windows as hold at least one tap (`all`) or as hold no tap below or right of x.
  layer& fit(bool all) {
    const auto outputs = [all](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
      const std::int64_t last = all ? in - 1 + pad : in + pad - kernel;
      return last < 0 ? std::int64_t{1} : last / stride + 1;
    };
    out_height = outputs(height, window.kernel_h, window.stride_h, window.pad_top);
    out_width = outputs(width, window.kernel_w, window.stride_w, window.pad_left);
    return *this;
  }
  shape x() const { return {samples, height, width, channels}; }
  shape y() const { return {samples, out_height, out_width, channels}; }
  std::int64_t pooled() const { return samples * out_height * out_width * channels; }
};

inline std::int64_t at(const shape& s, std::int64_t n, std::int64_t i, std::int64_t j, std::int64_t c) {
  return ((n * s[1] + i) * s[2] + j) * s[3] + c;
}

inline bool gradient_passes(float y, framework_rule rule) {
  return rule == framework_rule::tensorflow ? y > 0 : !(y <= 0);
}

inline void reference_relu(const tensor& x, tensor& y) {
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    y[i] = x[i] > 0 ? x[i] : std::isnan(x[i]) ? x[i] : 0.0F;
  }
}

inline void reference_relu_backward(const tensor& dy, const tensor& y, tensor& dx, framework_rule rule) {
  for (std::int64_t i = 0; i < y.elements(); ++i)
    dx[i] = gradient_passes(y[i], rule) ? dy[i] : 0.0F;
}

/// Calls visit(pooled element, n, oy, ox, c) in row-major order of the windows.
template <class Visit>
void each_window(const layer& l, const Visit& visit) {
  for (std::int64_t n = 0; n < l.samples; ++n) {
    for (std::int64_t oy = 0; oy < l.out_height; ++oy) {
      for (std::int64_t ox = 0; ox < l.out_width; ++ox) {
        for (std::int64_t c = 0; c < l.channels; ++c)
          visit(at(l.y(), n, oy, ox, c), n, oy, ox, c);
      }
    }
  }
}

inline std::vector<int> reference_pool(const layer& l, const tensor& x, tensor& y, framework_rule rule) {
  const pool_window& w = l.window;
  std::vector<int> taps(static_cast<std::size_t>(l.pooled()), -1);
  each_window(l, [&](std::int64_t i, std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t c) {
    int& argmax = taps[static_cast<std::size_t>(i)];
    float best = 0;
    for (int tap = 0; tap < w.taps(); ++tap) {
      const std::int64_t iy = oy * w.stride_h - w.pad_top + tap / w.kernel_w;
      const std::int64_t ix = ox * w.stride_w - w.pad_left + tap % w.kernel_w;
      if (iy < 0 || iy >= l.height || ix < 0 || ix >= l.width) continue;
      const float value = x[at(l.x(), n, iy, ix, c)];
      const bool nan_replaces = rule == framework_rule::pytorch && std::isnan(value);
      if (argmax < 0 || value > best || nan_replaces) {
        argmax = tap;
        best = value;
      }
    }
    y[i] = best;
  });
  return taps;
}

/// A tap below 0 sends its gradient nowhere.
inline void reference_pool_backward(const layer& l, const tensor& dy, const std::vector<int>& taps,
                                    tensor& dx) {
  const pool_window& w = l.window;
  for (std::int64_t i = 0; i < dx.elements(); ++i)
    dx[i] = 0.0F;
  each_window(l, [&](std::int64_t i, std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t c) {
    const int tap = taps[static_cast<std::size_t>(i)];
    if (tap < 0) return;
    const std::int64_t iy = oy * w.stride_h - w.pad_top + tap / w.kernel_w;
    const std::int64_t ix = ox * w.stride_w - w.pad_left + tap % w.kernel_w;
    dx[at(l.x(), n, iy, ix, c)] += dy[i];
  });
}

// --- planes, as docs/format.md describes them ------------------------------------------------------------

inline std::vector<std::uint8_t> reference_plane(const std::vector<int>& codes, std::size_t bits) {
  std::vector<std::uint8_t> plane((codes.size() * bits + 127) / 128 * 16, 0);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t bit = i * bits;
    plane[bit / 8] = static_cast<std::uint8_t>(plane[bit / 8] | codes[i] << (bit % 8));
  }
  return plane;
}

inline std::size_t index_bits(const layer& l) {
  return l.window.taps() <= 4 ? 2 : l.window.taps() <= 16 ? 4 : 8;
}

inline std::vector<std::uint8_t> reference_index(const layer& l, const std::vector<int>& taps) {
  return reference_plane(taps, index_bits(l));
}

/// relu_pool from the argmaxes and the pooled values.
inline std::vector<std::uint8_t> reference_code(const layer& l, std::vector<int> taps, const tensor& y,
                                                framework_rule rule) {
  const bool two_planes = l.window.taps() <= 4;
  std::vector<int> signs;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    const bool passes = gradient_passes(y[static_cast<std::int64_t>(i)], rule);
    signs.push_back(passes ? 1 : 0);
    if (!passes) taps[i] = two_planes ? 0 : 15;
  }
  std::vector<std::uint8_t> code = reference_plane(taps, two_planes ? 2 : 4);
  if (two_planes) {
    const std::vector<std::uint8_t> plane = reference_plane(signs, 1);
    code.insert(code.end(), plane.begin(), plane.end());
  }
  return code;
}

// --- values ----------------------------------------------------------------------------------------------

/// Continuous values: ties are unlikely, sums depend on their order.
inline void fill_uniform(tensor& t, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1.0F, 1.0F);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t[i] = values(generator);
}

/// Mostly ties, zeros of both signs, NaN of both signs with payloads, infinities and denormals.
inline void fill_special(tensor& t, std::uint32_t seed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {0.0F,
                          -0.0F,
                          1.0F,
                          -1.0F,
                          2.0F,
                          1e-42F,
                          -1e-42F,
                          3.0F,
                          infinity,
                          -infinity,
                          std::bit_cast<float>(0x7fc01234U),
                          std::bit_cast<float>(0xffc04321U)};
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::size_t> pick(0, std::size(values) - 1);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t[i] = values[pick(generator)];
}

/// The tensor as a thread sees it that takes denormals for zeros.
inline tensor without_denormals(tensor t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    if (std::fpclassify(t[i]) == FP_SUBNORMAL) t[i] = std::copysign(0.0F, t[i]);
  }
  return t;
}

inline constexpr framework_rule rules[] = {framework_rule::tensorflow, framework_rule::pytorch};

template <class Call>
errc code_of(const Call& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

/// Calls visit(layer) for windows of all sizes, strides and paddings, square and not, on small maps.
template <class Visit>
void each_geometry(const Visit& visit) {
  for (int kernel_h = 1; kernel_h <= 5; ++kernel_h) {
    for (int kernel_w = 1; kernel_w <= 5; ++kernel_w) {
      for (int stride = 1; stride <= 5; ++stride) {
        for (int pad = 0; pad < std::max(kernel_h, kernel_w); ++pad) {
          const int other_stride = (stride + kernel_w) % 5 + 1;
          const pool_window window{kernel_h,
                                   kernel_w,
                                   stride,
                                   other_stride,
                                   std::min(pad, kernel_h - 1),
                                   std::min(pad, kernel_w - 1)};
          visit(layer{2, 7, 6, 3, window}.fit((kernel_h + stride + pad) % 2 == 0));
        }
        const pool_window square{kernel_h, kernel_w, stride, stride};
        visit(layer{1, 9, 5, 20, square}.fit(true));
        visit(layer{1, 5, 9, 17, square}.fit(false));
      }
    }
  }
}

/// Layers that cross the edges of vectors, bytes, groups and runs.
inline std::vector<layer> edge_layers() {
  std::vector<layer> layers;
  for (const std::int64_t channels : {1, 2, 3, 5, 31, 32, 33, 64, 255, 1023, 1024, 1025, 2050}) {
    for (const pool_window& window :
         {pool_window{2, 2, 2, 2}, pool_window{3, 3, 2, 2, 1, 1}, pool_window{4, 4, 3, 3},
          pool_window{17, 1, 5, 1}, pool_window{1, 17, 1, 5, 0, 3}}) {
      layers.push_back(layer{2, 19, 18, channels, window}.fit(channels % 2 == 1));
      if (channels > 64) layers.back() = layer{1, 6, 5, channels, window}.fit(window.taps() < 17);
    }
  }
  for (const std::int64_t width : {8, 31, 32, 33, 255, 256, 257}) {
    layers.push_back(layer{1, 6, 2 * width, 1, {2, 2, 2, 2}}.fit(false));
  }
  layers.push_back(layer{1, 20, 21, 33, {16, 16, 3, 3, 15, 15}}.fit(true));
  return layers;
}

}  // namespace stash::test
