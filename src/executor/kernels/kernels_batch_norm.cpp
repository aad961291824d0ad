// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "encoders/format/masked.hpp"
#include "executor/kernels/batch_norm.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/reduction.hpp"
#include "stash/relu.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// Sums run over the rows of (pixels, channels) in double: one pass gives mean and variance without the
/// cancellation that the textbook formula has in single precision.
class batch_norm_kernel final : public kernel_base {
 public:
  explicit batch_norm_kernel(const kernel_setup& setup)
      : kernel_base(setup),
        shape_(shape_of(setup, setup.op.inputs.at(0))),
        pixels_(batch() * shape_.h * shape_.w),
        epsilon_(setup.op.attributes.epsilon),
        relu_(setup.op.attributes.fused_relu) {
    sums_at_ = reserve(std::max(reduction_bytes(pixels_, 2 * shape_.c), shape_.c * 4));
  }

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  void batch_statistics(const tensor_view& x, const kernel_operands& operands) const;

  sample_shape shape_;
  std::int64_t pixels_;
  float epsilon_;
  bool relu_;
  std::int64_t sums_at_;
};

void batch_norm_kernel::batch_statistics(const tensor_view& x, const kernel_operands& operands) const {
  const std::int64_t channels = shape_.c;
  auto* sums = at<double>(operands, sums_at_);
  reduce_rows(context(), pixels_, 2 * channels, sums, [&](std::int64_t row, double* totals) {
    const float* values = x.as<float>() + row * x.pitch();
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto value = static_cast<double>(values[c]);
      totals[c] += value;
      totals[channels + c] += value * value;
    }
  });
  const auto count = static_cast<double>(pixels_);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / count;
    // NaN must survive: a maximum with zero could drop it.
    double variance = sums[channels + c] / count - mean * mean;
    if (variance < 0.0) variance = 0.0;
    operands.parameters_written[0][c] = static_cast<float>(mean);
    operands.parameters_written[1][c] =
        static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(epsilon_)));
  }
}

void batch_norm_kernel::execute(const kernel_operands& operands) {
  const tensor_view x = as_image(operands.inputs[0], batch(), shape_);
  const tensor_view y = as_image(operands.outputs[0], batch(), shape_);
  batch_norm_parameters parameters{operands.parameters[0], operands.parameters[1], nullptr, nullptr};
  if (operands.training) {
    batch_statistics(x, operands);
    parameters.mean = operands.parameters_written[0];
    parameters.inverse_deviation = operands.parameters_written[1];
  } else {
    auto* inverse = at<float>(operands, sums_at_);
    for (std::int64_t c = 0; c < shape_.c; ++c) {
      inverse[c] = static_cast<float>(
          1.0 / std::sqrt(static_cast<double>(operands.parameters[3][c]) + static_cast<double>(epsilon_)));
    }
    parameters.mean = operands.parameters[2];
    parameters.inverse_deviation = inverse;
  }
  batch_norm_apply(x, y, parameters, relu_, context());
}

/// With a joined ReLU the gradient is gated first, into dx; the rest is the same for all forms, so they agree
/// bit for bit.
class batch_norm_backward_kernel final : public kernel_base {
 public:
  explicit batch_norm_backward_kernel(const kernel_setup& setup)
      : kernel_base(setup),
        shape_(output_shape_of(setup, setup.op.inputs.at(0))),
        pixels_(batch() * shape_.h * shape_.w),
        relu_(setup.op.attributes.fused_relu) {
    sums_at_ = reserve(reduction_bytes(pixels_, 2 * shape_.c));
    factors_at_ = reserve(3 * shape_.c * 4);
  }

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  void gate(const const_tensor_view& x, const tensor_view& dy, const tensor_view& dx,
            const kernel_operands& operands) const;
  /// The ReLU's sign is computed again from x.
  template <bool NanPasses>
  void gate_again(const const_tensor_view& x, const tensor_view& dy, const tensor_view& dx,
                  const kernel_operands& operands) const;
  void parameter_gradients(const const_tensor_view& x, const tensor_view& g,
                           const kernel_operands& operands) const;
  void input_gradient(const const_tensor_view& x, const tensor_view& g, const tensor_view& dx,
                      const kernel_operands& operands) const;

  sample_shape shape_;
  std::int64_t pixels_;
  bool relu_;
  std::int64_t sums_at_, factors_at_;
};

