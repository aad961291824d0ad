// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "stash/c_api.h"

namespace stash_tf {
namespace {

using clock = std::chrono::steady_clock;

/// Null, and the kernel is not made, if the attribute is missing.
counter* find_counter(tensorflow::OpKernelConstruction* context) {
  std::string tensor;
  const absl::Status status = context->GetAttr("tensor", &tensor);
  if (!status.ok()) {
    context->CtxFailure(status);
    return nullptr;
  }
  return counter_of(context->def().op(), tensor);
}

void count(counter* counter, clock::time_point begin, execution done) {
  done.nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
  counter->add(done);
}

}  // namespace

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
      counter_(find_counter(context)),
      on_device_(context->device_type() == tensorflow::DEVICE_GPU) {}

void counted_kernel::Compute(tensorflow::OpKernelContext* context) {
  const clock::time_point begin = clock::now();
  execution done;
  OP_REQUIRES_OK(context, run(context, &done));
  count(counter_, begin, done);
}

counted_async_kernel::counted_async_kernel(tensorflow::OpKernelConstruction* context)
    : tensorflow::AsyncOpKernel(context), counter_(find_counter(context)) {}

void counted_async_kernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const clock::time_point begun = clock::now();
  begin(context,
        [this, context, begun, done = std::move(done)](const absl::Status& status, const execution& ended) {
          if (status.ok()) {
            count(counter_, begun, ended);
          } else {
            context->SetStatus(status);
          }
          done();
        });
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
