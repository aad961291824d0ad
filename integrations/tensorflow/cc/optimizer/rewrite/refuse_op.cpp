// SPDX-License-Identifier: Apache-2.0
// An op that fails: how a step whose budget is too small says so, because an optimizer cannot.

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stash_tf {

namespace {

REGISTER_OP("StashRefuse")
    .Attr("message: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc("Fails with its message.");

class refuse_kernel : public tensorflow::OpKernel {
 public:
  explicit refuse_kernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("message", &message_));
  }
  void Compute(tensorflow::OpKernelContext* context) override {
    context->SetStatus(absl::ResourceExhaustedError(message_));
  }

 private:
  std::string message_;
};

REGISTER_KERNEL_BUILDER(Name("StashRefuse").Device(tensorflow::DEVICE_CPU), refuse_kernel);
REGISTER_KERNEL_BUILDER(Name("StashRefuse").Device(tensorflow::DEVICE_GPU), refuse_kernel);

}  // namespace

}  // namespace stash_tf
