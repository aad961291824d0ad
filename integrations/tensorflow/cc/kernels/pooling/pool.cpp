// SPDX-License-Identifier: Apache-2.0
// StashMaxPool and StashMaxPoolGrad.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core_call.hpp"
#include "kernels/pooling/pool_layer.hpp"
#include "kernels/pooling/pool_nan.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using dims = std::vector<std::int64_t>;

dims dims_of(const TensorShape& shape) {
  const auto sizes = shape.dim_sizes();
  return dims(sizes.begin(), sizes.end());
}

/// With its dimensions, unlike dense_view().
stash_tensor_view map_view(const Tensor& tensor, std::int32_t space) {
  stash_tensor_view view = dense_view(tensor, space);
  view.rank = tensor.dims();
  for (int axis = 0; axis < tensor.dims(); ++axis)
    view.dims[axis] = tensor.dim_size(axis);
  return view;
}

class pool_kernel : public counted_kernel {
 public:
  explicit pool_kernel(OpKernelConstruction* context) : counted_kernel(context) {
    pool_attributes attributes;
    OP_REQUIRES_OK(context, attributes.read(context));
    OP_REQUIRES_OK(context, layer_.make(op(), attributes));
  }

 protected:
  pool_layer layer_;
};

class max_pool_op : public pool_kernel {
 public:
  using pool_kernel::pool_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& x = context->input(0);
    const dims in = dims_of(x.shape());
    dims out;
    TF_RETURN_IF_ERROR(layer_.output_dims(op(), in, &out));
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(out, &shape));
    Tensor* y = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &y));
    const core_context core(context, on_device());
    const stash_encoding& encoding = layer_.encoding();
    stored_sizes sizes;
    TF_RETURN_IF_ERROR(sizes_of(op(), encoding, core_type(x.dtype()), y->NumElements(), &sizes));
    stored_output stored;
    TF_RETURN_IF_ERROR(stored.allocate(context, core, 1, encoding, sizes.most));
    Tensor* list = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(2, TensorShape({x.dims()}), &list));
    std::copy(in.begin(), in.end(), list->unaligned_flat<std::int64_t>().data());
    *done = of_dense(x, stored.bytes());
    if (y->NumElements() == 0) return absl::OkStatus();

    const stash_tensor_view from = map_view(x, core.space());
    const stash_tensor_view to = map_view(*y, core.space());
    const stash_pool_window window = layer_.window(in, out);
    TF_RETURN_IF_ERROR(from_core(
        op(), layer_.joint_relu() ? stash_relu_max_pool_forward(&from, &to, &window, stored.view(), nullptr,
                                                                STASH_RULE_TENSORFLOW, core.get())
                                  : stash_max_pool_forward(&from, &to, &window, stored.view(),
                                                           STASH_RULE_TENSORFLOW, core.get())));
    TF_RETURN_IF_ERROR(stored.close(op()));
    if (!core.on_device() && layer_.rank() == 4) {
      follow_host_nan_rule(layer_, x, in, y, out, *core.get());
    }
    return absl::OkStatus();
  }
};

class max_pool_gradient : public pool_kernel {
 public:
  using pool_kernel::pool_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& gradients = context->input(0);
    TensorShape shape;
    TF_RETURN_IF_ERROR(shape_of(op(), context->input(2), &shape));
    const dims in = dims_of(shape);
    if (shape.dims() != layer_.rank()) {
      return wrong(op(), "dims", absl::StrCat(layer_.rank(), " dimensions"), absl::StrCat(shape.dims()));
    }
    dims out;
    TF_RETURN_IF_ERROR(layer_.output_dims(op(), in, &out));
    if (dims_of(gradients.shape()) != out) {
      return wrong(op(), "gradients",
                   absl::StrCat("the shape [", absl::StrJoin(out, ","), "] that dims gives"),
                   gradients.shape().DebugString());
    }
    const core_context core(context, on_device());
    stored_input stored;
    TF_RETURN_IF_ERROR(stored.open(context, core, op(), layer_.encoding(), core_type(gradients.dtype()),
                                   gradients.NumElements(), context->input(1)));
    Tensor* backprops = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &backprops));
    *done = of_dense(*backprops, context->input(1).NumElements());
    if (backprops->NumElements() == 0) return absl::OkStatus();

    const stash_tensor_view dy = map_view(gradients, core.space());
    const stash_tensor_view dx = map_view(*backprops, core.space());
    const stash_pool_window window = layer_.window(in, out);
    const auto backward = layer_.joint_relu() ? stash_relu_max_pool_backward : stash_max_pool_backward;
    TF_RETURN_IF_ERROR(from_core(op(), backward(&dy, stored.tensor(), &dx, &window, core.get())));
    return stored.status(op());
  }
};

REGISTER_KERNEL_BUILDER(Name("StashMaxPool").Device(tensorflow::DEVICE_CPU), max_pool_op);
REGISTER_KERNEL_BUILDER(Name("StashMaxPool").Device(tensorflow::DEVICE_GPU).HostMemory("dims"), max_pool_op);
REGISTER_KERNEL_BUILDER(Name("StashMaxPoolGrad").Device(tensorflow::DEVICE_CPU), max_pool_gradient);
REGISTER_KERNEL_BUILDER(Name("StashMaxPoolGrad").Device(tensorflow::DEVICE_GPU).HostMemory("dims"),
                        max_pool_gradient);

}  // namespace
}  // namespace stash_tf
