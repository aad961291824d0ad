// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The kernels as a device back end. nvcc compiles them for CUDA, the host's compiler for the emulator; a
/// program has one of the two.

#include "encoders/device/device.hpp"

namespace stash::kernels {

/// Each file of kernels defines the calls that it launches for.
class device_kernels final : public encoders::device::kernel_calls {
 public:
  void count(const encoding& e, const const_tensor_view& input, encode_report* report,
             const execution_context& context) const override;
  void encode(const encode_item& item, const workspace_view& workspace,
              const execution_context& context) const override;
  void decode(const decode_item& item, const execution_context& context) const override;
  void encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                    const execution_context& context) const override;
  void decode_batch(std::span<const decode_item> items, const execution_context& context) const override;
  void canonicalise(const encoded_tensor& input, const encoded_view& output,
                    const execution_context& context) const override;
  void copy_encoded(const void* from, void* to, std::size_t bytes, encode_report* report,
                    const execution_context& context) const override;
  void csr_export32(const encoded_tensor& input, const csr32_view& out,
                    const execution_context& context) const override;
  void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                    framework_rule rule, const execution_context& context) const override;
  void relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                     framework_rule rule, const execution_context& context) const override;
  void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                     framework_rule rule, const execution_context& context) const override;
  void leaky_relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                          float slope, const execution_context& context) const override;
  void leaky_relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                           float slope, const execution_context& context) const override;
  void leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                           float slope, const execution_context& context) const override;
  void clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask, float lower,
                    float upper, framework_rule rule, const execution_context& context) const override;
  void clip_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                     float lower, float upper, framework_rule rule,
                     const execution_context& context) const override;
  void clip_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                     float lower, float upper, framework_rule rule,
                     const execution_context& context) const override;
  void dropout_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                       const encoders::dropout_constants& constants, const dropout_key& key,
                       const execution_context& context) const override;
  void dropout_backward(const const_tensor_view& dy, const encoded_tensor& mask, const tensor_view& dx,
                        const encoders::dropout_constants& constants,
                        const execution_context& context) const override;
  void dropout_backward(const const_tensor_view& dy, const tensor_view& dx,
                        const encoders::dropout_constants& constants, const dropout_key& key,
                        const execution_context& context) const override;
  void max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                        const encoded_view& index, framework_rule rule,
                        const execution_context& context) const override;
  void max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index, const tensor_view& dx,
                         const pool_window& window, const execution_context& context) const override;
  void max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                         const pool_window& window, framework_rule rule,
                         const execution_context& context) const override;
  void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                             const encoded_view& code, const encoded_view& index, framework_rule rule,
                             const execution_context& context) const override;
  void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code, const tensor_view& dx,
                              const pool_window& window, const execution_context& context) const override;
  void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                              const encoded_tensor& y, const tensor_view& dx, const pool_window& window,
                              framework_rule rule, const execution_context& context) const override;
  void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                              const const_tensor_view& y, const tensor_view& dx, const pool_window& window,
                              framework_rule rule, const execution_context& context) const override;
  void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                              const pool_window& window, framework_rule rule,
                              const execution_context& context) const override;
  void encode_window_index(const std::int64_t* flat, const shape& y, const shape& x,
                           const pool_window& window, const encoded_view& index,
                           const execution_context& context) const override;
  void decode_window_index(const encoded_tensor& index, const shape& x, const pool_window& window,
                           std::int64_t* flat, const execution_context& context) const override;
};

}  // namespace stash::kernels
