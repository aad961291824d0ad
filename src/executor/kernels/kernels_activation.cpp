// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "executor/kernels/kernels.hpp"
#include "stash/error.hpp"
#include "stash/relu.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// What relu_backward calls "the gradient passes", on a dense y (or x: both have the same sign).
inline bool passes(float y, framework_rule rule) noexcept {
  return rule == framework_rule::pytorch ? !(y <= 0.0F) : y > 0.0F;
}

class relu_kernel final : public kernel_base {
 public:
  explicit relu_kernel(const kernel_setup& setup) : kernel_base(setup) {}

 protected:
  void execute(const kernel_operands& operands) override {
    relu_forward(operands.inputs[0], operands.outputs[0], {}, rule(), context());
  }
};

class relu_backward_kernel final : public kernel_base {
 public:
  explicit relu_backward_kernel(const kernel_setup& setup) : kernel_base(setup) {}

 protected:
  void execute(const kernel_operands& operands) override {
    const stash_operand& y = operands.stash[0];
    if (y.dense) {
      relu_backward(operands.inputs[0], y.view, operands.outputs[0], rule(), context());
    } else {
      relu_backward(operands.inputs[0], y.stored, operands.outputs[0], rule(), context());
    }
  }
};

/// Leaky ReLU and ReLU6: elementwise, in place where the operands say so.
class activation_kernel final : public kernel_base {
 public:
  explicit activation_kernel(const kernel_setup& setup)
      : kernel_base(setup), kind_(setup.op.kind), slope_(setup.op.attributes.negative_slope) {}

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  template <class Function>
  void map(const kernel_operands& operands, Function function) const;
  template <class Function>
  void map_gradient(const kernel_operands& operands, Function function) const;
  void leaky_backward_from_mask(const kernel_operands& operands) const;

  op_kind kind_;
  float slope_;
};

template <class Function>
void activation_kernel::map(const kernel_operands& operands, Function function) const {
  const tensor_view &x = operands.inputs[0], &y = operands.outputs[0];
  for_each_chunk(context(), x.elements(), x.dims.inner(), x.dense() && y.dense(),
                 [&](std::int64_t first, std::int64_t length) {
                   const float* from = element<float>(x, first);
                   float* to = element<float>(y, first);
#pragma omp simd
                   for (std::int64_t i = 0; i < length; ++i)
                     to[i] = function(from[i]);
                 });
}

template <class Function>
void activation_kernel::map_gradient(const kernel_operands& operands, Function function) const {
  const tensor_view &dy = operands.inputs[0], &dx = operands.outputs[0];
  const const_tensor_view& y = dense_stash(operands, 0);
  for_each_chunk(context(), dy.elements(), dy.dims.inner(), dy.dense() && dx.dense() && y.dense(),
                 [&](std::int64_t first, std::int64_t length) {
                   const float* gradient = element<float>(dy, first);
                   const float* value = element<float>(y, first);
                   float* to = element<float>(dx, first);
#pragma omp simd
                   for (std::int64_t i = 0; i < length; ++i)
                     to[i] = function(gradient[i], value[i]);
                 });
}

void activation_kernel::leaky_backward_from_mask(const kernel_operands& operands) const {
  const tensor_view &dy = operands.inputs[0], &dx = operands.outputs[0];
  const const_encoded_view& mask = encoded_stash(operands, 0, encoding_kind::sign_mask).bytes;
  if (mask.bytes < static_cast<std::size_t>((dy.elements() + 7) / 8)) {
    fail(errc::capacity_exceeded, "expected one mask bit per element in stash[0], got fewer");
  }
  const auto* bits = static_cast<const std::uint8_t*>(mask.data);
  for_each_chunk(context(), dy.elements(), dy.dims.inner(), dy.dense() && dx.dense(),
                 [&](std::int64_t first, std::int64_t length) {
                   const float* gradient = element<float>(dy, first);
                   float* to = element<float>(dx, first);
                   for (std::int64_t i = 0; i < length; ++i) {
                     const std::int64_t bit = first + i;
                     to[i] = (bits[bit / 8] >> (bit % 8) & 1) != 0 ? gradient[i] : slope_ * gradient[i];
                   }
                 });
}

void activation_kernel::execute(const kernel_operands& operands) {
  const float slope = slope_;
  const framework_rule r = rule();
  switch (kind_) {
    case op_kind::leaky_relu:
      map(operands, [slope](float x) { return x > 0.0F ? x : slope * x; });
      break;
    case op_kind::relu6:
      // Comparisons in this order keep NaN and turn -0 into +0.
      map(operands, [](float x) { return x <= 0.0F ? 0.0F : (x >= 6.0F ? 6.0F : x); });
      break;
    case op_kind::relu6_backward:
      if (!operands.stash[0].dense) {
        const encoded_tensor& mask = encoded_stash(operands, 0, encoding_kind::range_mask);
        clip_backward(operands.inputs[0], mask, operands.outputs[0], 0.0F, 6.0F, r, context());
        break;
      }
      map_gradient(operands, [](float dy, float y) { return y > 0.0F && y < 6.0F ? dy : 0.0F; });
      break;
    default:
      if (operands.stash[0].dense) {
        map_gradient(operands, [slope, r](float dy, float y) { return passes(y, r) ? dy : slope * dy; });
      } else {
        leaky_backward_from_mask(operands);
      }
  }
}

}  // namespace

kernel_pointer make_activation_kernel(const kernel_setup& setup) {
  switch (setup.op.kind) {
    case op_kind::relu:
      return std::make_unique<relu_kernel>(setup);
    case op_kind::relu_backward:
      return std::make_unique<relu_backward_kernel>(setup);
    default:
      return std::make_unique<activation_kernel>(setup);
  }
}

}  // namespace stash::executor
