// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which kernel takes a pooling layer (docs/kernels.md has the table). Knows no device.

#include <cstdint>

#include "pool/pool_geometry.hpp"

namespace stash::kernels {

enum class pool_strategy : std::uint8_t {
  one_value,          ///< a thread has one value of any map
  one_value_of_long,  ///< the same where positions in an axis need 64 bits
  scatter,            ///< any windows, backward: a thread has a tile of dx
  walk,               ///< windows of more than 16 taps, forward: a thread has a column of them
  eight_channels,     ///< NHWC, any windows, forward: a thread has eight channels of a pixel
  disjoint,           ///< NHWC, backward, windows that cover x without a rest: the same
  pairs,              ///< NCHW, 2 x 2 with stride 2, whole vec16s
  cubes,              ///< NCHW, 2 x 2 x 2 with stride 2, whole vec16s
  vec16,              ///< NCHW, 3 x 3 with stride 2, whole vec16s
  column_tiles,       ///< NCHW, 3 x 3 with stride 1, whole vec16s
  halo_tiles,         ///< NCHW, such squares over rows of any length
  pixels,             ///< NHWC, 2 x 2 with stride 2 (forward), 3 x 3 with stride 2 or (forward) 1
  packed_pixels,      ///< the same backward from codes, of 16 bits
  pixel_tiles,        ///< NHWC, 3 x 3, backward from x
  coded_pixel_tiles,  ///< NHWC, 3 x 3 with stride 1, backward from codes
};

/// The kernel for a pass over a layer. Every strategy takes all that it is chosen for.
pool_strategy choose(const pool_geometry& layer, pool_source source);

/// As its enumerator.
const char* to_string(pool_strategy strategy);

/// Values of a thread: those of a group, or one.
unsigned width_of(pool_strategy strategy);

}  // namespace stash::kernels
