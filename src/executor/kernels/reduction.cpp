// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/reduction.hpp"

namespace stash::executor {

void sum_pixels(const const_tensor_view& v, float* sums, double* partials, const execution_context& context) {
  const std::int64_t channels = v.dims.inner();
  reduce_rows(context, v.elements() / channels, channels, partials, [&](std::int64_t row, double* totals) {
    const float* values = v.as<float>() + row * v.pitch();
    for (std::int64_t c = 0; c < channels; ++c)
      totals[c] += static_cast<double>(values[c]);
  });
  for (std::int64_t c = 0; c < channels; ++c)
    sums[c] = static_cast<float>(partials[c]);
}

}  // namespace stash::executor
