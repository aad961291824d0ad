// StashSwapOut and StashSwapIn.

#include "kernels/kernel.hpp"

namespace stash_tf {
namespace {

/// On the CPU a tensor is on the host already.
class host_swap : public counted_kernel {
 public:
  using counted_kernel::counted_kernel;

  absl::Status run(tensorflow::OpKernelContext* context, execution* done) override {
    const tensorflow::Tensor& tensor = context->input(0);
    context->set_output(0, tensor);
    *done = of_dense(tensor, static_cast<std::int64_t>(tensor.tensor_data().size()));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("StashSwapOut").Device(tensorflow::DEVICE_CPU), host_swap);
REGISTER_KERNEL_BUILDER(Name("StashSwapIn").Device(tensorflow::DEVICE_CPU), host_swap);

}  // namespace
}  // namespace stash_tf
