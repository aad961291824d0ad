// SPDX-License-Identifier: Apache-2.0
// StashReluGrad, StashRelu6Grad and StashLeakyReluGrad.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/attributes.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

/// backprops = passes ? gradients : slope * gradients. TensorFlow multiplies where a gradient does not pass,
/// too: with 0 for ReLU, so that -1 becomes -0 and an infinity NaN, which loss scaling has to see. So each of
/// the three is a leaky ReLU here.
class leaky_gradient : public counted_kernel {
 public:
  using counted_kernel::counted_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& gradients = context->input(0);
    const Tensor& stored_bytes = context->input(1);
    const core_context core(context, on_device());
    const stash_tensor_view dy = dense_view(gradients, core.space());
    stored_input stored;
    TF_RETURN_IF_ERROR(stored.open(context, core, op(), encoding_, dy.type, dy.dims[0], stored_bytes));
    Tensor* backprops = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({0}, 0, gradients.shape(), &backprops));
    const stash_tensor_view dx = dense_view(*backprops, core.space());
    TF_RETURN_IF_ERROR(
        from_core(op(), stash_leaky_relu_backward(&dy, stored.tensor(), &dx, slope_, core.get())));
    TF_RETURN_IF_ERROR(stored.status(op()));
    *done = of_dense(gradients, stored_bytes.NumElements());
    return absl::OkStatus();
  }

 protected:
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
  float slope_ = 0;
};

class relu_gradient : public leaky_gradient {
 public:
  explicit relu_gradient(OpKernelConstruction* context) : leaky_gradient(context) {
    OP_REQUIRES_OK(context, read_sign_encoding(context, &encoding_));
  }
};

class relu6_gradient : public leaky_gradient {
 public:
  explicit relu6_gradient(OpKernelConstruction* context) : leaky_gradient(context) {
    // A range_mask is a plane of the same bits, and says already where gradients pass.
    encoding_.kind = STASH_KIND_SIGN_MASK;
  }
};

class leaky_relu_gradient : public leaky_gradient {
 public:
  explicit leaky_relu_gradient(OpKernelConstruction* context) : leaky_gradient(context) {
    OP_REQUIRES_OK(context, read_sign_encoding(context, &encoding_));
    float alpha = 0;
    OP_REQUIRES_OK(context, context->GetAttr("alpha", &alpha));
    OP_REQUIRES(context, std::isfinite(alpha), wrong(op(), "alpha", "a finite number", absl::StrCat(alpha)));
    slope_ = rounded(alpha, context->input_type(0));
  }

 private:
  /// TensorFlow multiplies with alpha in the tensor's type.
  static float rounded(float alpha, tensorflow::DataType type) {
    switch (type) {
      case tensorflow::DT_HALF:
        return static_cast<float>(static_cast<Eigen::half>(alpha));
      case tensorflow::DT_BFLOAT16:
        return static_cast<float>(static_cast<Eigen::bfloat16>(alpha));
      default:
        return alpha;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("StashReluGrad").Device(tensorflow::DEVICE_CPU), relu_gradient);
REGISTER_KERNEL_BUILDER(Name("StashReluGrad").Device(tensorflow::DEVICE_GPU), relu_gradient);
REGISTER_KERNEL_BUILDER(Name("StashRelu6Grad").Device(tensorflow::DEVICE_CPU), relu6_gradient);
REGISTER_KERNEL_BUILDER(Name("StashRelu6Grad").Device(tensorflow::DEVICE_GPU), relu6_gradient);
REGISTER_KERNEL_BUILDER(Name("StashLeakyReluGrad").Device(tensorflow::DEVICE_CPU), leaky_relu_gradient);
REGISTER_KERNEL_BUILDER(Name("StashLeakyReluGrad").Device(tensorflow::DEVICE_GPU), leaky_relu_gradient);

}  // namespace
}  // namespace stash_tf
