// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Sums over the pixels of a map, one per channel, in double. The rows are cut into blocks whose number
/// depends on the row count alone, and the blocks are added in order: the result does not depend on the
/// thread count.

#include <algorithm>
#include <cstdint>

#include "executor/kernels/kernel_base.hpp"

namespace stash::executor {

inline std::int64_t reduction_blocks(std::int64_t rows) noexcept {
  return std::clamp<std::int64_t>(rows / 64, 1, 32);
}

/// Workspace for `values` sums over `rows` rows (values = number of sums per channel x channels).
inline std::int64_t reduction_bytes(std::int64_t rows, std::int64_t values) noexcept {
  return reduction_blocks(rows) * values * static_cast<std::int64_t>(sizeof(double));
}

/// add(row, sums) adds one row to sums[0, values). Afterwards partials[0, values) holds the totals.
template <class Add>
void reduce_rows(const execution_context& context, std::int64_t rows, std::int64_t values, double* partials,
                 const Add& add) {
  const std::int64_t blocks = reduction_blocks(rows);
  parallel_ranges(context, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      double* sums = partials + block * values;
      std::fill_n(sums, values, 0.0);
      for (std::int64_t row = block * rows / blocks; row < (block + 1) * rows / blocks; ++row)
        add(row, sums);
    }
  });
  for (std::int64_t block = 1; block < blocks; ++block) {
    const double* sums = partials + block * values;
    for (std::int64_t i = 0; i < values; ++i)
      partials[i] += sums[i];
  }
}

/// sums[c] = sum of v over all pixels, rounded once. `partials`: reduction_bytes(pixels, channels).
void sum_pixels(const const_tensor_view& v, float* sums, double* partials, const execution_context& context);

}  // namespace stash::executor
