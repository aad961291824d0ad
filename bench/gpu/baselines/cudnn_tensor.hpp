// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Tensors as cuDNN's calls for single layers describe them. Only for files that are built with its headers.

#include "bench/gpu/baselines/cudnn_library.hpp"

namespace stash::gpu {

struct cudnn_tensor_library : cudnn_library {
  decltype(::cudnnCreateTensorDescriptor)* create_tensor = library["cudnnCreateTensorDescriptor"];
  decltype(::cudnnDestroyTensorDescriptor)* destroy_tensor = library["cudnnDestroyTensorDescriptor"];
  decltype(::cudnnSetTensor4dDescriptor)* set_tensor = library["cudnnSetTensor4dDescriptor"];
};

/// A dense tensor. The library must live longer. Throws failure.
class cudnn_tensor {
 public:
  cudnn_tensor(const cudnn_tensor_library& api, cudnnTensorFormat_t layout, dtype type, const cudnn_batch& b)
      : cudnn_tensor(api) {
    api_.check(api_.set_tensor(descriptor_, layout, cudnn_type(type), b.samples, b.channels, b.rows, b.width),
               "cudnnSetTensor4dDescriptor");
  }
  ~cudnn_tensor() { (void)api_.destroy_tensor(descriptor_); }
  cudnn_tensor(const cudnn_tensor&) = delete;
  cudnn_tensor& operator=(const cudnn_tensor&) = delete;

  cudnnTensorDescriptor_t get() const noexcept { return descriptor_; }

 private:
  explicit cudnn_tensor(const cudnn_tensor_library& api) : api_(api) {
    api_.check(api_.create_tensor(&descriptor_), "cudnnCreateTensorDescriptor");
  }

  const cudnn_tensor_library& api_;
  cudnnTensorDescriptor_t descriptor_ = nullptr;
};

}  // namespace stash::gpu
