// SPDX-License-Identifier: Apache-2.0
// The layer of custom_layer.cpp on a GPU: convolution, ReLU, 2x2 max pooling, with a bitmap of x and three
// bits per pooled value between forward and backward. All memory is the device's, all work is in one stream,
// and neither forward() nor backward() waits for it. The host waits once after each step, where a training
// loop is about to update weights: to hear whether the bitmap had space enough, and that nothing was damaged.
//
// A host compiler builds this file too: the convolution then runs as plain loops, and whoever links it brings
// the device (the tests bring an emulator).

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "conv.h"
#include "stash/error.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "stash/size_query.hpp"
#include "stash/stashed_tensor.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace {

constexpr auto rule = stash::framework_rule::pytorch;

// --- a little of a training system: streams, memory, a convolution
// ------------------------------------------------

#if defined(__CUDACC__)

void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(result));
  std::exit(EXIT_FAILURE);
}

bool device_exists() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

void* make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  return stream;
}

void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

__device__ const float* pixel(const conv_sizes& s, const float* x, std::int64_t n, std::int64_t row,
                              std::int64_t column) {
  const bool inside = row >= 0 && row < s.h && column >= 0 && column < s.w;
  return inside ? x + ((n * s.h + row) * s.w + column) * s.in : nullptr;
}

__global__ void forward_kernel(conv_sizes s, const float* x, const float* weights, float* y) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= s.n * s.h * s.w * s.out) return;
  const std::int64_t p = t / s.out, o = t % s.out;
  float sum = 0;
  for (std::int64_t k = 0; k < 9; ++k) {
    const float* from = pixel(s, x, p / (s.h * s.w), p / s.w % s.h + k / 3 - 1, p % s.w + k % 3 - 1);
    for (std::int64_t i = 0; from != nullptr && i < s.in; ++i)
      sum += from[i] * weights[(o * 9 + k) * s.in + i];
  }
  y[t] = sum;
}

__global__ void weights_kernel(conv_sizes s, const float* x, const float* dy, float* dw) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= s.out * 9 * s.in) return;
  const std::int64_t o = t / (9 * s.in), k = t / s.in % 9, i = t % s.in;
  float sum = 0;
  for (std::int64_t p = 0; p < s.n * s.h * s.w; ++p) {
    const float* from = pixel(s, x, p / (s.h * s.w), p / s.w % s.h + k / 3 - 1, p % s.w + k % 3 - 1);
    if (from != nullptr) sum += dy[p * s.out + o] * from[i];
  }
  dw[t] = sum;
}

__global__ void data_kernel(conv_sizes s, const float* weights, const float* dy, float* dx) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= s.n * s.h * s.w * s.in) return;
  const std::int64_t p = t / s.in, i = t % s.in;
  float sum = 0;
  for (std::int64_t k = 0; k < 9; ++k) {
    const std::int64_t row = p / s.w % s.h - (k / 3 - 1), column = p % s.w - (k % 3 - 1);
    if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
    const float* from = dy + ((p / (s.h * s.w) * s.h + row) * s.w + column) * s.out;
    for (std::int64_t o = 0; o < s.out; ++o)
      sum += from[o] * weights[(o * 9 + k) * s.in + i];
  }
  dx[t] = sum;
}

template <class Kernel, class... Arguments>
void run(std::int64_t threads, void* stream, Kernel kernel, const Arguments&... arguments) {
  const auto blocks = static_cast<unsigned>((threads + 127) / 128);
  kernel<<<blocks, 128, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  check(cudaGetLastError());
}

void forward_on_device(const conv_sizes& s, const float* x, const float* weights, float* y, void* stream) {
  run(s.n * s.h * s.w * s.out, stream, forward_kernel, s, x, weights, y);
}
void weights_on_device(const conv_sizes& s, const float* x, const float* dy, float* dw, void* stream) {
  run(s.out * 9 * s.in, stream, weights_kernel, s, x, dy, dw);
}
void data_on_device(const conv_sizes& s, const float* weights, const float* dy, float* dx, void* stream) {
  run(s.n * s.h * s.w * s.in, stream, data_kernel, s, weights, dy, dx);
}

