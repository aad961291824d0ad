// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Layers whose windows do not overlap and cover x. Every element of dx has one window, so the thread of the
/// window writes it, and dy and the codes are read once. In NCHW, windows of 2 x 2 have kernels of their own
/// (pool_pairs.hpp).

#include <cstdint>
#include <type_traits>

#include "common/pairs.hpp"
#include "pool/pool_backward.hpp"
#include "pool/pool_codes.hpp"
#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// What gradients become in x, as add_gradient() makes it of them and 0: NaN becomes the type's or quiet, -0
/// becomes +0. A word is one or two of them.
STASH_DEVICE std::uint32_t arriving(const element_type&, std::uint32_t word, std::uint32_t) {
  constexpr std::uint32_t quiet = 0x400000;
  const float gradient = as_float(word);
  return gradient == gradient ? as_bits(0.0F + gradient) : word | quiet;
}
STASH_DEVICE std::uint32_t arriving(const element_type& type, std::uint32_t word, std::uint16_t) {
  const std::uint32_t nan = sign_masks(nan_flags(word, type));
  return select_bits(nan, (word & pair_signs) | both(type.nan), word & nonzero_masks(word));
}

/// Gives taps whose gradient does not pass a number that no tap has. A code that counts and is none of the
/// window's taps is corrupt.
template <unsigned Width, class Source>
STASH_DEVICE void drop_taps(std::uint32_t taps, const Source& source, argmaxes<Width>& w) {
  bool corrupt = false;
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    const bool pass = (w.pass >> i & 1) != 0;
    corrupt = corrupt || (w.tap[i] >= taps && (pass || !source.tap_needs_pass));
    if (!pass) w.tap[i] = 0xffffffffU;
  }
  if constexpr (std::is_base_of_v<encoded_argmaxes, Source>) {
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
}

/// The vec16s (16 bytes) that a thread moves where its own group lies at `own`: of f32 half of it, and half
/// of its neighbour's (shared_halves()). Then all lanes of a warp come.
template <class Bits, class T>
STASH_DEVICE void share_offsets(std::uint64_t unit, T* map, std::uint64_t own,
                                T* (&vec16s)[group_vectors<Bits>]) {
  if constexpr (!has_halves<Bits>) {
    vec16s[0] = map + own;
  } else {
    constexpr unsigned half = group_elements / 2;
    const bool odd = unit % 2 != 0;
    const std::uint64_t got = shuffle_xor(all_lanes, odd ? own : own + half, 1);
    vec16s[0] = map + (odd ? got : own);
    vec16s[1] = map + (odd ? own + half : got);
  }
}

/// Whether digits_of_argmaxes() knows the codes: no two bits name a tap beyond four.
STASH_DEVICE bool are_digits(const encoded_argmaxes& source, std::uint32_t taps) {
  return taps == 4 && (source.passing == pass_source::always || source.passing == pass_source::plane);
}
/// The taps of eight windows of four, a hexadecimal digit each, from value `first` on; 7 where the gradient
/// does not pass.
STASH_DEVICE std::uint32_t digits_of_argmaxes(const encoded_argmaxes& source, std::uint64_t first) {
  std::uint32_t digits = reinterpret_cast<const std::uint16_t*>(source.taps)[first / group_elements];
  digits = (digits | digits << 8) & 0x00ff00ffU;
  digits = (digits | digits << 4) & 0x0f0f0f0fU;
  digits = (digits | digits << 2) & 0x33333333U;
  if (source.passing == pass_source::always) return digits;
  return digits | (~four_times(source.plane[first / group_elements]) & 0x77777777U);
}
/// Gradients of 16 bits, two to a word, where digits name a tap; else zeros.
class digit_gates {
 public:
  STASH_DEVICE explicit digit_gates(std::uint32_t digits) {
    // A digit for each byte of a gradient, and four gradients to a word.
    const auto doubled = [&](unsigned bytes) {
      const std::uint32_t unpacked = pick_bytes_at(digits, 0, bytes);
      return (unpacked & 0x000f000fU) * 0x11 | (unpacked & 0x00f000f0U) * 0x110;
    };
    bytes_[0] = doubled(0x4140);
    bytes_[1] = doubled(0x4342);
  }
  STASH_DEVICE vector16 gradients_of(std::uint32_t tap, const vector16& gradients) const {
    const std::uint32_t chosen = 0xffU << (8 * tap);
    vector16 out;
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      out.word[w] = gradients.word[w] & pick_bytes_at(chosen, 0, bytes_[w / 2] >> (16 * (w % 2)));
    return out;
  }

