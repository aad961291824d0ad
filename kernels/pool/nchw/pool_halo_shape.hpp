// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How large halo tiles are (pool_halo_tiles.hpp): as much of a map as shared memory has space for. Knows no
/// device.

#include <algorithm>
#include <cstdint>

#include "pool/pool_geometry.hpp"

namespace stash::kernels {

/// Shared memory of a block, in vec16s.
struct halo_capacity {
  unsigned read, made;  ///< of the halo tile that is read, and of the tile that is made
  unsigned searched;    ///< going backward: of x, where argmaxes are found again
};
/// What threads write before the first value of a tile and after its last one: of a group of columns those
/// that it has not.
inline constexpr unsigned slack_vec16s = 1;
template <unsigned Stride>
inline constexpr halo_capacity forward_halo =
    Stride == 1 ? halo_capacity{1024, 768, 0} : halo_capacity{1280, 384, 0};
template <unsigned Stride>
inline constexpr halo_capacity backward_halo =
    Stride == 1 ? halo_capacity{1024, 768, 1024} : halo_capacity{512, 1024, 1280};

/// Planes of x and y, and the windows between them: of 3 x 3 with stride 1, one around each element of x, or
/// with stride 2 with a row and a column of padding at most before x.
struct halo_shape {
  std::uint32_t width, height;          ///< of x
  std::uint32_t out_width, out_height;  ///< of y
  std::uint32_t kernel, stride;
  std::uint32_t pad_rows, pad_columns;  ///< before x

  /// The most rows of `length` values that so many consecutive ones may have a part of.
  static std::uint32_t rows_with(std::uint32_t values, std::uint32_t length) {
    return (values + 2 * length - 2) / length;
  }
  /// The most rows of x that so many rows of windows need, from the first one to the last.
  std::uint64_t rows_of_x(std::uint32_t rows) const {
    if (stride == 1) return rows + 2;
    // No window has the last rows of a plane where y is smaller than it might be.
    const std::uint64_t beyond = std::max(height, stride * out_height) - stride * out_height;
    return (rows - 1) * stride + kernel + ((rows - 1) / out_height + 1) * beyond;
  }
  /// The most rows of windows that cover so many rows of x.
  std::uint32_t rows_of_y(std::uint32_t rows) const {
    if (stride == 1) return rows + 2;
    return (rows + kernel - 2) / stride + 2 + (rows - 1) / height + 1;
  }
};

/// Of planes with these rows and columns, whose sizes have 32 bits.
inline halo_shape halo_shape_of(const pool_axis& rows, const pool_axis& columns) {
  const auto small = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  return {small(columns.in),     small(rows.in),        small(columns.out), small(rows.out),
          small(columns.kernel), small(columns.stride), small(rows.pad),    small(columns.pad)};
}

/// What of shared memory a kernel has.
constexpr halo_capacity halo_capacity_of(std::uint32_t stride, bool backward) {
  if (backward) return stride == 1 ? backward_halo<1> : backward_halo<2>;
  return stride == 1 ? forward_halo<1> : forward_halo<2>;
}

/// How many values of y, or going backward of dx, a block makes: as many as shared memory allows, a multiple
/// of 32; none if not even those of a row fit. `searches`: whether argmaxes are found again, going backward.
inline std::uint32_t halo_tile_values(const halo_shape& shape, std::uint32_t element_bytes, bool backward,
                                      bool searches) {
  const halo_capacity vec16s = halo_capacity_of(shape.stride, backward);
  // Vec16s begin and end anywhere, and elements next to the first and the last row are read.
  const auto capacity = [&](unsigned count) { return std::uint64_t{count - 3} * 16 / element_bytes; };
  for (std::uint32_t values = vec16s.made * 16 / element_bytes; values > 0; values -= 32) {
    const std::uint32_t rows = halo_shape::rows_with(values, backward ? shape.width : shape.out_width);
    const std::uint32_t windows = backward ? shape.rows_of_y(rows) : rows;
    const std::uint64_t of_x = shape.rows_of_x(windows) * shape.width;
    const std::uint64_t of_y = std::uint64_t{windows} * shape.out_width;
    const bool fits = backward
                          ? of_y <= capacity(vec16s.read) && (!searches || of_x <= capacity(vec16s.searched))
                          : of_x <= capacity(vec16s.read);
    if (fits) return values;
  }
  return 0;
}

}  // namespace stash::kernels
