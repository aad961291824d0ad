// SPDX-License-Identifier: Apache-2.0
// StashDropout and StashDropoutGrad.

#include "absl/strings/str_cat.h"
#include "kernels/core_call.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class dropout_kernel : public counted_kernel {
 public:
  explicit dropout_kernel(OpKernelConstruction* context) : counted_kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rate", &rate_));
    OP_REQUIRES(context, rate_ >= 0 && rate_ < 1,
                wrong(op(), "rate", "0 or more and less than 1", absl::StrCat(rate_)));
    encoding_.kind = STASH_KIND_SIGN_MASK;
  }

 protected:
  float rate_ = 0;
  /// The mask has its layout.
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

class dropout_op : public dropout_kernel {
 public:
  using dropout_kernel::dropout_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& x = context->input(0);
    const Tensor& seed = context->input(1);
    if (seed.dims() != 1 || seed.NumElements() != 2) {
      return wrong(op(), "seed", "a vector of 2 numbers", seed.shape().DebugString());
    }
    auto key = STASH_INIT(stash_dropout_key);
    key.seed = static_cast<std::uint64_t>(seed.unaligned_flat<std::int64_t>()(0));
    key.step = static_cast<std::uint64_t>(seed.unaligned_flat<std::int64_t>()(1));
    const core_context core(context, on_device());
    const stash_tensor_view from = dense_view(x, core.space());
    stored_sizes sizes;
    TF_RETURN_IF_ERROR(sizes_of(op(), encoding_, from.type, from.dims[0], &sizes));
    stored_output stored;
    TF_RETURN_IF_ERROR(stored.allocate(context, core, 1, encoding_, sizes.most));
    Tensor* y = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    const stash_tensor_view to = dense_view(*y, core.space());
    TF_RETURN_IF_ERROR(
        from_core(op(), stash_dropout_forward(&from, &to, stored.view(), rate_, &key, core.get())));
    TF_RETURN_IF_ERROR(stored.close(op()));
    *done = of_dense(x, stored.bytes());
    return absl::OkStatus();
  }
};

class dropout_gradient : public dropout_kernel {
 public:
  using dropout_kernel::dropout_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& gradients = context->input(0);
    const core_context core(context, on_device());
    const stash_tensor_view dy = dense_view(gradients, core.space());
    stored_input stored;
    TF_RETURN_IF_ERROR(stored.open(context, core, op(), encoding_, dy.type, dy.dims[0], context->input(1)));
    Tensor* backprops = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({0}, 0, gradients.shape(), &backprops));
    const stash_tensor_view dx = dense_view(*backprops, core.space());
    TF_RETURN_IF_ERROR(from_core(op(), stash_dropout_backward(&dy, stored.tensor(), &dx, rate_, core.get())));
    TF_RETURN_IF_ERROR(stored.status(op()));
    *done = of_dense(gradients, context->input(1).NumElements());
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("StashDropout").Device(tensorflow::DEVICE_CPU), dropout_op);
REGISTER_KERNEL_BUILDER(Name("StashDropout").Device(tensorflow::DEVICE_GPU).HostMemory("seed"), dropout_op);
REGISTER_KERNEL_BUILDER(Name("StashDropoutGrad").Device(tensorflow::DEVICE_CPU), dropout_gradient);
REGISTER_KERNEL_BUILDER(Name("StashDropoutGrad").Device(tensorflow::DEVICE_GPU), dropout_gradient);

}  // namespace
}  // namespace stash_tf
