#pragma once
/// \file
/// The inner loops of max pooling: one window, a run of channels. Written with the vector types of g++ and
/// clang, because the winning values and cells must stay in registers while the cells of a window pass by,
/// which their loop vectorisers do not achieve.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stash/encoding.hpp"

namespace stash::detail {

#ifdef __AVX2__
inline constexpr std::size_t pool_lanes = 8;
#else
inline constexpr std::size_t pool_lanes = 4;
#endif
using float_lanes = float __attribute__((vector_size(pool_lanes * 4)));
using int_lanes = std::int32_t __attribute__((vector_size(pool_lanes * 4)));

/// Channels handled at once: several vectors, then one vector, then single ones.
inline constexpr std::int64_t wide_run = 16;
inline constexpr std::int64_t narrow_run = static_cast<std::int64_t>(pool_lanes);

/// The cells [y_begin, y_end) x [x_begin, x_end) of a window that lie in x, and how x lies in memory.
struct window_cells {
  std::int64_t y_begin, y_end, x_begin, x_end;
  std::int64_t kernel_w;
  std::ptrdiff_t row_pitch, pixel_pitch;  ///< in elements
};

// The scalar type goes through the same templates, for what is left of a channel run.
template <class V>
struct lanes_of {
  static constexpr std::size_t count = pool_lanes;
  using ints = int_lanes;
};
template <>
struct lanes_of<float> {
  static constexpr std::size_t count = 1;
  using ints = std::int32_t;
};

template <class V, class T>
inline V load_lanes(const T* p) noexcept {
  static_assert(sizeof(V) == lanes_of<V>::count * sizeof(T));
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
inline void store_lanes(float* p, V v) noexcept {
  std::memcpy(p, &v, sizeof v);
}

/// x > 0 ? x : NaN stays : +0.
template <class V>
inline V relu_lanes(V v) noexcept {
  return v <= V{} ? V{} : v;
}

/// What of max_over_window() is wanted at compile time.
template <framework_rule Rule, bool Relu, bool Cells>
struct max_kernel {
  /// y[c] = maximum (of the ReLU) over the window for Blocks vectors of channels, cells[c] = its cell.
  /// `x` points to the first cell that lies in x.
  template <class V, std::size_t Blocks>
  static void block(const float* x, const window_cells& w, float* y, std::uint8_t* cells) noexcept {
    using ints = typename lanes_of<V>::ints;
    constexpr std::size_t lanes = lanes_of<V>::count;
    V best[Blocks];
    ints winner[Blocks];
    for (std::size_t b = 0; b < Blocks; ++b) {
      best[b] = value<V>(x + b * lanes);
      winner[b] = ints{} + static_cast<std::int32_t>(w.y_begin * w.kernel_w + w.x_begin);
    }
    for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, x += w.row_pitch) {
      const float* p = x;
      // The first cell of all meets itself, which changes nothing.
      for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
        const ints cell = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V candidate = value<V>(p + b * lanes);
          if constexpr (Rule == framework_rule::tensorflow) {
            if constexpr (Cells) winner[b] = candidate > best[b] ? cell : winner[b];
            best[b] = candidate > best[b] ? candidate : best[b];
          } else {
            const auto take = (candidate > best[b]) | (candidate != candidate);
            if constexpr (Cells) winner[b] = take ? cell : winner[b];
            best[b] = take ? candidate : best[b];
          }
        }
      }
    }
    for (std::size_t b = 0; b < Blocks; ++b)
      store_lanes(y + b * lanes, best[b]);
    if constexpr (Cells) {
      std::int32_t wide[Blocks * lanes];
      std::memcpy(wide, winner, sizeof wide);
      for (std::size_t l = 0; l < Blocks * lanes; ++l)
        cells[l] = static_cast<std::uint8_t>(wide[l]);
    }
  }

  static void run(const float* x, const window_cells& w, std::int64_t channels, float* y,
                  std::uint8_t* cells) noexcept {
    std::int64_t c = 0;
    for (; c + wide_run <= channels; c += wide_run)
      block<float_lanes, wide_run / pool_lanes>(x + c, w, y + c, cells + c);
    for (; c + narrow_run <= channels; c += narrow_run)
      block<float_lanes, 1>(x + c, w, y + c, cells + c);
    for (; c < channels; ++c)
      block<float, 1>(x + c, w, y + c, cells + c);
  }

 private:
  template <class V>
  static V value(const float* p) noexcept {
    const V v = load_lanes<V>(p);
    if constexpr (Relu) return relu_lanes(v);
    return v;
  }
};

/// Cells [y_store, ...) x [x_store, ...) of a window are visited for the first time and are written, the
/// others are added to.
struct first_visits {
  std::int64_t y_store, x_store;
};

/// Adds gradient[c] to the cell that cells[c] names and +0 to the other cells of the window: sums start at
/// +0, so they are never -0 and adding +0 leaves their bits alone. `dx` points to the first cell in x.
template <class V, std::size_t Blocks>
inline void scatter_block(const float* gradient, const std::uint8_t* cells, const window_cells& w,
                          const first_visits& visits, float* dx) noexcept {
  using ints = typename lanes_of<V>::ints;
  constexpr std::size_t lanes = lanes_of<V>::count;
  std::int32_t wide[Blocks * lanes];
  for (std::size_t l = 0; l < Blocks * lanes; ++l)
    wide[l] = cells[l];
  V value[Blocks];
  ints winner[Blocks];
  for (std::size_t b = 0; b < Blocks; ++b) {
    value[b] = load_lanes<V>(gradient + b * lanes);
    std::memcpy(&winner[b], wide + b * lanes, sizeof(ints));
  }
  for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, dx += w.row_pitch) {
    float* p = dx;
    for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
      const ints cell = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
      if (ky >= visits.y_store && kx >= visits.x_store) {
        for (std::size_t b = 0; b < Blocks; ++b) {
          store_lanes(p + b * lanes, V{} + (winner[b] == cell ? value[b] : V{}));
        }
      } else {
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V sum = load_lanes<V>(p + b * lanes);
          store_lanes(p + b * lanes, sum + (winner[b] == cell ? value[b] : V{}));
        }
      }
    }
  }
}

inline void scatter_run(const float* gradient, const std::uint8_t* cells, std::int64_t channels,
                        const window_cells& w, const first_visits& visits, float* dx) noexcept {
  std::int64_t c = 0;
  for (; c + wide_run <= channels; c += wide_run) {
    scatter_block<float_lanes, wide_run / pool_lanes>(gradient + c, cells + c, w, visits, dx + c);
  }
  for (; c + narrow_run <= channels; c += narrow_run) {
    scatter_block<float_lanes, 1>(gradient + c, cells + c, w, visits, dx + c);
  }
  for (; c < channels; ++c)
    scatter_block<float, 1>(gradient + c, cells + c, w, visits, dx + c);
}

}  // namespace stash::detail
