// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling on a device. A thread gathers: for its elements of dx it looks at the windows that
/// cover them, in row-major order, and adds the gradients of those that chose them. Nobody else writes there,
/// so sums need no atomics and have one order.

#include <cstdint>

#include "common/stored_values.hpp"
#include "pool/pool.hpp"
#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// sum + gradient. A NaN keeps its bits, as on the CPU; a device would give its own.
STASH_DEVICE float add_gradient(float sum, float gradient) {
  const float result = sum + gradient;
  if (result == result) return result;
  constexpr std::uint32_t quiet = 0x400000;
  if (sum != sum) return as_float(as_bits(sum) | quiet);
  if (gradient != gradient) return as_float(as_bits(gradient) | quiet);
  return as_float(0xffc00000U);  // of infinities with different signs
}

/// What says whether a pooled value's gradient passes.
enum class pass_source : std::uint8_t {
  always,
  code,   ///< the tap's code: not if it is no_gradient
  plane,  ///< a bit
  dense,  ///< the pooled output
  cast,   ///< the pooled output in a narrow format that keeps the sign
};

/// Argmaxes and signs as they were encoded.
struct encoded_argmaxes {
  static constexpr unsigned resident_blocks = tuning::pool_blocks;
  const std::uint8_t* taps;
  unsigned bits;  ///< of a tap
  pass_source passing;
  bool tap_needs_pass;  ///< where the gradient does not pass, the tap means nothing
  const std::uint8_t* plane;
  const void* y;
  std::uint64_t y_pitch;
  device_cast cast;
  unsigned cast_bits;
  bool cast_scaled;
  encode_report* report;
};

/// What a window says about a thread's elements.
template <unsigned Width>
struct argmaxes {
  std::uint32_t tap[Width];
  std::uint32_t pass;  ///< a bit each
};

/// Eight codes of up to eight bits from group `group` of a plane.
STASH_DEVICE std::uint64_t load_word(const std::uint8_t* plane, unsigned bits, std::uint64_t group) {
  const std::uint8_t* at = plane + group * bits;
  if (bits == 2) return *reinterpret_cast<const std::uint16_t*>(at);
  if (bits == 4) return *reinterpret_cast<const std::uint32_t*>(at);
  return *reinterpret_cast<const std::uint64_t*>(at);
}

/// Code `i` of a cast.
STASH_DEVICE std::uint32_t load_code(const device_cast& cast, unsigned bits, std::uint64_t i) {
  if (bits == 10) {
    const std::uint64_t word = i / 3;
    return reinterpret_cast<const std::uint32_t*>(cast.codes)[word] >> (10 * (i - word * 3)) & 0x3ff;
  }
  const std::uint64_t bit = i * bits;
  const auto skipped = static_cast<unsigned>(bit % 8);
  std::uint32_t code = cast.codes[bit / 8];
  if (skipped + bits > 8) code |= std::uint32_t{cast.codes[bit / 8 + 1]} << 8;
  return code >> skipped & ((1U << bits) - 1);
}

/// Whether pooled value `i`, kept as a cast, passes.
STASH_DEVICE bool cast_passes(const pool_job& job, const encoded_argmaxes& from, std::uint64_t i) {
  if (from.cast_scaled && from.cast.scales[i / scaled_group] == encoders::mx_nan_scale) return job.nan_wins;
  return code_passes(load_code(from.cast, from.cast_bits, i), from.cast.conversion, job.nan_wins);
}

/// The taps of pooled values from `first` on.
template <unsigned Width>
STASH_DEVICE argmaxes<Width> load_taps(const encoded_argmaxes& from, std::uint64_t first) {
  argmaxes<Width> w;
  if constexpr (Width == 1) {
    const std::uint64_t bit = first * from.bits;
    w.tap[0] = from.taps[bit / 8] >> (bit % 8) & ((1U << from.bits) - 1);
  } else {
    const std::uint64_t word = load_word(from.taps, from.bits, first / Width);
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      w.tap[i] = static_cast<std::uint32_t>(word >> (i * from.bits)) & ((1U << from.bits) - 1);
  }
  return w;
}