#else

bool device_exists() {
  return true;
}
void* make_stream() {
  return nullptr;
}
void copy(void* to, const void* from, std::size_t bytes, void* /*stream*/) {
  std::memcpy(to, from, bytes);
}
void forward_on_device(const conv_sizes& s, const float* x, const float* weights, float* y,
                       void* /*stream*/) {
  conv_forward(&s, x, weights, y);
}
void weights_on_device(const conv_sizes& s, const float* x, const float* dy, float* dw, void* /*stream*/) {
  conv_backward_weights(&s, x, dy, dw);
}
void data_on_device(const conv_sizes& s, const float* weights, const float* dy, float* dx, void* /*stream*/) {
  conv_backward_data(&s, weights, dy, dx);
}

#endif

/// A dense map in device memory.
class map {
 public:
  map(const stash::shape& dims, void* stream)
      : dims_(dims), stream_(stream), data_(stash::device_memory().allocate(bytes(), 256, stream)) {}
  ~map() { stash::device_memory().deallocate(data_, bytes(), 256, stream_); }
  map(const map&) = delete;
  map& operator=(const map&) = delete;

  float* data() const { return static_cast<float*>(data_); }
  std::size_t bytes() const { return static_cast<std::size_t>(dims_.elements()) * sizeof(float); }
  stash::tensor_view view() const {
    return {data_, stash::dtype::f32, stash::memory_space::device, dims_, 0};
  }
  void fill(std::uint32_t seed) const {
    std::vector<float> values(static_cast<std::size_t>(dims_.elements()));
    fill_random(values.data(), dims_.elements(), seed);
    copy(data_, values.data(), bytes(), stream_);
  }
  std::vector<float> values() const {
    std::vector<float> result(static_cast<std::size_t>(dims_.elements()));
    copy(result.data(), data_, bytes(), stream_);
    return result;
  }

 private:
  stash::shape dims_;
  void* stream_;
  void* data_;
};

// --- the layer
// ----------------------------------------------------------------------------------------------------

class conv_relu_pool {
 public:
  conv_relu_pool(const conv_sizes& sizes, const map& weights, void* stream)
      : sizes_(sizes), weights_(&weights) {
    context_.space = stash::memory_space::device;
    context_.stream = stream;
    code_encoding_.window_taps = 4;
  }

  stash::shape input() const { return {sizes_.n, sizes_.h, sizes_.w, sizes_.in}; }
  stash::shape wide() const { return {sizes_.n, sizes_.h, sizes_.w, sizes_.out}; }
  stash::shape pooled() const { return {sizes_.n, sizes_.h / 2, sizes_.w / 2, sizes_.out}; }
  const stash::execution_context& context() const { return context_; }
  std::size_t kept_bytes() const { return x_.bytes() + code_.bytes(); }

  void forward(const map& x, const map& y) {
    const map z(wide(), context_.stream);
    forward_on_device(sizes_, x.data(), weights_->data(), z.data(), context_.stream);
    // The constructor that encodes would wait to see whether x fits. Without a capacity, as in the first
    // step, there is space for any x; where memory is short, a size_query can count the first x instead.
    x_ = stash::stashed_tensor::reserve(stash::parse_encoding("bitmap"), stash::dtype::f32, input(),
                                        {.capacity = capacity_}, context_);
    stash::encode(x_.how(), x.view(), x_.output(), {}, context_);
    code_ = stash::stashed_tensor::reserve(code_encoding_, stash::dtype::f32, pooled(), {}, context_);
    stash::relu_max_pool_forward(z.view(), y.view(), {}, code_.output(), {}, rule, context_);
  }

  void backward(const map& dy, const map& dx, const map& dw) {
    const map dz(wide(), context_.stream);
    stash::relu_max_pool_backward(dy.view(), code_.stored(), dz.view(), {}, context_);
    {
      // x exists for the weight gradient only.
      const map x(input(), context_.stream);
      x_.restore(x.view(), context_);
      weights_on_device(sizes_, x.data(), dz.data(), dw.data(), context_.stream);
    }
    data_on_device(sizes_, weights_->data(), dz.data(), dx.data(), context_.stream);
    // The answers are on their way before the memory goes back.
    x_size_ = x_.size(context_);
    code_size_ = code_.size(context_);
    x_.reset();
    code_.reset();
  }

