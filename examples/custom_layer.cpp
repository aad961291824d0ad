// SPDX-License-Identifier: Apache-2.0
// A custom layer - convolution, ReLU, 2x2 max pooling - that keeps encoded bytes between forward and
// backward.
//
// What backward needs: the layer's input x for the weight gradient, and for every pooled value which tap of
// its window won and whether it was positive. A framework keeps x, the map before the ReLU, and the pooled
// map, all dense. This layer keeps a bitmap of x (half of it is zero after the previous ReLU) and 3 bits per
// pooled value.
//
// Runs a few steps, checks every gradient against a layer that keeps everything, and prints the bytes kept.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "conv.h"
#include "stash/pool.hpp"
#include "stash/stashed_tensor.hpp"

namespace {

using floats = std::vector<float>;

constexpr auto rule = stash::framework_rule::pytorch;

std::size_t count(const stash::shape& s) {
  return static_cast<std::size_t>(s.elements());
}

stash::tensor_view view(floats& values, const stash::shape& s) {
  return {values.data(), stash::dtype::f32, stash::memory_space::host, s, 0};
}
stash::const_tensor_view view(const floats& values, const stash::shape& s) {
  return {values.data(), stash::dtype::f32, stash::memory_space::host, s, 0};
}

struct gradients {
  floats dx, dw;
};

class conv_relu_pool {
 public:
  /// `memory` is where stashes live; it must outlive the layer.
  conv_relu_pool(const conv_sizes& sizes, floats weights, stash::memory_resource& memory)
      : sizes_(sizes), weights_(std::move(weights)), memory_(&memory) {
    code_encoding_.window_taps = 4;
  }

  stash::shape input() const { return {sizes_.n, sizes_.h, sizes_.w, sizes_.in}; }
  stash::shape wide() const { return {sizes_.n, sizes_.h, sizes_.w, sizes_.out}; }
  stash::shape pooled() const { return {sizes_.n, sizes_.h / 2, sizes_.w / 2, sizes_.out}; }

  /// x is not needed afterwards; the map before the ReLU dies in here.
  floats forward(const floats& x) {
    floats z(count(wide())), y(count(pooled()));
    conv_forward(&sizes_, x.data(), weights_.data(), z.data());

    // The first step counts the non-zeros before it reserves memory. Later steps reserve what the last one
    // took, and a little: one pass over x, and if it does not fit, Stash says so and takes more.
    const stash::stash_options options{capacity_, memory_, {&conv_relu_pool::heard, nullptr}, "x"};
    x_ = stash::stashed_tensor(stash::parse_encoding("bitmap"), view(x, input()), options);
    capacity_ = x_.size().wait().bytes * 21 / 20;

    // The pooling layer writes its code itself.
    code_ = stash::stashed_tensor::reserve(code_encoding_, stash::dtype::f32, pooled(), {.memory = memory_});
    stash::relu_max_pool_forward(view(z, wide()), view(y, pooled()), {}, code_.output(), {}, rule, {});
    return y;
  }

  gradients backward(const floats& dy) {
    gradients g{floats(count(input())), floats(weights_.size())};
    floats dz(count(wide()));
    stash::relu_max_pool_backward(view(dy, pooled()), code_.stored(), view(dz, wide()), {}, {});
    code_.check();
    code_.reset();

    // x exists for the weight gradient only: it is gone before the input gradient needs memory.
    {
      floats x(count(input()));
      x_.restore(view(x, input()));
      x_.reset();
      conv_backward_weights(&sizes_, x.data(), dz.data(), g.dw.data());
    }
    conv_backward_data(&sizes_, weights_.data(), dz.data(), g.dx.data());
    return g;
  }

 private:
  static void heard(void* /*user*/, const stash::event& what) {
    std::printf("  %.*s of %.*s: %llu bytes required\n", static_cast<int>(to_string(what.kind).size()),
                to_string(what.kind).data(), static_cast<int>(what.tensor.size()), what.tensor.data(),
                static_cast<unsigned long long>(what.required_bytes));
  }

  conv_sizes sizes_;
  floats weights_;
  stash::memory_resource* memory_;
  stash::encoding code_encoding_ = stash::parse_encoding("relu_pool");
  std::size_t capacity_ = 0;
  stash::stashed_tensor x_, code_;
};

/// The same layer with everything kept dense.
gradients dense_gradients(const conv_relu_pool& layer, const conv_sizes& sizes, const floats& weights,
                          const floats& x, const floats& dy) {
  floats z(count(layer.wide())), y(count(layer.pooled())), dz(count(layer.wide()));
  conv_forward(&sizes, x.data(), weights.data(), z.data());
  stash::relu_max_pool_forward(view(z, layer.wide()), view(y, layer.pooled()), {}, {}, {}, rule, {});
  stash::relu_max_pool_backward(view(dy, layer.pooled()), view(std::as_const(z), layer.wide()),
                                view(dz, layer.wide()), {}, rule, {});
  gradients g{floats(x.size()), floats(weights.size())};
  conv_backward_weights(&sizes, x.data(), dz.data(), g.dw.data());
  conv_backward_data(&sizes, weights.data(), dz.data(), g.dx.data());
  return g;
}

bool same_bits(const floats& a, const floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

int main() {
  const conv_sizes sizes{4, 16, 16, 16, 32};
  floats weights(static_cast<std::size_t>(sizes.out * 9 * sizes.in));
  fill_random(weights.data(), static_cast<std::int64_t>(weights.size()), 1);

  stash::counting_memory memory(stash::host_memory());
  conv_relu_pool layer(sizes, weights, memory);
  for (std::uint32_t step = 0; step < 4; ++step) {
    // What a ReLU leaves of random numbers. The third step's are all positive: denser than planned.
    floats x(count(layer.input())), dy(count(layer.pooled()));
    fill_random(x.data(), static_cast<std::int64_t>(x.size()), 100 + step);
    fill_random(dy.data(), static_cast<std::int64_t>(dy.size()), 200 + step);
    for (float& v : x)
      v = step == 2 ? std::abs(v) : std::max(v, 0.0F);

    const floats y = layer.forward(x);
    const std::size_t dense = (x.size() + count(layer.wide()) + y.size()) * sizeof(float);
    std::printf("step %u: %zu bytes kept instead of %zu: %.1f times less\n", step, memory.bytes_in_use(),
                dense, static_cast<double>(dense) / static_cast<double>(memory.bytes_in_use()));

    const gradients found = layer.backward(dy);
    const gradients expected = dense_gradients(layer, sizes, weights, x, dy);
    if (!same_bits(found.dx, expected.dx) || !same_bits(found.dw, expected.dw)) {
      std::printf("the gradients differ from those of the dense layer\n");
      return EXIT_FAILURE;
    }
    if (memory.bytes_in_use() != 0) {
      std::printf("the layer still holds %zu bytes after its backward pass\n", memory.bytes_in_use());
      return EXIT_FAILURE;
    }
  }
  std::printf("all gradients are those of the dense layer, bit for bit\n");
  return EXIT_SUCCESS;
}
