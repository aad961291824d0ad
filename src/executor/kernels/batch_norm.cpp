// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/batch_norm.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "encoders/format/masked.hpp"
#include "encoders/format/tap_planes.hpp"
#include "executor/kernels/kernel_base.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

template <bool Relu>
void apply(const const_tensor_view& x, const tensor_view& y, const batch_norm_parameters& p,
           const execution_context& context) {
  const std::int64_t channels = x.dims.inner();
  const std::int64_t grain = std::max<std::int64_t>(1, loop_grain / channels);
  parallel_ranges(context, x.elements() / channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* from = x.as<float>() + row * x.pitch();
      float* to = y.as<float>() + row * y.pitch();
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) {
        const float value =
            batch_norm_value(from[c], p.scale[c], p.shift[c], p.mean[c], p.inverse_deviation[c]);
        to[c] = Relu ? rectified(value) : value;
      }
    }
  });
}

}  // namespace

void batch_norm_apply(const const_tensor_view& x, const tensor_view& y,
                      const batch_norm_parameters& parameters, bool relu, const execution_context& context) {
  if (relu) {
    apply<true>(x, y, parameters, context);
  } else {
    apply<false>(x, y, parameters, context);
  }
}

void batch_norm_apply(const const_tensor_view& x, const tensor_view& y,
                      const batch_norm_parameters& parameters, const const_encoded_view& mask,
                      const execution_context& context) {
  if (mask.bytes < static_cast<std::size_t>((y.elements() + 7) / 8)) {
    throw error(errc::capacity_exceeded, fmt::format("batch_norm_apply: mask: expected {} bits, got {} bytes",
                                                     y.elements(), mask.bytes));
  }
  const auto* bits = static_cast<const std::uint8_t*>(mask.data);
  const batch_norm_parameters& p = parameters;
  // Bits become bytes for many values at once: rows as a group, or parts of a row if it is long.
  constexpr std::int64_t most = 4096;
  const std::int64_t channels = x.dims.inner();
  const std::int64_t group = std::max<std::int64_t>(1, most / channels);
  const std::int64_t grain = std::max<std::int64_t>(1, loop_grain / channels);
  parallel_ranges(context, x.elements() / channels, grain, [&](std::int64_t begin, std::int64_t end) {
    std::uint8_t buffer[most + encoders::plane_slack];
    for (std::int64_t first = begin; first < end; first += group) {
      const std::int64_t rows = std::min(group, end - first);
      for (std::int64_t c0 = 0; c0 < channels; c0 += most) {
        const std::int64_t length = std::min(most, channels - c0);
        const std::uint8_t* keep = encoders::unpack_flags(bits, first * channels + c0, rows * length, buffer);
        for (std::int64_t r = 0; r < rows; ++r, keep += length) {
          const float* from = x.as<float>() + (first + r) * x.pitch();
          float* to = y.as<float>() + (first + r) * y.pitch();
#pragma omp simd
          for (std::int64_t i = 0; i < length; ++i) {
            const std::int64_t c = c0 + i;
            to[c] = encoders::masked(
                batch_norm_value(from[c], p.scale[c], p.shift[c], p.mean[c], p.inverse_deviation[c]),
                keep[i]);
          }
        }
      }
    }
  });
}

}  // namespace stash::executor
