// SPDX-License-Identifier: Apache-2.0
// StashEncode on GPUs.

#include <memory>
#include <utility>

#include "kernels/device_stream.hpp"
#include "kernels/encoder.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// A count of what a tensor needs, under way on the device.
class count {
 public:
  count() = default;
  count(const count&) = delete;
  count& operator=(const count&) = delete;
  ~count() { stash_size_query_destroy(query_); }

  absl::Status begin(OpKernelContext* context, const core_context& core, const stash_encoding& encoding) {
    const TensorShape shape({std::int64_t{sizeof(stash_encode_report)}});
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_UINT8, shape, &report_));
    auto* report = reinterpret_cast<stash_encode_report*>(report_.flat<std::uint8_t>().data());
    TF_RETURN_IF_ERROR(device_zero(context, report, sizeof(*report)));
    const stash_tensor_view dense = dense_view(context->input(0), core.space());
    return from_core("StashEncode", stash_size_query_count(&encoding, &dense, report, core.get(), &query_));
  }

  absl::Status end(stash_stored_size* size) const {
    return from_core("StashEncode", stash_size_query_wait(query_, size));
  }

 private:
  Tensor report_;
  stash_size_query* query_ = nullptr;
};

/// Sparse forms are counted first. The thread does not wait for the count, but whoever reads the outputs, or
/// waits for this op, does: the bytes must be known where memory is given out.
class device_encode_op : public counted_async_kernel {
 public:
  explicit device_encode_op(OpKernelConstruction* context)
      : counted_async_kernel(context), encoder_(context) {}

  void begin(OpKernelContext* context, end_callback end) override {
    const core_context core(context, true);
    std::size_t bound = 0;
    if (absl::Status status = encoder_.bound(context->input(0), &bound);
        !status.ok() || !encoder_.counts() || bound == 0) {
      execution done;
      if (status.ok()) status = encoder_.store(context, core, bound, &done);
      return end(status, done);
    }
    // Shared, because a std::function must be copyable.
    const auto counting = std::make_shared<count>();
    if (const absl::Status status = counting->begin(context, core, encoder_.encoding()); !status.ok())
      return end(status, execution());
    when_reached(context, [this, context, counting, end = std::move(end)] {
      auto size = STASH_INIT(stash_stored_size);
      execution done;
      absl::Status status = counting->end(&size);
      if (status.ok()) {
        const current_device device(context);
        status = encoder_.store(context, core_context(context, true), size.bytes, &done);
      }
      done.nonzeros = static_cast<std::int64_t>(size.nonzeros);
      end(status, done);
    });
  }

 private:
  const encoder encoder_;
};

REGISTER_KERNEL_BUILDER(Name("StashEncode").Device(tensorflow::DEVICE_GPU).HostMemory("dims"),
                        device_encode_op);

}  // namespace
}  // namespace stash_tf
