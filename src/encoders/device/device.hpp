// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The interface from the encoders to the kernels of a device back end. Arguments have been checked; the
/// views lie in device memory, and the calls enqueue kernels in the context's stream: they allocate nothing
/// and wait for nothing. A back end registers an object of it (backend.hpp): CUDA does, and so does the
/// emulator of the tests, which runs the same kernels.

#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/encoding.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace stash::encoders {

/// The two numbers that a probability stands for (docs/format.md, "dropout").
struct dropout_constants {
  std::uint32_t threshold;  ///< words below it drop their element
  float scale;
};

/// Workspace of bitmap and csr in canonical order: a counter, and a word for each eight tiles.
constexpr std::size_t canonical_workspace_bytes(std::int64_t elements) noexcept {
  constexpr std::int64_t of_block = 8 * tile_elements;
  return static_cast<std::size_t>((elements + of_block - 1) / of_block + 1) * 8;
}

}  // namespace stash::encoders

namespace stash::encoders::device {

class kernel_calls {
 public:
  /// Adds the size of the canonical form of bitmap or csr, and the count of non-zeros, to a report.
  virtual void count(const encoding& e, const const_tensor_view& input, encode_report* report,
                     const execution_context& context) const = 0;

  /// Workspace has been checked, too: it is what context.canonical needs.
  virtual void encode(const encode_item& item, const workspace_view& workspace,
                      const execution_context& context) const = 0;
  virtual void decode(const decode_item& item, const execution_context& context) const = 0;
  /// Items of one kind and type share a launch.
  virtual void encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                            const execution_context& context) const = 0;
  virtual void decode_batch(std::span<const decode_item> items, const execution_context& context) const = 0;

  /// canonicalise() of bitmap and csr.
  virtual void canonicalise(const encoded_tensor& input, const encoded_view& output,
                            const execution_context& context) const = 0;
  /// A multiple of 16 bytes, counted in the report.
  virtual void copy_encoded(const void* from, void* to, std::size_t bytes, encode_report* report,
                            const execution_context& context) const = 0;
  /// row_offsets tells how many entries there are; errors go to the input's report.
  virtual void csr_export32(const encoded_tensor& input, const csr32_view& out,
                            const execution_context& context) const = 0;

  virtual void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            framework_rule rule, const execution_context& context) const = 0;
  virtual void relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                             framework_rule rule, const execution_context& context) const = 0;
  virtual void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                             framework_rule rule, const execution_context& context) const = 0;

  virtual void leaky_relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                                  float slope, const execution_context& context) const = 0;
  virtual void leaky_relu_backward(const const_tensor_view& dy, const encoded_tensor& stash,
                                   const tensor_view& dx, float slope,
                                   const execution_context& context) const = 0;
  virtual void leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                   const tensor_view& dx, float slope,
                                   const execution_context& context) const = 0;

  virtual void clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            float lower, float upper, framework_rule rule,
                            const execution_context& context) const = 0;
  virtual void clip_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                             float lower, float upper, framework_rule rule,
                             const execution_context& context) const = 0;
  virtual void clip_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                             float lower, float upper, framework_rule rule,
                             const execution_context& context) const = 0;

  virtual void dropout_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                               const dropout_constants& constants, const dropout_key& key,
                               const execution_context& context) const = 0;
  virtual void dropout_backward(const const_tensor_view& dy, const encoded_tensor& mask,
                                const tensor_view& dx, const dropout_constants& constants,
                                const execution_context& context) const = 0;
  virtual void dropout_backward(const const_tensor_view& dy, const tensor_view& dx,
                                const dropout_constants& constants, const dropout_key& key,
                                const execution_context& context) const = 0;

  virtual void max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                                const encoded_view& index, framework_rule rule,
                                const execution_context& context) const = 0;
  virtual void max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                 const tensor_view& dx, const pool_window& window,
                                 const execution_context& context) const = 0;
  virtual void max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                 const tensor_view& dx, const pool_window& window, framework_rule rule,
                                 const execution_context& context) const = 0;
  virtual void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y,
                                     const pool_window& window, const encoded_view& code,
                                     const encoded_view& index, framework_rule rule,
                                     const execution_context& context) const = 0;
  virtual void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code,
                                      const tensor_view& dx, const pool_window& window,
                                      const execution_context& context) const = 0;
  virtual void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                      const encoded_tensor& y, const tensor_view& dx,
                                      const pool_window& window, framework_rule rule,
                                      const execution_context& context) const = 0;
  virtual void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                      const const_tensor_view& y, const tensor_view& dx,
                                      const pool_window& window, framework_rule rule,
                                      const execution_context& context) const = 0;
  virtual void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                      const tensor_view& dx, const pool_window& window, framework_rule rule,
                                      const execution_context& context) const = 0;

  virtual void encode_window_index(const std::int64_t* flat, const shape& y, const shape& x,
                                   const pool_window& window, const encoded_view& index,
                                   const execution_context& context) const = 0;
  virtual void decode_window_index(const encoded_tensor& index, const shape& x, const pool_window& window,
                                   std::int64_t* flat, const execution_context& context) const = 0;

 protected:
  ~kernel_calls() = default;
};

}  // namespace stash::encoders::device
