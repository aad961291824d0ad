// The inner loops of max pooling: one window, a run of channels. Written with the vector types of g++ and
// clang, because the winning values and cells must stay in registers while the cells of a window pass by,
// which their loop vectorisers do not achieve.
//
// Included once per instruction set, so it has no guard. The includer defines STASH_LOOPS_NAMESPACE, a name
// of its own inside stash::detail; STASH_LOOPS_LANES, the floats of a vector (4, 8 or 16); and
// STASH_LOOPS_ATTR, what lambdas need to be compiled for that instruction set.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "run_loops.hpp"
#include "stash/encoding.hpp"

namespace stash::detail {
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

/// Fetches what a later window will read or write: the processor's own prefetchers stop at the end of a page.
/// Windows go through several rows at once, so it takes twice as long until a window comes by there. Past the
/// end of the tensor nothing happens.
template <std::size_t Floats>
inline void fetch_later_window(const float* cell) noexcept {
  constexpr std::size_t distance = 2 * prefetch_distance / sizeof(float);
  constexpr std::size_t line = 64 / sizeof(float);
  for (std::size_t i = 0; i < Floats; i += line)
    fetch_line(cell + distance + i);
}

/// The maximum over a window with what is wanted of it fixed at compile time.
template <framework_rule Rule, bool Relu, winner_bytes Winner>
struct max_kernel {
  static constexpr bool wants_winner = Winner != winner_bytes::none;

  /// y[c] = maximum over the window, cells[c] = its cell. `x` points to the first cell that lies in x.
  static void run(const float* x, const window_cells& w, std::int64_t channels, float* y,
                  std::uint8_t* cells) {
    // Narrowed by a loop of its own, which compilers vectorise, unlike the end of an unrolled block.
    alignas(run_alignment) std::int32_t winners[run_elements];
    in_blocks(channels, [&]<class V, std::size_t Blocks>(std::int64_t c)
                            STASH_LOOPS_ATTR { block<V, Blocks>(x + c, w, y + c, winners + c); });
    if constexpr (wants_winner) store_bytes(winners, channels, cells);
  }

 private:
  static void store_bytes(const std::int32_t* __restrict from, std::int64_t count,
                          std::uint8_t* __restrict to) noexcept {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::uint8_t>(from[i]);
  }

  /// `run` for Blocks vectors of channels.
  ///
  /// The ReLU is applied to the maximum, not to every cell. That is the same: as long as the maximum so far
  /// is not positive, the ReLU makes it and every smaller value +0, so that the first cell stays the winner;
  /// a candidate that is positive or NaN replaces the maximum with or without ReLU.
  template <class V, std::size_t Blocks>
  static void block(const float* x, window_cells w, float* y, std::int32_t* winners) noexcept {
    using ints = typename lanes_of<V>::ints;
    constexpr std::size_t lanes = lanes_of<V>::count;
    const ints first = ints{} + static_cast<std::int32_t>(w.y_begin * w.kernel_w + w.x_begin);
    V best[Blocks];
    ints winner[Blocks];
    for (std::size_t b = 0; b < Blocks; ++b) {
      best[b] = load_lanes<V>(x + b * lanes);
      winner[b] = first;
    }
    for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, x += w.row_pitch) {
      const float* p = x;
      // The first cell of all meets itself, which changes nothing.
      for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
        const ints cell = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
        fetch_later_window<Blocks * lanes>(p);
        for (std::size_t b = 0; b < Blocks; ++b) {
          const V candidate = load_lanes<V>(p + b * lanes);
          if constexpr (Rule == framework_rule::pytorch) {
            const auto take = (candidate > best[b]) | is_nan(candidate);
            if constexpr (wants_winner) winner[b] = take ? cell : winner[b];
            best[b] = take ? candidate : best[b];
          } else {
            // Compilers see a maximum instruction in this; a winner has other bits than what it replaces.
            const V next = candidate > best[b] ? candidate : best[b];
            if constexpr (wants_winner) winner[b] = bits_of(next) == bits_of(best[b]) ? winner[b] : cell;
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
        if constexpr (Winner == winner_bytes::codes) {
          const ints passes = Rule == framework_rule::pytorch ? kept : positive & ~nan;
          winner[b] = passes ? winner[b] : ints{} + no_gradient_code;
        } else {
          winner[b] = kept ? winner[b] : first;
        }
      }
      store_lanes(y + b * lanes, best[b]);
      if constexpr (wants_winner) std::memcpy(winners + b * lanes, &winner[b], sizeof(ints));
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

/// Adds gradient[c] to the cell that cells[c] names and +0 to the other cells of the window. Sums start as
/// +0 + gradient, so they are never -0 and adding +0 leaves their bits alone. `dx` points to the first cell
/// in x.
template <class V, std::size_t Blocks>
inline void scatter_block(const float* gradient, const std::int32_t* winners, window_cells w,
                          first_visits visits, float* dx) noexcept {
  using ints = typename lanes_of<V>::ints;
  constexpr std::size_t lanes = lanes_of<V>::count;
  V value[Blocks];
  ints winner[Blocks];
  for (std::size_t b = 0; b < Blocks; ++b) {
    value[b] = V{} + load_lanes<V>(gradient + b * lanes);
    std::memcpy(&winner[b], winners + b * lanes, sizeof(ints));
  }
  for (std::int64_t ky = w.y_begin; ky < w.y_end; ++ky, dx += w.row_pitch) {
    float* p = dx;
    for (std::int64_t kx = w.x_begin; kx < w.x_end; ++kx, p += w.pixel_pitch) {
      const ints cell = ints{} + static_cast<std::int32_t>(ky * w.kernel_w + kx);
      fetch_later_window<Blocks * lanes>(p);
      if (ky >= visits.y_store && kx >= visits.x_store) {
        for (std::size_t b = 0; b < Blocks; ++b) {
          store_lanes(p + b * lanes, winner[b] == cell ? value[b] : V{});
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

void scatter_run(const float* gradient, const std::uint8_t* cells, std::int64_t channels,
                 const window_cells& w, const first_visits& visits, float* dx) {
  alignas(run_alignment) std::int32_t winners[run_elements];
  for (std::int64_t i = 0; i < channels; ++i)
    winners[i] = cells[i];
  in_blocks(channels, [&]<class V, std::size_t Blocks>(std::int64_t c) STASH_LOOPS_ATTR {
    scatter_block<V, Blocks>(gradient + c, winners + c, w, visits, dx + c);
  });
}

}  // namespace
}  // namespace STASH_LOOPS_NAMESPACE
}  // namespace stash::detail
