// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/kernels.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// add, accumulate (an add whose output is its first input) and copy.
class sum_kernel final : public kernel_base {
 public:
  explicit sum_kernel(const kernel_setup& setup) : kernel_base(setup), kind_(setup.op.kind) {}

 protected:
  void execute(const kernel_operands& operands) override {
    const tensor_view& output = operands.outputs[0];
    if (kind_ == op_kind::copy) {
      copy_view(operands.inputs[0], output, context());
      return;
    }
    const tensor_view &a = operands.inputs[0], &b = operands.inputs[1];
    for_each_chunk(context(), output.elements(), output.dims.inner(),
                   a.dense() && b.dense() && output.dense(), [&](std::int64_t first, std::int64_t length) {
                     const float* left = element<float>(a, first);
                     const float* right = element<float>(b, first);
                     float* to = element<float>(output, first);
#pragma omp simd
                     for (std::int64_t i = 0; i < length; ++i)
                       to[i] = left[i] + right[i];
                   });
  }

 private:
  op_kind kind_;
};

}  // namespace

kernel_pointer make_sum_kernel(const kernel_setup& setup) {
  return std::make_unique<sum_kernel>(setup);
}

}  // namespace stash::executor
