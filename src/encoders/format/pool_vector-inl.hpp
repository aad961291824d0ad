// SPDX-License-Identifier: Apache-2.0
// The inner loops of max pooling: windows in a row, a run of channels of each. Written with the vector
// types of g++ and clang, because the winning values and taps must stay in registers while the taps of a
// window pass by, which their loop vectorisers do not achieve.
//
// Included once per instruction set, so it has no guard. The includer defines STASH_LOOPS_NAMESPACE, a name
// of its own inside stash::encoders; STASH_LOOPS_LANES, the floats of a vector (4, 8 or 16);
// STASH_LOOPS_ATTR, what lambdas need to be compiled for that instruction set; and store_past_caches(p, v),
// which writes a vector of floats to an address that is aligned to it.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "encoders/format/run_loops.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {
namespace STASH_LOOPS_NAMESPACE {
namespace {

using four_floats = float __attribute__((vector_size(16)));
using four_ints = std::int32_t __attribute__((vector_size(16)));
using float_lanes = float __attribute__((vector_size(4 * STASH_LOOPS_LANES)));
using int_lanes = std::int32_t __attribute__((vector_size(4 * STASH_LOOPS_LANES)));

// Per lane, for vectors and scalars alike.
template <class V>
auto is_nan(const V& value) noexcept {
  return value != value;  // NOLINT(misc-redundant-expression): true for NaN alone
}

// The scalar type goes through the same templates, for what is left of a channel run.
template <class V>
struct lanes_of {
  static constexpr std::size_t count =
      sizeof(V) / sizeof(float);  // NOLINT(bugprone-sizeof-expression): 1 for float
  using ints = std::conditional_t<count == 1, std::int32_t,
                                  std::conditional_t<sizeof(V) == sizeof(float_lanes), int_lanes, four_ints>>;
};

/// Covers `channels` channels by calls body.template operator()<V, Blocks>(first channel): four vectors at
/// once, then one vector, then four channels, then single ones.
template <class Body>
inline void in_blocks(std::int64_t channels, const Body& body) noexcept {
  constexpr auto lanes = static_cast<std::int64_t>(lanes_of<float_lanes>::count);
  std::int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes)
    body.template operator()<float_lanes, 4>(c);
  for (; c + lanes <= channels; c += lanes)
    body.template operator()<float_lanes, 1>(c);
  for (; c + 4 <= channels; c += 4)
    body.template operator()<four_floats, 1>(c);
  for (; c < channels; ++c)
    body.template operator()<float, 1>(c);
}

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

/// The same, past the caches if asked, which the address has to be aligned for.
template <class V>
inline void store_lanes(float* p, V v, bool past) noexcept {
  if (past) {
    store_past_caches(p, v);
  } else {
    store_lanes(p, v);
  }
}

/// True if an address and these steps of elements are made of whole vectors.
inline bool are_aligned(const float* p, std::initializer_list<std::int64_t> steps) noexcept {
  constexpr auto lanes = static_cast<std::int64_t>(lanes_of<float_lanes>::count);
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(float_lanes) == 0 &&
         std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step % lanes == 0; });
}

/// Fetches what a later window will read or write, `distance` elements after a tap: the processor's own
/// prefetchers stop at the end of a page. Past the end of the tensor nothing happens.
template <std::size_t Floats>
inline void fetch_later_window(const float* tap, std::ptrdiff_t distance) noexcept {
  constexpr std::size_t line = 64 / sizeof(float);
  for (std::size_t i = 0; i < Floats; i += line)
    fetch_line(tap + distance + i);
}

/// The maximum over a window with what it has to give fixed at compile time.
template <framework_rule Rule, bool Relu, argmax_bytes Argmax>
struct max_kernel {
  static constexpr bool wants_argmax = Argmax != argmax_bytes::none;

  /// What max_function says.
  static void run(const float* x, const window_taps& w, const window_row& row, std::int64_t channels,
                  float* y, std::uint8_t* taps, destination to) {
    // Narrowed by a loop of its own, which compilers vectorise, unlike the end of an unrolled block.
    alignas(run_alignment) std::int32_t argmaxes[run_elements];
    const bool past = to == destination::memory && are_aligned(y, {channels, row.y_step});
    for (std::int64_t i = 0; i < row.windows; ++i, x += row.x_step, y += row.y_step) {
      std::int32_t* const found = argmaxes + i * channels;
      in_blocks(channels, [&]<class V, std::size_t Blocks>(std::int64_t c)
                              STASH_LOOPS_ATTR { block<V, Blocks>(x + c, w, row, y + c, found + c, past); });
    }
    if constexpr (wants_argmax) store_bytes(argmaxes, row.windows * channels, taps);
  }

 private:
  static void store_bytes(const std::int32_t* __restrict from, std::int64_t count,
                          std::uint8_t* __restrict to) noexcept {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::uint8_t>(from[i]);
  }

