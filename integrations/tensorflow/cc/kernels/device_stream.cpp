#include "kernels/device_stream.hpp"

#include "xla/stream_executor/device_memory.h"
#include "xla/stream_executor/stream.h"

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

}  // namespace stash_tf
