// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A pooling layer as numbers: all that decides which kernel takes it. Knows no device.

#include <cstdint>

#include "stash/pool.hpp"

namespace stash::kernels {

/// Depth, rows or columns of a layer.
struct pool_axis {
  std::int64_t in, out;
  std::int64_t kernel, stride, pad, dilation;
};

/// An axis that is not pooled over.
inline constexpr pool_axis whole_axis{1, 1, 1, 1, 0, 1};

/// x stands for the map that is pooled or its gradient, y for the pooled one. A map in NCHW is one with a
/// single channel and as many samples as there were channels. A layer whose windows have one slice each has
/// one slice, and its slices are samples.
struct pool_geometry {
  pool_layout layout;
  unsigned element_bytes;  ///< 4 or 2
  std::int64_t samples;
  pool_axis depth, rows, columns;
  std::int64_t channels;
  std::int64_t x_pitch, y_pitch;  ///< elements from pixel to pixel
  std::int64_t searched_pitch;    ///< the same of the map that argmaxes are found in again
  /// Every map that the pass touches begins at a multiple of 16 bytes; in NHWC so does every pixel, or pixels
  /// follow each other.
  bool aligned;

  constexpr std::int64_t x_pixels() const { return samples * depth.in * rows.in * columns.in; }
  constexpr std::int64_t y_pixels() const { return samples * depth.out * rows.out * columns.out; }
  constexpr std::int64_t x_values() const { return x_pixels() * channels; }
  constexpr std::int64_t y_values() const { return y_pixels() * channels; }
};

/// What a pass reads besides x or dy.
enum class pool_source : std::uint8_t {
  forward,           ///< nothing: the pass makes y of x
  codes,             ///< dx from codes, which say themselves what passes, if not all does
  codes_and_bits,    ///< with a plane of bits that say it
  codes_and_values,  ///< with y, dense or as a cast
  codes_and_tiles,   ///< with y as bitmap or csr
  x,                 ///< dx from x, in which the argmaxes are found again
};

}  // namespace stash::kernels
