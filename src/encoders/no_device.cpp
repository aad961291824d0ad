// The device back end of a build without one. check_available() refuses every call, so nothing else is
// reached.

#include "detail.hpp"
#include "device.hpp"

namespace stash::detail::device {

void check_available(std::string_view function) {
  fail(errc::unsupported, function, "context", "a host context, or a build with CUDA", "a device context");
}

void encode(const encode_item&, const execution_context&) {}

void decode(const decode_item&, const execution_context&) {}

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

}  // namespace stash::detail::device