  /// `run` for Blocks vectors of channels.
  ///
  /// The ReLU is applied to the maximum, not to every tap. That is the same: as long as the maximum so far
  /// is not positive, the ReLU makes it and every smaller value +0, so that the first tap stays the argmax;
  /// a candidate that is positive or NaN replaces the maximum with or without ReLU.
  template <class V, std::size_t Blocks>
  static void block(const float* x, window_taps w, const window_row& row, float* y, std::int32_t* argmaxes,
                    bool past) noexcept {
    using ints = typename lanes_of<V>::ints;
    constexpr std::size_t lanes = lanes_of<V>::count;
    const ints first = ints{} + static_cast<std::int32_t>(w.y_begin * w.kernel_w + w.x_begin);
    V best[Blocks];
    ints argmax[Blocks];
    for (std::size_t b = 0; b < Blocks; ++b) {
      best[b] = load_lanes<V>(x + b * lanes);
      argmax[b] = first;
    }
    for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, x += w.row_pitch) {
      const float* p = x;
      // The first tap of all meets itself, which changes nothing.
      for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
        const ints tap = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
        if (row.visits.contain(ky, kx)) fetch_later_window<Blocks * lanes>(p, row.fetch_distance);
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V candidate = load_lanes<V>(p + b * lanes);
          if constexpr (Rule == framework_rule::pytorch) {
            const auto take = (candidate > best[b]) | is_nan(candidate);
            if constexpr (wants_argmax) argmax[b] = take ? tap : argmax[b];
            best[b] = take ? candidate : best[b];
          } else {
            // Compilers see a maximum instruction in this; an argmax has other bits than what it replaces.
            const V next = candidate > best[b] ? candidate : best[b];
            if constexpr (wants_argmax) argmax[b] = bits_of(next) == bits_of(best[b]) ? argmax[b] : tap;
            best[b] = next;
          }
        }
      }
    }
    // Unrolled by hand: as a loop it would keep both arrays in memory.
    const auto finish = [&](std::size_t b) STASH_LOOPS_ATTR {
      if constexpr (Relu) {
        const ints positive = bits_of(best[b]) > ints{};
        const ints nan = is_nan(best[b]);
        const ints kept = positive | nan;
        best[b] = kept ? best[b] : V{};
        if constexpr (Argmax == argmax_bytes::codes) {
          const ints passes = Rule == framework_rule::pytorch ? kept : positive & ~nan;
          argmax[b] = passes ? argmax[b] : ints{} + no_gradient_code;
        } else {
          argmax[b] = kept ? argmax[b] : first;
        }
      }
      store_lanes(y + b * lanes, best[b], past);
      if constexpr (wants_argmax) std::memcpy(argmaxes + b * lanes, &argmax[b], sizeof(ints));
    };
    [&]<std::size_t... B>(std::index_sequence<B...>) STASH_LOOPS_ATTR {
      (finish(B), ...);
    }
    (std::make_index_sequence<Blocks>());
  }

  template <class V>
  static typename lanes_of<V>::ints bits_of(V v) noexcept {
    typename lanes_of<V>::ints bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
  }
};

/// Adds gradient[c] to the tap that taps[c] names and +0 to the other taps of the window. Sums start as
/// +0 + gradient, so they are never -0 and adding +0 leaves their bits alone. `dx` points to the first tap
/// in x.
template <class V, std::size_t Blocks>
inline void scatter_block(const float* gradient, const std::int32_t* argmaxes, window_taps w,
                          const window_row& row, float* dx, bool past) noexcept {
  using ints = typename lanes_of<V>::ints;
  constexpr std::size_t lanes = lanes_of<V>::count;
  V value[Blocks];
  ints argmax[Blocks];
  for (std::size_t b = 0; b < Blocks; ++b) {
    value[b] = V{} + load_lanes<V>(gradient + b * lanes);
    std::memcpy(&argmax[b], argmaxes + b * lanes, sizeof(ints));
  }
  for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, dx += w.row_pitch) {
    float* p = dx;
    for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
      const ints tap = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
      if (row.visits.contain(ky, kx)) {
        if (!past) fetch_later_window<Blocks * lanes>(p, row.fetch_distance);
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V passed = argmax[b] == tap ? value[b] : V{};
          store_lanes(p + b * lanes, passed, past);
        }
      } else {
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V sum = load_lanes<V>(p + b * lanes);
          store_lanes(p + b * lanes, sum + (argmax[b] == tap ? value[b] : V{}));
        }
      }
    }
  }
}

