// SPDX-License-Identifier: Apache-2.0
// StashSwapOut and StashSwapIn.

#include <cstring>
#include <utility>

#include "kernels/kernel.hpp"
#include "tensorflow/core/framework/device.h"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

/// On the CPU a tensor is on the host already. It is copied all the same, so that who reads what when is as
/// on a device.
class host_swap : public counted_kernel {
 public:
  using counted_kernel::counted_kernel;

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& tensor = context->input(0);
    Tensor* copy = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, tensor.shape(), &copy));
    const auto bytes = tensor.tensor_data();
    if (!bytes.empty())
      std::memcpy(const_cast<char*>(copy->tensor_data().data()), bytes.data(), bytes.size());
    *done = of_dense(tensor, static_cast<std::int64_t>(tensor.tensor_data().size()));
    return absl::OkStatus();
  }
};

/// Copies in the device's own streams for that, in parallel with the stream of the kernels.
class device_swap : public counted_async_kernel {
 public:
  explicit device_swap(OpKernelConstruction* context)
      : counted_async_kernel(context), out_(op() == "StashSwapOut") {}

  void begin(OpKernelContext* context, end_callback end) override {
    const Tensor& from = context->input(0);
    const execution copied = of_dense(from, static_cast<std::int64_t>(from.tensor_data().size()));
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(out_);
    attributes.set_gpu_compatible(out_);
    Tensor* to = nullptr;
    const absl::Status allocated = context->allocate_output(0, from.shape(), &to, attributes);
    if (!allocated.ok() || from.NumElements() == 0) return end(allocated, copied);
    auto* device = static_cast<tensorflow::Device*>(context->device());
    tensorflow::DeviceContext* copier = context->op_device_context();
    auto done = [copied, end = std::move(end)](const absl::Status& status) { end(status, copied); };
    if (out_) {
      copier->CopyDeviceTensorToCPU(&from, name(), device, to, std::move(done));
    } else {
      copier->CopyCPUTensorToDevice(&from, device, to, std::move(done));
    }
  }

 private:
  bool out_;
};

REGISTER_KERNEL_BUILDER(Name("StashSwapOut").Device(tensorflow::DEVICE_CPU), host_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapIn").Device(tensorflow::DEVICE_CPU), host_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapOut").Device(tensorflow::DEVICE_GPU).HostMemory("host"), device_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapIn").Device(tensorflow::DEVICE_GPU).HostMemory("host"), device_swap);

}  // namespace
}  // namespace stash_tf