  /// Waits for the step. False if x had more values than there was space for: the gradients are wrong then,
  /// and the step has to be done again, which has space for any x.
  bool step_is_good() {
    const stash::stored_size x = std::exchange(x_size_, {}).wait(),
                             code = std::exchange(code_size_, {}).wait();
    const bool fits = (x.status & stash::status_capacity) == 0;
    if (fits && (x.status | code.status) != stash::status_ok) {
      throw stash::error(stash::errc::corrupt_data, "conv_relu_pool: what was kept is damaged");
    }
    // The next step's x will have about as many values.
    capacity_ = fits ? x.bytes * 21 / 20 : 0;
    return fits;
  }

 private:
  conv_sizes sizes_;
  const map* weights_;
  stash::execution_context context_;
  stash::encoding code_encoding_ = stash::parse_encoding("relu_pool");
  std::size_t capacity_ = 0;
  stash::stashed_tensor x_, code_;
  stash::size_query x_size_, code_size_;
};

bool same_bits(const map& a, const map& b) {
  const std::vector<float> left = a.values(), right = b.values();
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), a.bytes()) == 0;
}

int train() {
  const conv_sizes sizes{4, 16, 16, 16, 32};
  void* const stream = make_stream();
  const map weights({sizes.out, 3, 3, sizes.in}, stream);
  weights.fill(1);
  conv_relu_pool layer(sizes, weights, stream);
  for (std::uint32_t step = 0; step < 4; ++step) {
    const map noise(layer.input(), stream), x(layer.input(), stream), y(layer.pooled(), stream),
        dy(layer.pooled(), stream), dx(layer.input(), stream), dw({sizes.out, 3, 3, sizes.in}, stream);
    noise.fill(100 + step);
    dy.fill(200 + step);
    // What a ReLU leaves of random numbers. In the third step there is none: more values than planned.
    if (step == 2) {
      x.fill(100 + step);
    } else {
      stash::relu_forward(noise.view(), x.view(), {}, rule, layer.context());
    }

    const std::size_t dense =
        x.bytes() + y.bytes() + static_cast<std::size_t>(layer.wide().elements()) * sizeof(float);
    for (bool good = false; !good;) {
      layer.forward(x, y);
      std::printf("step %u: %zu bytes kept instead of %zu: %.1f times less\n", step, layer.kept_bytes(),
                  dense, static_cast<double>(dense) / static_cast<double>(layer.kept_bytes()));
      layer.backward(dy, dx, dw);
      good = layer.step_is_good();
      if (!good) std::printf("  x did not fit: the step is done again\n");
    }

    // The same layer with everything kept dense.
    const map z(layer.wide(), stream), dz(layer.wide(), stream), dense_y(layer.pooled(), stream);
    const map dense_dx(layer.input(), stream), dense_dw({sizes.out, 3, 3, sizes.in}, stream);
    forward_on_device(sizes, x.data(), weights.data(), z.data(), stream);
    stash::relu_max_pool_forward(z.view(), dense_y.view(), {}, {}, {}, rule, layer.context());
    stash::relu_max_pool_backward(dy.view(), z.view(), dz.view(), {}, rule, layer.context());
    weights_on_device(sizes, x.data(), dz.data(), dense_dw.data(), stream);
    data_on_device(sizes, weights.data(), dz.data(), dense_dx.data(), stream);
    if (!same_bits(y, dense_y) || !same_bits(dx, dense_dx) || !same_bits(dw, dense_dw)) {
      std::printf("the gradients differ from those of the dense layer\n");
      return EXIT_FAILURE;
    }
  }
  std::printf("all gradients are those of the dense layer, bit for bit\n");
  return EXIT_SUCCESS;
}

}  // namespace

int main() {
  if (!device_exists()) {
    std::printf("custom_layer_cuda: no CUDA device: not run\n");
    return 77;
  }
  try {
    return train();
  } catch (const stash::error& e) {
    std::printf("%s\n", e.what());
    return EXIT_FAILURE;
  }
}
