// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/kernels.hpp"
#include "stash/pool.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// Max pooling alone or joined with ReLU: the non-owning functions on (n, h, w, c) views.
class max_pool_kernel final : public kernel_base {
 public:
  explicit max_pool_kernel(const kernel_setup& setup);

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  void forward(const kernel_operands& operands) const;
  void backward(const kernel_operands& operands) const;

  bool forward_, joined_;
  pool_window window_;
  sample_shape in_, out_;
};

max_pool_kernel::max_pool_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      forward_(setup.op.kind == op_kind::max_pool || setup.op.kind == op_kind::relu_max_pool),
      joined_(setup.op.kind == op_kind::relu_max_pool || setup.op.kind == op_kind::relu_max_pool_backward) {
  const planner::op_attributes& a = setup.op.attributes;
  window_ = {a.kernel_h, a.kernel_w, a.stride_h, a.stride_w, a.pad_top, a.pad_left};
  const planner::tensor_ref &first = setup.op.inputs.at(0), &second = setup.op.outputs.at(0);
  in_ = input_shape_of(setup, forward_ ? first : second);
  out_ = output_shape_of(setup, forward_ ? second : first);
}

void max_pool_kernel::execute(const kernel_operands& operands) {
  if (forward_) {
    forward(operands);
  } else {
    backward(operands);
  }
}

void max_pool_kernel::forward(const kernel_operands& operands) const {
  const tensor_view x = as_image(operands.inputs[0], batch(), in_),
                    y = as_image(operands.outputs[0], batch(), out_);
  const encoded_view index = auxiliary(operands, 0, encoding_kind::window_index);
  if (joined_) {
    relu_max_pool_forward(x, y, window_, auxiliary(operands, 1, encoding_kind::relu_pool), index, rule(),
                          context());
  } else {
    max_pool_forward(x, y, window_, index, rule(), context());
  }
}

void max_pool_kernel::backward(const kernel_operands& operands) const {
  const tensor_view dy = as_image(operands.inputs[0], batch(), out_),
                    dx = as_image(operands.outputs[0], batch(), in_);
  if (operands.form == "from_x") {
    const const_tensor_view x = as_image(dense_stash(operands, 0), batch(), in_);
    if (joined_) {
      relu_max_pool_backward(dy, x, dx, window_, rule(), context());
    } else {
      max_pool_backward(dy, x, dx, window_, rule(), context());
    }
  } else if (operands.form == "from_code") {
    relu_max_pool_backward(dy, encoded_stash(operands, 0, encoding_kind::relu_pool), dx, window_, context());
  } else {
    const encoded_tensor& index = encoded_stash(operands, 0, encoding_kind::window_index);
    if (!joined_) {
      max_pool_backward(dy, index, dx, window_, context());
    } else if (const stash_operand& y = operands.stash[1]; y.dense) {
      relu_max_pool_backward(dy, index, as_image(y.view, batch(), out_), dx, window_, rule(), context());
    } else {
      relu_max_pool_backward(dy, index, y.stored, dx, window_, rule(), context());
    }
  }
}

}  // namespace

kernel_pointer make_max_pool_kernel(const kernel_setup& setup) {
  return std::make_unique<max_pool_kernel>(setup);
}

}  // namespace stash::executor
