// SPDX-License-Identifier: Apache-2.0
// The device back end of a build without one. check_available() refuses every call with a device context, and
// what owning objects begin with fails, so nothing else is reached.

#include "encoders/detail.hpp"
#include "encoders/device/device.hpp"
#include "encoders/device/device_memory.hpp"

namespace stash::detail::device {

void check_available(std::string_view function) {
  fail(errc::unsupported, function, "context", "a host context, or a build with CUDA", "a device context");
}

namespace {

/// For calls that have no context.
[[noreturn]] void fail_without_device(std::string_view function) {
  fail(errc::unsupported, function, "device", "a build with CUDA", "one without");
}

}  // namespace

void count(const encoding&, const const_tensor_view&, encode_report*, const execution_context&) {}

void encode(const encode_item&, const workspace_view&, const execution_context&) {}

void decode(const decode_item&, const execution_context&) {}

void encode_batch(std::span<const encode_item>, const workspace_view&, const execution_context&) {}

void decode_batch(std::span<const decode_item>, const execution_context&) {}

void canonicalise(const encoding&, dtype, std::int64_t, const const_encoded_view&, const encoded_view&,
                  const execution_context&) {}

void copy_encoded(const void*, void*, std::size_t, encode_report*, const execution_context&) {}

void csr_export32(const encoding&, const const_encoded_view&, std::int64_t, const csr32_view&,
                  const execution_context&) {}

void relu_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, framework_rule,
                  const execution_context&) {}

void relu_backward(const const_tensor_view&, const encoding&, const const_encoded_view&, const tensor_view&,
                   framework_rule, const execution_context&) {}

void relu_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, framework_rule,
                   const execution_context&) {}

void leaky_relu_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, float,
                        const execution_context&) {}

void leaky_relu_backward(const const_tensor_view&, const encoding&, const const_encoded_view&,
                         const tensor_view&, float, const execution_context&) {}

void leaky_relu_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, float,
                         const execution_context&) {}

void clip_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, float, float,
                  framework_rule, const execution_context&) {}

void clip_backward(const const_tensor_view&, const encoding&, const const_encoded_view&, const tensor_view&,
                   float, float, framework_rule, const execution_context&) {}

void clip_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, float, float,
                   framework_rule, const execution_context&) {}

void dropout_forward(const const_tensor_view&, const tensor_view&, const encoded_view&,
                     const dropout_constants&, const dropout_key&, const execution_context&) {}

void dropout_backward(const const_tensor_view&, const const_encoded_view&, const tensor_view&,
                      const dropout_constants&, const execution_context&) {}

void dropout_backward(const const_tensor_view&, const tensor_view&, const dropout_constants&,
                      const dropout_key&, const execution_context&) {}

// Memory: the first call of an owning object is an allocation.

void* allocate(std::size_t, void*) {
  fail_without_device("device_memory");
}
void deallocate(void*, void*) noexcept {}
void* allocate_pinned(std::size_t) {
  fail_without_device("pinned_memory");
}
void deallocate_pinned(void*) noexcept {}
void clear(void*, std::size_t, void*) {}
void copy(void*, const void*, std::size_t, void*) {}
void wait_for_stream(void*) {}
void* create_stream() {
  fail_without_device("stream");
}
void destroy_stream(void*) noexcept {}
event record_event(void*) {
  return nullptr;
}
bool reached(event) {
  return true;
}
void wait_for_event(event) {}
void wait_in_stream(void*, event) {}
void destroy_event(event) noexcept {}

void max_pool_forward(const const_tensor_view&, const tensor_view&, const pool_window&, const encoded_view&,
                      framework_rule, const execution_context&) {}

void max_pool_backward(const const_tensor_view&, const const_encoded_view&, const tensor_view&,
                       const pool_window&, const execution_context&) {}

void max_pool_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&,
                       const pool_window&, framework_rule, const execution_context&) {}

void relu_max_pool_forward(const const_tensor_view&, const tensor_view&, const pool_window&,
                           const encoded_view&, const encoded_view&, framework_rule,
                           const execution_context&) {}

void relu_max_pool_backward(const const_tensor_view&, const const_encoded_view&, const tensor_view&,
                            const pool_window&, const execution_context&) {}

void relu_max_pool_backward(const const_tensor_view&, const const_encoded_view&, const encoding&,
                            const const_encoded_view&, const tensor_view&, const pool_window&, framework_rule,
                            const execution_context&) {}

void relu_max_pool_backward(const const_tensor_view&, const const_encoded_view&, const const_tensor_view&,
                            const tensor_view&, const pool_window&, framework_rule,
                            const execution_context&) {}

void relu_max_pool_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&,
                            const pool_window&, framework_rule, const execution_context&) {}

void encode_window_index(const std::int64_t*, const shape&, const shape&, const pool_window&,
                         const encoded_view&, const execution_context&) {}

void decode_window_index(const const_encoded_view&, const shape&, const shape&, const pool_window&,
                         std::int64_t*, const execution_context&) {}

}  // namespace stash::detail::device
