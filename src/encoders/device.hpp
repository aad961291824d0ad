#pragma once
/// \file
/// The door from the encoders into the device back end. Arguments have been checked; the views lie in device
/// memory, and the calls enqueue kernels in the context's stream: they allocate nothing and wait for nothing.
/// Implemented three times: by the CUDA kernels, by the same kernels under the emulator of the tests, and by
/// no_device.cpp, which throws error(unsupported). A program links one of them.

#include "stash/batch.hpp"
#include "stash/encoding.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace stash::detail::device {

/// Throws error(unsupported) if this build has no device back end.
void check_available(std::string_view function);

void encode(const encode_item& item, const execution_context& context);
void decode(const decode_item& item, const execution_context& context);

void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                  framework_rule rule, const execution_context& context);
void relu_backward(const const_tensor_view& dy, const encoding& e, const const_encoded_view& stash,
                   const tensor_view& dx, framework_rule rule, const execution_context& context);
void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                   framework_rule rule, const execution_context& context);

void leaky_relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                        float slope, const execution_context& context);
void leaky_relu_backward(const const_tensor_view& dy, const encoding& e, const const_encoded_view& stash,
                         const tensor_view& dx, float slope, const execution_context& context);
void leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                         float slope, const execution_context& context);

void clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask, float lower,
                  float upper, framework_rule rule, const execution_context& context);
void clip_backward(const const_tensor_view& dy, const encoding& e, const const_encoded_view& stash,
                   const tensor_view& dx, float lower, float upper, framework_rule rule,
                   const execution_context& context);
void clip_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                   float lower, float upper, framework_rule rule, const execution_context& context);

void max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                      const encoded_view& index, framework_rule rule, const execution_context& context);
void max_pool_backward(const const_tensor_view& dy, const const_encoded_view& index, const tensor_view& dx,
                       const pool_window& window, const execution_context& context);
void max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                       const pool_window& window, framework_rule rule, const execution_context& context);
void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                           const encoded_view& code, const encoded_view& index, framework_rule rule,
                           const execution_context& context);
void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& code,
                            const tensor_view& dx, const pool_window& window,
                            const execution_context& context);
/// The stash is sign_mask, raw or a cast.
void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& index,
                            const encoding& y_encoding, const const_encoded_view& y_stash,
                            const tensor_view& dx, const pool_window& window, framework_rule rule,
                            const execution_context& context);
void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& index,
                            const const_tensor_view& y, const tensor_view& dx, const pool_window& window,
                            framework_rule rule, const execution_context& context);
void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                            const pool_window& window, framework_rule rule, const execution_context& context);

}  // namespace stash::detail::device