void batch_norm_backward_kernel::gate(const const_tensor_view& x, const tensor_view& dy,
                                      const tensor_view& dx, const kernel_operands& operands) const {
  if (operands.form == "from_x_and_y") {
    if (const stash_operand& y = operands.stash[1]; y.dense) {
      relu_backward(dy, as_image(y.view, batch(), shape_), dx, rule(), context());
    } else {
      relu_backward(dy, y.stored, dx, rule(), context());
    }
    return;
  }
  if (rule() == framework_rule::pytorch) {
    gate_again<true>(x, dy, dx, operands);
  } else {
    gate_again<false>(x, dy, dx, operands);
  }
}

template <bool NanPasses>
void batch_norm_backward_kernel::gate_again(const const_tensor_view& x, const tensor_view& dy,
                                            const tensor_view& dx, const kernel_operands& operands) const {
  const float *scale = operands.parameters[0], *shift = operands.parameters[1];
  const float *mean = operands.parameters[2], *inverse = operands.parameters[3];
  parallel_ranges(context(), pixels_, std::max<std::int64_t>(1, loop_grain / shape_.c),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      const float* values = x.as<float>() + row * x.pitch();
                      const float* from = dy.as<float>() + row * dy.pitch();
                      float* to = dx.as<float>() + row * dx.pitch();
#pragma omp simd
                      for (std::int64_t c = 0; c < shape_.c; ++c) {
                        const float value =
                            batch_norm_value(values[c], scale[c], shift[c], mean[c], inverse[c]);
                        const bool passes = NanPasses ? !(value <= 0.0F) : value > 0.0F;
                        to[c] = encoders::masked(from[c], passes ? 1 : 0);
                      }
                    }
                  });
}

void batch_norm_backward_kernel::parameter_gradients(const const_tensor_view& x, const tensor_view& g,
                                                     const kernel_operands& operands) const {
  const std::int64_t channels = shape_.c;
  const float *scale = operands.parameters[0], *mean = operands.parameters[2],
              *inverse = operands.parameters[3];
  auto* sums = at<double>(operands, sums_at_);
  reduce_rows(context(), pixels_, 2 * channels, sums, [&](std::int64_t row, double* totals) {
    const float* values = x.as<float>() + row * x.pitch();
    const float* gradient = g.as<float>() + row * g.pitch();
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto value = static_cast<double>(gradient[c]);
      totals[c] += value;
      totals[channels + c] += value * static_cast<double>(values[c] - mean[c]);
    }
  });
  auto* factors = at<float>(operands, factors_at_);
  const auto count = static_cast<double>(pixels_);
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto deviation = static_cast<double>(inverse[c]);
    const double scale_gradient = sums[channels + c] * deviation;
    operands.parameters_written[0][c] = static_cast<float>(scale_gradient);
    operands.parameters_written[1][c] = static_cast<float>(sums[c]);
    factors[c] = scale[c] * inverse[c];
    factors[channels + c] = static_cast<float>(sums[c] / count);
    factors[2 * channels + c] = static_cast<float>(scale_gradient * deviation / count);
  }
}

void batch_norm_backward_kernel::input_gradient(const const_tensor_view& x, const tensor_view& g,
                                                const tensor_view& dx,
                                                const kernel_operands& operands) const {
  const std::int64_t channels = shape_.c;
  const float* mean = operands.parameters[2];
  const auto* factor = at<const float>(operands, factors_at_);
  const float *offset = factor + channels, *slope = factor + 2 * channels;
  parallel_ranges(context(), pixels_, std::max<std::int64_t>(1, loop_grain / channels),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      const float* values = x.as<float>() + row * x.pitch();
                      const float* gradient = g.as<float>() + row * g.pitch();
                      float* to = dx.as<float>() + row * dx.pitch();
#pragma omp simd
                      for (std::int64_t c = 0; c < channels; ++c) {
                        to[c] = factor[c] * (gradient[c] - offset[c] - (values[c] - mean[c]) * slope[c]);
                      }
                    }
                  });
}

void batch_norm_backward_kernel::execute(const kernel_operands& operands) {
  const tensor_view dy = as_image(operands.inputs[0], batch(), shape_);
  const tensor_view dx = as_image(operands.outputs[0], batch(), shape_);
  const const_tensor_view x = as_image(dense_stash(operands, 0), batch(), shape_);
  if (relu_) gate(x, dy, dx, operands);
  const tensor_view& gradient = relu_ ? dx : dy;
  parameter_gradients(x, gradient, operands);
  input_gradient(x, gradient, dx, operands);
}

}  // namespace

kernel_pointer make_batch_norm_kernel(const kernel_setup& setup) {
  if (setup.op.kind == op_kind::batch_norm) return std::make_unique<batch_norm_kernel>(setup);
  return std::make_unique<batch_norm_backward_kernel>(setup);
}

}  // namespace stash::executor
