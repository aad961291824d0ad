// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The part of oneDNN that the executor uses: convolutions over caller memory and reorders of their weights.
/// The two major versions of the library differ only in how primitive descriptors are made; that difference
/// stays in onednn.cpp. All calls throw stash::error.

#include <dnnl.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace stash::executor::onednn {

/// Sets the number of OpenMP threads of the calling thread and restores it at the end of the scope. The
/// library fixes a primitive's partition when it is made, so making and running need the same number.
class thread_scope {
 public:
  explicit thread_scope(int threads);
  ~thread_scope();
  thread_scope(const thread_scope&) = delete;
  thread_scope& operator=(const thread_scope&) = delete;

 private:
  int previous_;
};

struct convolution_shape {
  std::int64_t batch = 1;
  std::int64_t in_channels = 1, in_h = 1, in_w = 1;
  std::int64_t out_channels = 1, out_h = 1, out_w = 1;
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t groups = 1;
};

enum class direction : std::uint8_t { forward, backward_data, backward_weights };

/// Description of weights in plain order. `in_pitch` is the distance between two output channels if it is
/// larger than their weights (a range of input channels of a 1x1 kernel); 0: dense.
dnnl::memory::desc plain_weights(const convolution_shape& shape, std::int64_t in_pitch = 0);

/// One convolution in one direction on dense channels-last f32 data, its weights in the library's order.
class convolution {
 public:
  /// `weights`: the order to use; without it the library chooses. Bias only forward.
  convolution(direction way, const convolution_shape& shape, bool bias,
              const std::optional<dnnl::memory::desc>& weights = std::nullopt);

  const dnnl::memory::desc& weights() const noexcept { return weights_desc_; }
  std::int64_t weights_bytes() const { return static_cast<std::int64_t>(weights_desc_.get_size()); }
  std::int64_t scratchpad_bytes() const noexcept { return scratchpad_bytes_; }
  const std::string& implementation() const noexcept { return implementation_; }

  /// `src` is the side of the input (x, dx), `dst` that of the output (y, dy). What is written depends on
  /// the direction. `bias` may be null where there is none.
  void run(const float* src, const float* weights, const float* bias, const float* dst, void* scratchpad);

 private:
  dnnl::memory::desc weights_desc_;
  std::int64_t scratchpad_bytes_ = 0;
  std::string implementation_;
  dnnl::primitive primitive_;
  dnnl::memory src_, weights_, bias_, dst_, scratchpad_;  ///< bias_ is empty where there is none
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// Copies weights from one order to another.
class reorder {
 public:
  reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  std::int64_t scratchpad_bytes() const noexcept { return scratchpad_bytes_; }
  void run(const float* from, float* to, void* scratchpad);

 private:
  std::int64_t scratchpad_bytes_ = 0;
  dnnl::primitive primitive_;
  dnnl::memory from_, to_, scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// Library version and instruction set in use, e.g. "oneDNN 2.6.3 avx2".
std::string description();

}  // namespace stash::executor::onednn