 private:
  std::uint32_t bytes_[2];
};

template <class Bits, class Source>
inline constexpr bool may_be_digits = !has_halves<Bits> && std::is_same_v<Source, encoded_argmaxes>;

/// dx in NHWC. Grid: threads for all units of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads,
             may_be_digits<Bits, Source> ? tuning::pool_blocks_of_digits : Source::resident_blocks)
pool_backward_disjoint(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned width = group_elements, vec16s = group_vectors<Bits>;
  const std::uint64_t own = block_rank() * pool_threads + thread_rank();
  // Lanes that share halves all stay. Those after the last unit take that one: a half of it is written twice
  // by its lane where the neighbour has none of its own.
  if (!has_halves<Bits> && own >= job.y_units) return;
  const std::uint64_t unit = own < job.y_units ? own : job.y_units - 1;
  const auto o =
      position_in_map<width, std::int32_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
  const Bits* from[vec16s];
  share_offsets<Bits>(own, static_cast<const Bits*>(dy), o.pixel * job.y_pitch + o.channel, from);
  vector16 gradients[vec16s];
  STASH_UNROLL
  for (unsigned p = 0; p < vec16s; ++p)
    gradients[p] = *reinterpret_cast<const vector16*>(from[p]);
  const auto kernel_d = static_cast<std::uint32_t>(job.depth.kernel);
  const auto kernel_h = static_cast<std::uint32_t>(job.rows.kernel);
  const auto kernel_w = static_cast<std::uint32_t>(job.columns.kernel);
  const std::uint32_t count = kernel_d * kernel_h * kernel_w;
  bool by_digits = false;
  std::uint32_t digits = 0;
  if constexpr (may_be_digits<Bits, Source>) {
    by_digits = are_digits(source, count);
    if (by_digits) digits = digits_of_argmaxes(source, o.pixel * job.channels + o.channel);
  }
  argmaxes<width> w;
  if (!by_digits) {
    w = load_argmaxes<Bits, width>(job, source, o);
    drop_taps(count, source, w);
  }
  STASH_UNROLL
  for (vector16& vec16 : gradients) {
    STASH_UNROLL
    for (std::uint32_t& word : vec16.word)
      word = arriving(job.type, word, Bits{});
  }

  const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t y_step = length(job.columns.in) * job.x_pitch;
  const std::uint64_t z_step = length(job.rows.in) * y_step;
  Bits* to[vec16s];
  share_offsets<Bits>(own, static_cast<Bits*>(dx),
                      o.sample * length(job.depth.in) * z_step + length(o.z) * kernel_d * z_step +
                          length(o.y) * kernel_h * y_step + length(o.x) * kernel_w * job.x_pitch + o.channel,
                      to);
  // Calls make(tap, vec16s) for every tap, and stores those.
  const auto store_taps = [&](const auto& make) {
    std::uint64_t slice = 0;
    std::uint32_t tap = 0;
    for (std::uint32_t kz = 0; kz < kernel_d; ++kz, slice += z_step) {
      std::uint64_t row = slice;
      for (std::uint32_t ky = 0; ky < kernel_h; ++ky, row += y_step) {
        std::uint64_t offset = row;
        for (std::uint32_t kx = 0; kx < kernel_w; ++kx, offset += job.x_pitch, ++tap) {
          vector16 v[vec16s];
          make(tap, v);
          STASH_UNROLL
          for (unsigned p = 0; p < vec16s; ++p)
            store_vector(reinterpret_cast<vector16*>(to[p] + offset), v[p]);
        }
      }
    }
  };
  if constexpr (may_be_digits<Bits, Source>) {
    if (by_digits) {
      const digit_gates gates(digits);
      return store_taps(
          [&](std::uint32_t tap, vector16(&v)[vec16s]) { v[0] = gates.gradients_of(tap, gradients[0]); });
    }
  }
  group<std::uint32_t> taps;
  STASH_UNROLL
  for (unsigned i = 0; i < width; ++i)
    taps.value[i] = w.tap[i];
  if constexpr (has_halves<Bits>) taps = shared_halves<neighbours>(own, taps);
  if (own - own % vec16s >= job.y_units) return;
  const group<Bits> share = unpacked<Bits>(gradients);
  store_taps([&](std::uint32_t tap, vector16(&v)[vec16s]) {
    group<Bits> out;
    STASH_UNROLL
    for (unsigned i = 0; i < width; ++i)
      out.value[i] = taps.value[i] == tap ? share.value[i] : Bits{0};
    pack(out, v);
  });
}

}  // namespace stash::kernels
