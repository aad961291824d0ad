// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What all kernels share: messages, time, the counter.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/counters.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace stash_tf {

/// InvalidArgument: "op: argument: expected ..., got ...".
absl::Status wrong(absl::string_view op, absl::string_view argument, absl::string_view expected,
                   absl::string_view got);

/// What a call of the C API has returned, with the text that it left.
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

/// A kernel with a counter that ends later than it returns; subclasses write begin().
class counted_async_kernel : public tensorflow::AsyncOpKernel {
 public:
  explicit counted_async_kernel(tensorflow::OpKernelConstruction* context);
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  /// Says what was done, but for the time, once the outputs are there or something failed.
  using end_callback = std::function<void(const absl::Status& status, const execution& done)>;

  /// Begins to compute the outputs; calls `end` once, from any thread. What it waits for counts as its time.
  virtual void begin(tensorflow::OpKernelContext* context, end_callback end) = 0;

  const std::string& op() const { return type_string(); }

 private:
  counter* counter_;
};

/// What is known of an execution from its dense tensor.
execution of_dense(const tensorflow::Tensor& dense, std::int64_t stored_bytes);

}  // namespace stash_tf
