// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What every user of cuDNN begins with. Only for files that are built with its headers.

#include <cudnn.h>

#include <algorithm>

#include "bench/gpu/baselines/shared_library.hpp"
#include "bench/gpu/cuda_check.hpp"
#include "bench/gpu/device.hpp"
#include "bench/gpu/maps.hpp"

namespace stash::gpu {

/// Everything that is used here is in this part of cuDNN; the parts find each other. Throws failure where it
/// is missing.
struct cudnn_library {
  shared_library library{"libcudnn.so." STASH_CUDNN_VERSION};
  decltype(::cudnnGetErrorString)* error_string = library["cudnnGetErrorString"];
  decltype(::cudnnCreate)* create = library["cudnnCreate"];
  decltype(::cudnnDestroy)* destroy = library["cudnnDestroy"];
  decltype(::cudnnSetStream)* set_stream = library["cudnnSetStream"];

  void check(cudnnStatus_t result, const char* call) const {
    if (result != CUDNN_STATUS_SUCCESS) throw failure(std::string(call) + ": " + error_string(result));
  }
};

/// A handle. The library must live longer.
class cudnn_handle {
 public:
  explicit cudnn_handle(const cudnn_library& api) : api_(api) {
    api_.check(api_.create(&handle_), "cudnnCreate");
  }
  ~cudnn_handle() { (void)api_.destroy(handle_); }
  cudnn_handle(const cudnn_handle&) = delete;
  cudnn_handle& operator=(const cudnn_handle&) = delete;

  cudnnHandle_t get() const noexcept { return handle_; }
  /// For work that is enqueued there.
  cudnnHandle_t in(void* stream) const {
    api_.check(api_.set_stream(handle_, cuda_stream(stream)), "cudnnSetStream");
    return handle_;
  }

 private:
  const cudnn_library& api_;
  cudnnHandle_t handle_ = nullptr;
};

inline cudnnDataType_t cudnn_type(dtype type) {
  return type == dtype::f32 ? CUDNN_DATA_FLOAT : type == dtype::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/// A map in the shape of a batch: sixteen rows to a sample, the same memory.
struct cudnn_batch {
  int samples, channels, rows, width;

  explicit cudnn_batch(const map_form& form)
      : samples(static_cast<int>(form.dims()[1] / 16)),
        channels(static_cast<int>(form.dims()[3])),
        rows(16),
        width(static_cast<int>(form.dims()[2])) {}
  /// Of planes of 64 x 64, as pooling has in NCHW.
  static cudnn_batch of_planes(const map_form& form) {
    constexpr int side = 64;
    cudnn_batch b(form);
    const auto planes = static_cast<int>(form.elements() / side / side);
    b.channels = std::min(b.channels, planes);
    b.samples = planes / b.channels;
    b.rows = b.width = side;
    return b;
  }
  cudnn_batch pooled_by_two() const {
    cudnn_batch half = *this;
    half.rows /= 2;
    half.width /= 2;
    return half;
  }
};

}  // namespace stash::gpu
