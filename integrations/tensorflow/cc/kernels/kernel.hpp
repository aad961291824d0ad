#pragma once
/// \file
/// What all kernels share: messages, time, the counter.

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/counters.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace stash_tf {

/// InvalidArgument: "op: argument: expected ..., got ...".
absl::Status wrong(absl::string_view op, absl::string_view argument, absl::string_view expected,
                   absl::string_view got);

/// What a call of the C door has returned, with the text that it left.
absl::Status from_core(absl::string_view op, std::int32_t code);

/// A kernel with a counter; subclasses write run().
class counted_kernel : public tensorflow::OpKernel {
 public:
  explicit counted_kernel(tensorflow::OpKernelConstruction* context);
  void Compute(tensorflow::OpKernelContext* context) final;

 protected:
  /// Computes the outputs and says what was done, but for the time.
  virtual absl::Status run(tensorflow::OpKernelContext* context, execution* done) = 0;

  const std::string& op() const { return type_string(); }
  /// True in a kernel of DEVICE_GPU: tensors that are not registered as host memory are on the device.
  bool on_device() const { return on_device_; }

 private:
  counter* counter_;
  bool on_device_;
};

/// What is known of an execution from its dense tensor.
execution of_dense(const tensorflow::Tensor& dense, std::int64_t stored_bytes);

}  // namespace stash_tf
