// SPDX-License-Identifier: Apache-2.0
// StashBatch.

#include "kernels/kernel.hpp"

namespace stash_tf {
namespace {

class batch_op : public counted_kernel {
 public:
  explicit batch_op(tensorflow::OpKernelConstruction* context) : counted_kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("per_sample", &per_sample_));
  }

  absl::Status run(tensorflow::OpKernelContext* context, execution* done) override {
    done->elements = context->input(0).NumElements() / per_sample_;
    return absl::OkStatus();
  }

 private:
  std::int64_t per_sample_ = 1;
};

REGISTER_KERNEL_BUILDER(Name("StashBatch").Device(tensorflow::DEVICE_CPU), batch_op);
REGISTER_KERNEL_BUILDER(Name("StashBatch").Device(tensorflow::DEVICE_GPU), batch_op);

}  // namespace
}  // namespace stash_tf
