// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling on a device. Eight codes in a row are made into one word, which is whole bytes of
/// every plane: by the thread that has eight values, or by one of eight neighbours that have one each.

#include <cstdint>

#include "pool/pool.hpp"

namespace stash::kernels {

/// relu_pool's code for "no gradient" where codes have four bits.
inline constexpr std::uint32_t no_gradient = 15;

/// A plane of codes to be written; `data` is null if it is not asked for.
struct code_plane {
  std::uint8_t* data = nullptr;
  std::uint64_t bytes = 0;  ///< a multiple of 16
  unsigned bits = 0;        ///< of a code
};

struct pool_planes {
  code_plane index;
  code_plane code, gradient;  ///< relu_pool; the gradient's plane only next to codes of two bits
  encode_report* index_report = nullptr;
  encode_report* code_report = nullptr;
};

/// Eight codes at group `group` of a plane; nothing after its end.
STASH_DEVICE void store_word(const code_plane& plane, std::uint64_t group, std::uint64_t word) {
  const std::uint64_t at = group * plane.bits;
  if (at >= plane.bytes) return;
  if (plane.bits == 1) {
    plane.data[at] = static_cast<std::uint8_t>(word);
  } else if (plane.bits == 2) {
    *reinterpret_cast<std::uint16_t*>(plane.data + at) = static_cast<std::uint16_t>(word);
  } else if (plane.bits == 4) {
    *reinterpret_cast<std::uint32_t*>(plane.data + at) = static_cast<std::uint32_t>(word);
  } else {
    *reinterpret_cast<std::uint64_t*>(plane.data + at) = word;
  }
}

/// Writes the codes of a thread's units. All lanes of a warp come.
template <unsigned Width>
STASH_DEVICE void store_codes(const code_plane& plane, std::uint64_t unit,
                              const std::uint32_t (&codes)[Width]) {
  if (plane.data == nullptr) return;
  if constexpr (Width == 1) {
    const unsigned shift = static_cast<unsigned>(unit % group_elements) * plane.bits;
    std::uint32_t low = shift < 32 ? codes[0] << shift : 0;
    std::uint32_t high = shift < 32 ? 0 : codes[0] << (shift - 32);
    STASH_UNROLL
    for (unsigned bit = 1; bit < group_elements; bit *= 2)
      low |= shuffle_xor(all_lanes, low, bit);
    if (plane.bits == 8) {
      STASH_UNROLL
      for (unsigned bit = 1; bit < group_elements; bit *= 2)
        high |= shuffle_xor(all_lanes, high, bit);
    }
    if (unit % group_elements == 0) store_word(plane, unit / group_elements, low | std::uint64_t{high} << 32);
  } else {
    if (plane.bits == 8) {
      std::uint32_t words[2] = {};
      STASH_UNROLL
      for (unsigned i = 0; i < Width; ++i)
        words[i / 4] |= codes[i] << (8 * (i % 4));
      return store_word(plane, unit, words[0] | std::uint64_t{words[1]} << 32);
    }
    std::uint32_t word = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      word |= codes[i] << (i * plane.bits);
    store_word(plane, unit, word);
  }
}

/// What is stored of maxima: zeros where a thread has none.
template <class Bits, unsigned Width>
struct pooled_values {
  lanes<Bits, Width> y = {};
  std::uint32_t taps[Width] = {}, codes[Width] = {}, gradients[Width] = {};
};
template <class Bits, unsigned Width>
STASH_DEVICE pooled_values<Bits, Width> values_of(const pool_job& job, const maxima<Width>& best,
                                                  const pool_planes& planes) {
  pooled_values<Bits, Width> v;
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    v.y.value[i] = element_of<Bits>(best.rank[i]);
    const bool pass = passes(v.y.value[i], job.type, job.nan_wins);
    v.taps[i] = best.tap[i];
    v.gradients[i] = pass ? 1 : 0;
    v.codes[i] = pass ? best.tap[i] : planes.gradient.data == nullptr ? no_gradient : 0;
  }
  return v;
}

/// Writes sizes into the reports. One thread comes.
STASH_DEVICE void report_planes(const pool_planes& planes) {
  if (planes.index.data != nullptr) atomic_add(&planes.index_report->slot_bytes, planes.index.bytes);
  if (planes.code.data != nullptr)
    atomic_add(&planes.code_report->slot_bytes, planes.code.bytes + planes.gradient.bytes);
}

/// Writes all planes, and their sizes into the reports. All lanes of a warp come.
template <class Bits, unsigned Width>
STASH_DEVICE void store_planes(const pool_planes& planes, std::uint64_t unit,
                               const pooled_values<Bits, Width>& v) {
  store_codes(planes.index, unit, v.taps);
  store_codes(planes.code, unit, v.codes);
  store_codes(planes.gradient, unit, v.gradients);
  if (unit == 0) report_planes(planes);
}

/// y = the maximum of every window, and the planes that are asked for. Grid: threads for all units of y, and
/// for the padding of the planes.
template <class Bits, unsigned Width, class P>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward(pool_job job, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  pooled_values<Bits, Width> v;
  if (unit < job.y_units) {
    const auto o =
        position_in_map<Width, P>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
    maxima<Width> best;
    std::uint32_t first_tap;
    if constexpr (Width == 1) {
      first_tap = find_maximum<Bits>(job, x, job.x_pitch, o, best);
    } else {
      first_tap = find_maxima<Bits, Width>(job, x, job.x_pitch, o, best);
    }
    if (relu) rectify_maxima<Bits, Width>(job, first_tap, best);
    v = values_of<Bits, Width>(job, best, planes);
    store_lanes(static_cast<Bits*>(y) + o.pixel * job.y_pitch + o.channel, v.y);
  }
  store_planes(planes, unit, v);
}

}  // namespace stash::kernels
