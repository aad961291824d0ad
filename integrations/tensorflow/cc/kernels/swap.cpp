// StashSwapOut and StashSwapIn.

#include <chrono>
#include <cstring>

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

/// Copies in the device's own streams for that, beside the stream of the kernels.
class device_swap : public tensorflow::AsyncOpKernel {
 public:
  explicit device_swap(OpKernelConstruction* context)
      : AsyncOpKernel(context), out_(type_string() == "StashSwapOut") {
    std::string tensor;
    OP_REQUIRES_OK(context, context->GetAttr("tensor", &tensor));
    counter_ = counter_of(type_string(), tensor);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto begin = std::chrono::steady_clock::now();
    const Tensor& from = context->input(0);
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(out_);
    attributes.set_gpu_compatible(out_);
    Tensor* to = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, from.shape(), &to, attributes), done);
    auto end = [this, context, begin, done = std::move(done)](const absl::Status& status) {
      if (!status.ok()) {
        context->SetStatus(status);
      } else {
        const Tensor& tensor = context->input(0);
        execution e = of_dense(tensor, static_cast<std::int64_t>(tensor.tensor_data().size()));
        const auto time = std::chrono::steady_clock::now() - begin;
        e.nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
        counter_->add(e);
      }
      done();
    };
    if (from.NumElements() == 0) return end(absl::OkStatus());
    auto* device = static_cast<tensorflow::Device*>(context->device());
    tensorflow::DeviceContext* copier = context->op_device_context();
    if (out_) {
      copier->CopyDeviceTensorToCPU(&from, name(), device, to, std::move(end));
    } else {
      copier->CopyCPUTensorToDevice(&from, device, to, std::move(end));
    }
  }

 private:
  bool out_;
  counter* counter_ = nullptr;
};

REGISTER_KERNEL_BUILDER(Name("StashSwapOut").Device(tensorflow::DEVICE_CPU), host_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapIn").Device(tensorflow::DEVICE_CPU), host_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapOut").Device(tensorflow::DEVICE_GPU).HostMemory("host"), device_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapIn").Device(tensorflow::DEVICE_GPU).HostMemory("host"), device_swap);

}  // namespace
}  // namespace stash_tf