void scatter_run(const float* gradient, const std::uint8_t* taps, std::int64_t channels, const window_taps& w,
                 const window_row& row, float* dx, destination to) {
  alignas(run_alignment) std::int32_t argmaxes[run_elements];
  for (std::int64_t i = 0; i < row.windows * channels; ++i)
    argmaxes[i] = taps[i];
  const bool past =
      to == destination::memory && are_aligned(dx, {channels, row.x_step, w.row_pitch, w.pixel_pitch});
  for (std::int64_t i = 0; i < row.windows; ++i, gradient += row.y_step, dx += row.x_step) {
    const std::int32_t* const found = argmaxes + i * channels;
    in_blocks(channels, [&]<class V, std::size_t Blocks>(std::int64_t c) STASH_LOOPS_ATTR {
      scatter_block<V, Blocks>(gradient + c, found + c, w, row, dx + c, past);
    });
  }
}

#if STASH_LOOPS_LANES >= 8

void list_taps(const std::uint8_t* __restrict taps, std::int64_t count, float* __restrict listed) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    listed[i] = std::bit_cast<float>(taps[i] + 1);
}

/// `Blocks` vectors of the pixel of dx that windows [begin, end) reach, whose gradients and taps lie so many
/// elements after their positions.
template <class V, std::size_t Blocks>
[[gnu::always_inline]] inline void gather_block(const reaching_window* begin, const reaching_window* end,
                                                std::int64_t gradients, std::int64_t taps, float* dx,
                                                bool past) noexcept {
  using ints = typename lanes_of<V>::ints;
  constexpr std::size_t lanes = lanes_of<V>::count;
  V sum[Blocks] = {};
  for (const reaching_window* w = begin; w != end; ++w) {
    const ints tap = ints{} + w->tap;
    const float* const gradient = w->gradient + gradients;
    const float* const argmaxes = w->taps + taps;
    for (std::size_t b = 0; b < Blocks; ++b) {
      ints argmax;
      std::memcpy(&argmax, argmaxes + b * lanes, sizeof argmax);
      // No sum is -0, so that adding +0 leaves its bits alone.
      sum[b] += argmax == tap ? load_lanes<V>(gradient + b * lanes) : V{};
    }
  }
  // Unrolled by hand: as a loop it would keep the sums in memory.
  [&]<std::size_t... B>(std::index_sequence<B...>) STASH_LOOPS_ATTR {
    (store_lanes(dx + B * lanes, sum[B], past), ...);
  }
  (std::make_index_sequence<Blocks>());
}

/// The channels after those that fill blocks of four vectors.
[[gnu::noinline]] void gather_rest(const reaching_window* begin, const reaching_window* end,
                                   std::int64_t gradients, std::int64_t taps, std::int64_t channels,
                                   float* dx, bool past) noexcept {
  in_blocks(channels, [&]<class V, std::size_t Blocks>(std::int64_t c) STASH_LOOPS_ATTR {
    if constexpr (Blocks == 1) gather_block<V, 1>(begin, end, gradients + c, taps + c, dx + c, past);
  });
}

template <bool Past>
void gather_pixels(const gathered_pixels& g, std::int64_t channels, float* dx) noexcept {
  constexpr auto block = static_cast<std::int64_t>(4 * lanes_of<float_lanes>::count);
  const std::int64_t phases = g.phases, pixel_pitch = g.pixel_pitch;
  const std::int64_t* const counts = g.counts;
  constexpr std::int64_t line = 64 / sizeof(float);
  const std::int64_t whole = channels / block * block;
  std::int64_t gradients = 0, taps = 0;
  for (std::int64_t i = 0; i < g.steps; ++i) {
    const reaching_window* begin = g.windows;
    float* pixel = dx;
    // Between stores past the caches, which leave the miss buffers of the first-level cache free. All of a
    // row at once would have to wait for the stores of the row before.
    for (std::int64_t c = 0; c < channels; c += line)
      __builtin_prefetch(g.fetched + gradients + c);
    for (std::int64_t p = 0; p < phases; ++p) {
      const reaching_window* const end = begin + counts[p];
      for (std::int64_t c = 0; c < whole; c += block)
        gather_block<float_lanes, 4>(begin, end, gradients + c, taps + c, pixel + c, Past);
      if (whole < channels)
        gather_rest(begin, end, gradients + whole, taps + whole, channels - whole, pixel + whole, Past);
      begin = end;
      pixel += pixel_pitch;
    }
    gradients += g.gradient_step;
    taps += g.taps_step;
    dx += g.step_pitch;
  }
}

void gather_run(const gathered_pixels& pixels, std::int64_t channels, float* dx, destination to) {
  if (to == destination::memory && are_aligned(dx, {channels, pixels.pixel_pitch, pixels.step_pitch})) {
    gather_pixels<true>(pixels, channels, dx);
  } else {
    gather_pixels<false>(pixels, channels, dx);
  }
}

#endif

}  // namespace
}  // namespace STASH_LOOPS_NAMESPACE
}  // namespace stash::encoders
