#pragma once
/// \file
/// The stream of a device, through TensorFlow's own interface: no CUDA header.

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stash_tf {

/// The native stream of a kernel on a device.
void* device_stream(tensorflow::OpKernelContext* context);

/// Behind the work in the stream.
absl::Status device_zero(tensorflow::OpKernelContext* context, void* data, std::size_t bytes);
absl::Status device_copy(tensorflow::OpKernelContext* context, const void* from, void* to, std::size_t bytes);

/// Calls `then` from a thread of TensorFlow's, in which the device is the current one, when the work that is
/// in the stream now has ended. Does not wait; the device runs on.
void when_reached(tensorflow::OpKernelContext* context, std::function<void()> then);

}  // namespace stash_tf
