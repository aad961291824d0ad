// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_stream.hpp"

#include <utility>

#include "tensorflow/core/common_runtime/device/device_event_mgr.h"
#include "xla/stream_executor/activate_context.h"
#include "xla/stream_executor/device_memory.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

namespace stash_tf {
namespace {

using memory = stream_executor::DeviceMemoryBase;

}  // namespace

void* device_stream(tensorflow::OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}

absl::Status device_zero(tensorflow::OpKernelContext* context, void* data, std::size_t bytes) {
  memory location(data, bytes);
  return context->op_device_context()->stream()->MemZero(&location, bytes);
}

absl::Status device_copy(tensorflow::OpKernelContext* context, const void* from, void* to,
                         std::size_t bytes) {
  const memory source(const_cast<void*>(from), bytes);
  memory target(to, bytes);
  return context->op_device_context()->stream()->MemcpyD2D(&target, source, bytes);
}

void when_reached(tensorflow::OpKernelContext* context, std::function<void()> then) {
  context->device()->tensorflow_accelerator_device_info()->event_mgr->ThenExecute(
      context->op_device_context()->stream(), std::move(then));
}

current_device::current_device(tensorflow::OpKernelContext* context)
    : active_(context->op_device_context()->stream()->parent()->Activate()) {}

current_device::~current_device() = default;

}  // namespace stash_tf
