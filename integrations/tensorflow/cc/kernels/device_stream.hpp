// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The stream of a device, through TensorFlow's own interface: no CUDA header.

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stream_executor {
class ActivateContext;
}

namespace stash_tf {

/// The native stream of a kernel on a device.
void* device_stream(tensorflow::OpKernelContext* context);

/// After the work in the stream.
absl::Status device_zero(tensorflow::OpKernelContext* context, void* data, std::size_t bytes);
absl::Status device_copy(tensorflow::OpKernelContext* context, const void* from, void* to, std::size_t bytes);

/// Calls `then` from a thread of TensorFlow's when the work that is in the stream now has ended. Does not
/// wait; the device runs on.
void when_reached(tensorflow::OpKernelContext* context, std::function<void()> then);

/// While it lives, the kernel's device is the thread's current one. It ends before a kernel says that it is
/// done: TensorFlow may run other kernels in there, for another device.
class current_device {
 public:
  explicit current_device(tensorflow::OpKernelContext* context);
  ~current_device();
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

 private:
  std::unique_ptr<stream_executor::ActivateContext> active_;
};

}  // namespace stash_tf
