#include "executor/batch_norm.hpp"

#include <fmt/format.h>

#include "executor/kernel_base.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

/// finish(element number, value) gives the stored value.
template <class Finish>
void apply(const const_tensor_view& x, const tensor_view& y, const batch_norm_parameters& p,
           const execution_context& context, const Finish& finish) {
  const std::int64_t channels = x.dims.inner();
  const std::int64_t grain = loop_grain / channels > 0 ? loop_grain / channels : 1;
  parallel_ranges(context, x.elements() / channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* from = x.as<float>() + row * x.pitch();
      float* to = y.as<float>() + row * y.pitch();
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) {
        to[c] = finish(row * channels + c,
                       batch_norm_value(from[c], p.scale[c], p.shift[c], p.mean[c], p.inverse_deviation[c]));
      }
    }
  });
}

}  // namespace

void batch_norm_apply(const const_tensor_view& x, const tensor_view& y,
                      const batch_norm_parameters& parameters, bool relu, const execution_context& context) {
  if (relu) {
    apply(x, y, parameters, context, [](std::int64_t, float value) { return rectified(value); });
  } else {
    apply(x, y, parameters, context, [](std::int64_t, float value) { return value; });
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
  apply(x, y, parameters, context,
        [bits](std::int64_t i, float value) { return (bits[i / 8] >> (i % 8) & 1) != 0 ? value : 0.0F; });
}

}  // namespace stash::executor
