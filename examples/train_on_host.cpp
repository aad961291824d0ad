// SPDX-License-Identifier: Apache-2.0
// A stack of custom layers - convolution and ReLU - that trains with its maps on the host.
//
// Between its forward and its backward pass a layer needs its input x, for the weight gradient, and the sign
// of its output. The signs are a bit each and stay. x is encoded (after a ReLU half of it is zero) and what
// remains of it goes to the host, during the next layer's work; it comes back shortly before it is needed.
//
// Trains once with all maps dense, once with maps encoded, once with them on the host as well; compares the
// weights bit by bit, and prints how many bytes were kept where the layers compute. Here that is memory of
// the host too. On a device only the options change: `space` becomes device, calls get a context with a
// stream, and nothing waits for the copies but the kernels that need them.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "conv.h"
#include "stash/relu.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/swap.hpp"

namespace {

using floats = std::vector<float>;

constexpr conv_sizes sizes{4, 16, 16, 8, 8};
constexpr int depth = 8, steps = 5;
constexpr auto rule = stash::framework_rule::pytorch;

const stash::shape map_shape{sizes.n, sizes.h, sizes.w, sizes.out};

std::size_t map_elements() {
  return static_cast<std::size_t>(map_shape.elements());
}
stash::tensor_view view(floats& values) {
  return {values.data(), stash::dtype::f32, stash::memory_space::host, map_shape, 0};
}

enum class keeping { dense, encoded, on_host };

class layer {
 public:
  /// `number` counts from the input. `memory` is where the layers compute.
  layer(int number, keeping how, stash::memory_resource& memory, stash::swapper& swaps)
      : name_("conv" + std::to_string(number)),
        needed_at_(depth - 1 - number),
        how_(how),
        memory_(&memory),
        swaps_(&swaps),
        weights_(static_cast<std::size_t>(sizes.out * 9 * sizes.in)) {
    fill_random(weights_.data(), static_cast<std::int64_t>(weights_.size()),
                static_cast<std::uint32_t>(number));
    for (float& w : weights_)
      w *= 0.2F;
  }

  floats forward(floats x) {
    floats y(map_elements());
    conv_forward(&sizes, x.data(), weights_.data(), y.data());
    mask_ = stash::stashed_tensor::reserve(stash::parse_encoding("sign_mask"), stash::dtype::f32, map_shape,
                                           {.memory = memory_});
    stash::relu_forward(view(y), view(y), mask_.output(), rule, {});

    const char* const how = how_ == keeping::dense ? "raw" : "bitmap";
    kept_ = stash::stashed_tensor(stash::parse_encoding(how), view(x), {.memory = memory_, .name = name_});
    // From here on the encoded bytes are the swapper's, which gives them back when they are on the host.
    if (how_ == keeping::on_host) out_ = swaps_->swap_out(std::move(kept_), {.needed_at = needed_at_});
    return y;
  }

  /// The gradient of x; the weights are updated.
  floats backward(floats dy) {
    // What the layers before this one need comes back meanwhile, as far as the swapper's limit allows.
    if (how_ == keeping::on_host) swaps_->reached(needed_at_);
    stash::relu_backward(view(dy), mask_.stored(), view(dy), rule, {});
    mask_.reset();
    floats dw(weights_.size());
    {
      floats x(map_elements());
      if (how_ == keeping::on_host) {
        out_.restore(view(x));
        out_.reset();
      } else {
        kept_.restore(view(x));
        kept_.reset();
      }
      conv_backward_weights(&sizes, x.data(), dy.data(), dw.data());
    }
    floats dx(map_elements());
    conv_backward_data(&sizes, weights_.data(), dy.data(), dx.data());
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] -= 0.002F * dw[i];
    return dx;
  }

  const floats& weights() const { return weights_; }

 private:
  std::string name_;
  std::int64_t needed_at_;
  keeping how_;
  stash::memory_resource* memory_;
  stash::swapper* swaps_;
  floats weights_;
  stash::stashed_tensor mask_, kept_;
  stash::swapped out_;
};

struct trained {
  std::vector<floats> weights;
  float first_loss = 0, last_loss = 0;
  std::size_t kept_at_the_turn = 0;  ///< in the layers' memory, between forward and backward
  stash::swap_statistics swapped;
};

trained train(keeping how) {
  stash::counting_memory memory(stash::host_memory());
  // Two maps may lie here ahead of use.
  stash::swapper swaps({.memory = &memory, .residency_limit_bytes = 2 * map_elements() * sizeof(float)});
  std::vector<layer> layers;
  for (int number = 0; number < depth; ++number)
    layers.emplace_back(number, how, memory, swaps);

  trained result;
  floats images(map_elements()), target(map_elements());
  fill_random(images.data(), static_cast<std::int64_t>(images.size()), 100);
  fill_random(target.data(), static_cast<std::int64_t>(target.size()), 200);
  for (int step = 0; step < steps; ++step) {
    floats y = images;
    for (layer& l : layers)
      y = l.forward(std::move(y));

    // So that the number printed is the same in every run; a training loop would not wait.
    while (swaps.statistics().bytes_in_flight != 0) {
    }
    result.kept_at_the_turn = memory.bytes_in_use();

    floats dy(y.size());
    float loss = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      dy[i] = y[i] - target[i];
      loss += dy[i] * dy[i];
    }
    (step == 0 ? result.first_loss : result.last_loss) = loss / static_cast<float>(y.size());
    for (std::size_t i = layers.size(); i-- > 0;)
      dy = layers[i].backward(std::move(dy));
  }
  for (const layer& l : layers)
    result.weights.push_back(l.weights());
  result.swapped = swaps.statistics();
  return result;
}

bool same_bits(const std::vector<floats>& a, const std::vector<floats>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i)
    same =
        a[i].size() == b[i].size() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) == 0;
  return same;
}

void report(const char* how, const trained& t) {
  std::printf("%-20s loss %.4f -> %.4f, %8zu bytes kept between forward and backward\n", how,
              static_cast<double>(t.first_loss), static_cast<double>(t.last_loss), t.kept_at_the_turn);
}

}  // namespace

int main() {
  const trained dense = train(keeping::dense), encoded = train(keeping::encoded);
  const trained on_host = train(keeping::on_host);
  report("dense", dense);
  report("encoded", encoded);
  report("encoded, on the host", on_host);
  const stash::swap_statistics& s = on_host.swapped;
  std::printf(
      "%llu bytes went to the host and %llu came back, at most %llu ahead of use; %llu of %d maps "
      "were waited for\n",
      static_cast<unsigned long long>(s.bytes_out), static_cast<unsigned long long>(s.bytes_in),
      static_cast<unsigned long long>(s.resident_peak_bytes), static_cast<unsigned long long>(s.late),
      depth * steps);
  std::printf("saved where the layers compute: %zu bytes of %zu\n",
              dense.kept_at_the_turn - on_host.kept_at_the_turn, dense.kept_at_the_turn);

  if (!same_bits(encoded.weights, dense.weights) || !same_bits(on_host.weights, dense.weights)) {
    std::printf("the weights differ from those of training with dense maps\n");
    return EXIT_FAILURE;
  }
  if (on_host.kept_at_the_turn * 10 > dense.kept_at_the_turn || !(dense.last_loss < dense.first_loss)) {
    std::printf("too much was kept, or nothing was learnt\n");
    return EXIT_FAILURE;
  }
  std::printf("the weights are those of training with dense maps, bit for bit\n");
  return EXIT_SUCCESS;
}