/// Whether the gradient of pooled values passes, by anything but their codes; a bit each. `o` is the position
/// of the thread's elements in the pooled map.
template <class Bits, unsigned Width, class P>
STASH_DEVICE std::uint32_t passing_bits(const pool_job& job, const encoded_argmaxes& from,
                                        const map_position<P>& o) {
  const std::uint64_t first = o.pixel * job.channels + o.channel;
  constexpr std::uint32_t all = (1U << Width) - 1;
  std::uint32_t bits = 0;
  switch (from.passing) {
    case pass_source::always:
    case pass_source::code:
      bits = all;
      break;
    case pass_source::plane:
      bits = from.plane[first / 8] >> (first % 8) & all;
      break;
    case pass_source::dense: {
      const auto y =
          load_lanes<Bits, Width>(static_cast<const Bits*>(from.y) + o.pixel * from.y_pitch + o.channel);
      STASH_UNROLL
      for (unsigned i = 0; i < Width; ++i)
        bits |= (passes(y.value[i], job.type, job.nan_wins) ? 1U : 0U) << i;
      break;
    }
    case pass_source::cast:
      // At once these would need more registers than all else.
      STASH_NO_UNROLL
      for (unsigned i = 0; i < Width; ++i)
        bits |= (cast_passes(job, from, first + i) ? 1U : 0U) << i;
      break;
  }
  return bits;
}

/// The argmaxes of a window.
template <class Bits, unsigned Width, class P>
STASH_DEVICE argmaxes<Width> load_argmaxes(const pool_job& job, const encoded_argmaxes& from,
                                           const map_position<P>& o) {
  argmaxes<Width> w = load_taps<Width>(from, o.pixel * job.channels + o.channel);
  w.pass = passing_bits<Bits, Width>(job, from, o);
  if (from.passing == pass_source::code) {
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      w.pass &= ~((w.tap[i] == no_gradient ? 1U : 0U) << i);
  }
  return w;
}

/// Argmaxes found again in the map that was pooled.
struct searched_argmaxes {
  static constexpr unsigned resident_blocks = tuning::pool_blocks_searching;
  static constexpr bool tap_needs_pass = true;
  const void* x;
  std::uint64_t x_pitch;
  bool relu;
};

template <class Bits, unsigned Width>
STASH_DEVICE argmaxes<Width> argmaxes_of(const pool_job& job, const searched_argmaxes& from,
                                         std::uint32_t first_tap, maxima<Width>& best) {
  if (from.relu) rectify_maxima<Bits, Width>(job, first_tap, best);
  argmaxes<Width> w;
  w.pass = 0;
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    w.tap[i] = best.tap[i];
    const bool pass = !from.relu || passes(element_of<Bits>(best.rank[i]), job.type, job.nan_wins);
    w.pass |= (pass ? 1U : 0U) << i;
  }
  return w;
}

template <class Bits, unsigned Width, class P>
STASH_DEVICE argmaxes<Width> load_argmaxes(const pool_job& job, const searched_argmaxes& from,
                                           const map_position<P>& o) {
  maxima<Width> best;
  const std::uint32_t first_tap = find_maxima<Bits, Width>(job, from.x, from.x_pitch, o, best);
  return argmaxes_of<Bits>(job, from, first_tap, best);
}

/// True if a code that counts names no tap of window `o` in x.
template <unsigned Width, class P>
STASH_DEVICE bool any_outside(const pool_job& job, const encoded_argmaxes& from, const argmaxes<Width>& w,
                              const map_position<P>& o) {
  const tap_range<P> d = taps_in_map<P>(job.depth, o.z), r = taps_in_map<P>(job.rows, o.y),
                     c = taps_in_map<P>(job.columns, o.x);
  const auto outside = [](std::uint64_t k, const tap_range<P>& range) {
    return static_cast<P>(k) < range.begin || static_cast<P>(k) >= range.end;
  };
  bool any = false;
  for (unsigned i = 0; i < Width; ++i) {
    if (from.tap_needs_pass && (w.pass >> i & 1) == 0) continue;
    std::uint64_t rest = w.tap[i];
    const std::uint64_t kx = take_digit(rest, job.columns.by_kernel);
    const std::uint64_t ky = take_digit(rest, job.rows.by_kernel);
    any = any || outside(kx, c) || outside(ky, r) || outside(rest, d);
  }
  return any;
}

/// Windows [first, last) of an axis are all that may cover a position.
template <class P>
struct window_range {
  P first, last;
};
template <class P>
STASH_DEVICE window_range<P> windows_at(const window_axis& a, P at) {
  const P padded = at + static_cast<P>(a.pad);
  const P distance = padded - static_cast<P>((a.kernel - 1) * a.dilation);
  const P out = static_cast<P>(a.out);
  const P first = distance <= 0 ? 0 : divided(static_cast<P>(distance - 1), a.by_stride) + 1;
  const P last = divided(padded, a.by_stride) + 1;
  return {first, last < out ? last : out};
}

