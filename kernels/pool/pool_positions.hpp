// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Between positions of argmaxes in planes of x and the codes of window_index. A thread has one pooled value:
/// a warp's positions follow each other, and eight lanes make or read one word of codes.

#include <cstdint>

#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// The tap of an axis at this distance from the window's tap 0; 0 and `corrupt` where there is none.
STASH_DEVICE std::uint32_t tap_at(const window_axis& a, std::int64_t distance, bool& corrupt) {
  const std::int64_t tap = distance < 0 ? 0 : divided(distance, a.by_dilation);
  const bool found = tap * a.dilation == distance && tap < a.kernel;
  corrupt = corrupt || !found;
  return found ? static_cast<std::uint32_t>(tap) : 0;
}

/// The codes of positions. Grid: threads for all values, and for the padding of the plane.
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_codes_of_positions(pool_job job, const std::int64_t* flat, code_plane plane, encode_report* report) {
  begin_kernel();
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  std::uint32_t codes[1] = {};
  if (unit < job.y_units) {
    const auto o =
        position_in_map<1, std::int64_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
    // A negative one is above all others.
    auto rest = static_cast<std::uint64_t>(flat[unit]);
    bool corrupt = rest >= static_cast<std::uint64_t>(job.depth.in * job.rows.in * job.columns.in);
    if (corrupt) rest = 0;
    const auto x = static_cast<std::int64_t>(take_digit(rest, job.columns.by_in));
    const auto y = static_cast<std::int64_t>(take_digit(rest, job.rows.by_in));
    const auto z = static_cast<std::int64_t>(rest);
    const auto tap_of = [&corrupt](const window_axis& a, std::int64_t at, std::int64_t window) {
      return tap_at(a, at - (window * a.stride - a.pad), corrupt);
    };
    const std::uint32_t kz = tap_of(job.depth, z, o.z), ky = tap_of(job.rows, y, o.y),
                        kx = tap_of(job.columns, x, o.x);
    codes[0] = (kz * static_cast<std::uint32_t>(job.rows.kernel) + ky) *
                   static_cast<std::uint32_t>(job.columns.kernel) +
               kx;
    if (corrupt) {
      codes[0] = 0;
      atomic_or(&report->status, status_corrupt);
    }
  }
  store_codes(plane, unit, codes);
  if (unit == 0) atomic_add(&report->slot_bytes, plane.bytes);
}

/// The positions of codes. Grid: threads for all values.
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_positions_of_codes(pool_job job, const std::uint8_t* plane, unsigned bits, std::int64_t* flat,
                        encode_report* report) {
  begin_kernel();
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= job.y_units) return;
  const auto o =
      position_in_map<1, std::int64_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
  const tap_range<std::int64_t> d = taps_in_map(job.depth, o.z), r = taps_in_map(job.rows, o.y),
                                c = taps_in_map(job.columns, o.x);
  const std::uint64_t bit = unit * bits;
  std::uint64_t rest = static_cast<std::uint32_t>(plane[bit / 8]) >> (bit % 8) & ((1U << bits) - 1);
  auto kx = static_cast<std::int64_t>(take_digit(rest, job.columns.by_kernel));
  auto ky = static_cast<std::int64_t>(take_digit(rest, job.rows.by_kernel));
  auto kz = static_cast<std::int64_t>(rest);
  const auto in = [](const tap_range<std::int64_t>& taps, std::int64_t tap) {
    return tap >= taps.begin && tap < taps.end;
  };
  if (!in(d, kz) || !in(r, ky) || !in(c, kx)) {
    kz = d.begin, ky = r.begin, kx = c.begin;
    atomic_or(&report->status, status_corrupt);
  }
  const auto at = [](const window_axis& a, const tap_range<std::int64_t>& taps, std::int64_t tap) {
    return taps.at + (tap - taps.begin) * a.dilation;
  };
  flat[unit] =
      (at(job.depth, d, kz) * job.rows.in + at(job.rows, r, ky)) * job.columns.in + at(job.columns, c, kx);
}

}  // namespace stash::kernels
