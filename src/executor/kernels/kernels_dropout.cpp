// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "executor/kernels/kernels.hpp"
#include "stash/dropout.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// Dropout in both directions. The non-owning functions speak of masks as bits; a mask of one byte per
/// element (the unencoded baseline) is made from bits, and turned back into bits, in the workspace.
class dropout_kernel final : public kernel_base {
 public:
  explicit dropout_kernel(const kernel_setup& setup);

 protected:
  void execute(const kernel_operands& operands) override {
    if (forward_) {
      forward(operands);
    } else {
      backward(operands);
    }
  }

 private:
  void forward(const kernel_operands& operands) const;
  void backward(const kernel_operands& operands) const;

  bool forward_;
  float probability_;
  std::int64_t bits_at_ = 0, bits_bytes_ = 0;
};

constexpr encoding bits{.kind = encoding_kind::sign_mask};

dropout_kernel::dropout_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      forward_(setup.op.kind == op_kind::dropout),
      probability_(setup.op.attributes.drop_probability) {
  const std::int64_t elements = batch() * shape_of(setup, setup.op.inputs.at(0)).elements();
  bits_bytes_ = static_cast<std::int64_t>(encoded_bytes_bound(bits, dtype::u8, elements));
  bits_at_ = reserve(bits_bytes_);
}

void dropout_kernel::forward(const kernel_operands& operands) const {
  const tensor_view &x = operands.inputs[0], &y = operands.outputs[0];
  if (!operands.training) {
    if (x.data != y.data) copy_view(x, y, context());
    return;
  }
  const bool bytes = !operands.optional_outputs.empty() && operands.optional_outputs[0].requested &&
                     operands.optional_outputs[0].stored.kind == encoding_kind::raw;
  if (!bytes) {
    dropout_forward(x, y, auxiliary(operands, 0, encoding_kind::sign_mask), probability_, operands.key,
                    context());
    return;
  }
  const encoded_view mask = operands.optional_outputs[0].bytes;
  if (mask.bytes < static_cast<std::size_t>(x.elements())) {
    fail(errc::capacity_exceeded, "expected one byte per element in optional_outputs[0], got fewer");
  }
  encode_report report;
  void* made = at<std::uint8_t>(operands, bits_at_);
  const auto size = static_cast<std::size_t>(bits_bytes_);
  dropout_forward(x, y, {made, size, nullptr, &report}, probability_, operands.key, context());
  decode({bits, dtype::u8, shape({x.elements()}), {made, size, nullptr, &report}},
         {mask.data, dtype::u8, memory_space::host, shape({x.elements()})}, {}, context());
}

void dropout_kernel::backward(const kernel_operands& operands) const {
  const tensor_view &dy = operands.inputs[0], &dx = operands.outputs[0];
  if (operands.form == "from_seed") {
    dropout_backward(dy, dx, probability_, operands.key, context());
    return;
  }
  const stash_operand& mask = operands.stash[0];
  if (!mask.dense && mask.stored.how.kind == encoding_kind::sign_mask) {
    dropout_backward(dy, mask.stored, dx, probability_, context());
    return;
  }
  if (!mask.dense && mask.stored.how.kind != encoding_kind::raw) {
    fail(errc::unsupported,
         "expected a mask as bits or bytes in stash[0], got " + to_string(mask.stored.how));
  }
  const_tensor_view bytes = mask.dense ? mask.view : const_tensor_view{mask.stored.bytes.data, dtype::u8};
  bytes.type = dtype::u8;
  bytes.dims = shape({dy.elements()});
  bytes.pixel_pitch = 0;
  encode_report report;
  void* made = at<std::uint8_t>(operands, bits_at_);
  const auto size = static_cast<std::size_t>(bits_bytes_);
  encode(bits, bytes, {made, size, nullptr, &report}, {}, context());
  dropout_backward(dy, {bits, dtype::u8, bytes.dims, {made, size, nullptr, &report}}, dx, probability_,
                   context());
}

}  // namespace

kernel_pointer make_dropout_kernel(const kernel_setup& setup) {
  return std::make_unique<dropout_kernel>(setup);
}

}  // namespace stash::executor