/// Windows that may cover `Run` neighbouring elements, of which the first is the first tap of a window.
template <unsigned Kernel, unsigned Stride, unsigned Run>
struct covering_windows {
  /// Windows of a row, or of a column, that begin before the one of the first element and cover it too.
  static constexpr unsigned before = (Kernel - 1) / Stride;
  static constexpr unsigned rows = before + 1;
  static constexpr unsigned columns = before + (Run - 1) / Stride + 1;
};

/// The tap of window `o` at a position; negative if it steps over it.
template <class P>
STASH_DEVICE P tap_at(const window_axis& a, P at, P o) {
  const P distance = at + static_cast<P>(a.pad) - o * static_cast<P>(a.stride);
  if (a.dilation == 1) return distance;
  const P tap = divided(distance, a.by_dilation);
  return tap * static_cast<P>(a.dilation) == distance ? tap : -1;
}

/// True if no tap of the window before this one lies in x.
template <class P>
STASH_DEVICE bool is_first(const window_axis& a, P at, P tap) {
  return tap == 0 || at < static_cast<P>(a.dilation);
}

/// Adds dy of the windows that chose the thread's elements to their sums; whether a code is corrupt.
template <class Bits, unsigned Width, class P, class Source>
STASH_DEVICE bool gather(const pool_job& job, const void* dy, const Source& source, const map_position<P>& e,
                         float (&sums)[Width]) {
  const window_range<P> d = windows_at<P>(job.depth, e.z), r = windows_at<P>(job.rows, e.y),
                        c = windows_at<P>(job.columns, e.x);
  bool corrupt = false;
  map_position<P> o = e;
  for (o.z = d.first; o.z < d.last; ++o.z) {
    const P kz = tap_at<P>(job.depth, e.z, o.z);
    if (kz < 0) continue;
    for (o.y = r.first; o.y < r.last; ++o.y) {
      const P ky = tap_at<P>(job.rows, e.y, o.y);
      if (ky < 0) continue;
      for (o.x = c.first; o.x < c.last; ++o.x) {
        const P kx = tap_at<P>(job.columns, e.x, o.x);
        if (kx < 0) continue;
        o.pixel = ((e.sample * static_cast<std::uint64_t>(job.depth.out) + static_cast<std::uint64_t>(o.z)) *
                       static_cast<std::uint64_t>(job.rows.out) +
                   static_cast<std::uint64_t>(o.y)) *
                      static_cast<std::uint64_t>(job.columns.out) +
                  static_cast<std::uint64_t>(o.x);
        const auto gradient =
            load_lanes<Bits, Width>(static_cast<const Bits*>(dy) + o.pixel * job.y_pitch + e.channel);
        const argmaxes<Width> w = load_argmaxes<Bits, Width>(job, source, o);
        const auto tap = static_cast<std::uint32_t>(
            (kz * static_cast<P>(job.rows.kernel) + ky) * static_cast<P>(job.columns.kernel) + kx);
        STASH_UNROLL
        for (unsigned i = 0; i < Width; ++i) {
          if (w.tap[i] == tap && (w.pass >> i & 1) != 0)
            sums[i] = add_gradient(sums[i], to_f32(gradient.value[i], job.type));
        }
        if constexpr (std::is_base_of_v<encoded_argmaxes, Source>) {
          // One thread of each window looks for codes that none of them takes.
          if (is_first<P>(job.depth, e.z, kz) && is_first<P>(job.rows, e.y, ky) &&
              is_first<P>(job.columns, e.x, kx)) {
            corrupt = corrupt || any_outside(job, source, w, o);
          }
        }
      }
    }
  }
  return corrupt;
}

template <class P, class Source>
inline constexpr unsigned gather_blocks =
    sizeof(P) > 4 && tuning::pool_blocks_of_long_index < Source::resident_blocks
        ? tuning::pool_blocks_of_long_index
        : Source::resident_blocks;

/// dx = the sum of dy over the windows that chose the element. Grid: threads for all values of x.
template <class Bits, class P, class Source>
STASH_KERNEL(pool_threads, (gather_blocks<P, Source>))
pool_backward(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= job.x_units) return;
  const auto e = position_in_map<1, P>(job, unit, job.depth.by_in, job.rows.by_in, job.columns.by_in);
  float sum[1] = {};
  const bool corrupt = gather<Bits>(job, dy, source, e, sum);
  static_cast<Bits*>(dx)[e.pixel * job.x_pitch + e.channel] = result_from_f32<Bits>(sum[0], job.type);
  if constexpr (std::is_base_of_v<encoded_argmaxes, Source>) {
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
}

}  // namespace stash::kernels
