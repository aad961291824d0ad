// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a pooling call to what its kernels know of it, on the host.

#include <algorithm>
#include <cstdint>

#include "common/host.hpp"
#include "pool/pool.hpp"
#include "pool/pool_forward.hpp"
#include "stash/pool.hpp"

namespace stash::kernels {

inline window_axis axis_of(std::int64_t in, std::int64_t out, std::int32_t kernel, std::int32_t stride,
                           std::int32_t pad, std::int32_t dilation) {
  // An axis without windows is not divided by their number.
  return {in,
          out,
          kernel,
          stride,
          pad,
          dilation,
          divisor_of(std::max<std::int64_t>(in, 1)),
          divisor_of(std::max<std::int64_t>(out, 1)),
          divisor_of(kernel),
          divisor_of(stride),
          divisor_of(dilation)};
}

/// Depth, rows and columns of a layer; without depth one slice.
inline void set_axes(pool_job& job, const shape& x, const shape& y, const pool_window& window) {
  const int rank = x.rank();
  const int rows = rank - (window.layout == pool_layout::channels_first ? 2 : 3);
  if (rank == 5) {
    job.depth = axis_of(x[rows - 1], y[rows - 1], window.kernel_d, window.stride_d, window.pad_front,
                        window.dilation_d);
  } else {
    job.depth = axis_of(1, 1, 1, 1, 0, 1);
  }
  job.rows = axis_of(x[rows], y[rows], window.kernel_h, window.stride_h, window.pad_top, window.dilation_h);
  job.columns =
      axis_of(x[rows + 1], y[rows + 1], window.kernel_w, window.stride_w, window.pad_left, window.dilation_w);
}

inline unsigned tap_bits(const pool_window& window) {
  const std::int32_t taps = window.taps();
  return taps <= 4 ? 2 : taps <= 16 ? 4 : 8;
}

inline std::uint64_t plane_bytes(std::int64_t elements, unsigned bits) {
  return (static_cast<std::uint64_t>(elements) * bits + 127) / 128 * 16;
}

inline code_plane plane_of(const encoded_view& view, std::int64_t elements, unsigned bits) {
  return {static_cast<std::uint8_t*>(view.data), plane_bytes(elements, bits), bits};
}

/// Blocks of pool_threads threads for so many units.
inline std::uint64_t pool_blocks(std::uint64_t units) {
  return (units + pool_threads - 1) / pool_threads;
}

}  // namespace stash::kernels
