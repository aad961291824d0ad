#include "kernels/kernel.hpp"

#include "absl/strings/str_cat.h"
#include "stash/c_api.h"

namespace stash_tf {

absl::Status wrong(absl::string_view op, absl::string_view argument, absl::string_view expected,
                   absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", argument, ": expected ", expected, ", got ", got));
}

absl::Status from_core(absl::string_view op, std::int32_t code) {
  if (code == STASH_OK) return absl::OkStatus();
  const std::string text = absl::StrCat(op, ": ", stash_last_error_message());
  switch (code) {
    case STASH_INVALID_ARGUMENT:
    case STASH_CAPACITY_EXCEEDED:
      return absl::InvalidArgumentError(text);
    case STASH_UNSUPPORTED:
      return absl::UnimplementedError(text);
    case STASH_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(text);
    case STASH_CORRUPT_DATA:
      return absl::DataLossError(text);
    default:
      return absl::InternalError(text);
  }
}

counted_kernel::counted_kernel(tensorflow::OpKernelConstruction* context)
    : tensorflow::OpKernel(context),
      counter_(nullptr),
      on_device_(context->device_type() == tensorflow::DEVICE_GPU) {
  std::string tensor;
  OP_REQUIRES_OK(context, context->GetAttr("tensor", &tensor));
  counter_ = counter_of(op(), tensor);
}

void counted_kernel::Compute(tensorflow::OpKernelContext* context) {
  const auto begin = std::chrono::steady_clock::now();
  execution done;
  OP_REQUIRES_OK(context, run(context, &done));
  const auto time = std::chrono::steady_clock::now() - begin;
  done.nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  counter_->add(done);
}

execution of_dense(const tensorflow::Tensor& dense, std::int64_t stored_bytes) {
  execution done;
  done.elements = dense.NumElements();
  done.dense_bytes = static_cast<std::int64_t>(dense.tensor_data().size());
  done.stored_bytes = stored_bytes;
  done.batch = dense.dims() == 0 ? 1 : dense.dim_size(0);
  return done;
}

}  // namespace stash_tf
