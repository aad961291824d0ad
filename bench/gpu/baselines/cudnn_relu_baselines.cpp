// SPDX-License-Identifier: Apache-2.0
// What frameworks call: cuDNN's ReLU, which keeps whole maps for the backward pass.

#include "bench/gpu/baselines/baselines.hpp"

#if defined(STASH_HAS_CUDNN)

#include "bench/gpu/baselines/cudnn_tensor.hpp"

namespace stash::gpu {
namespace {

struct cudnn : cudnn_tensor_library {
  decltype(::cudnnCreateActivationDescriptor)* create_activation = library["cudnnCreateActivationDescriptor"];
  decltype(::cudnnDestroyActivationDescriptor)* destroy_activation =
      library["cudnnDestroyActivationDescriptor"];
  decltype(::cudnnSetActivationDescriptor)* set_activation = library["cudnnSetActivationDescriptor"];
  decltype(::cudnnActivationForward)* activation_forward = library["cudnnActivationForward"];
  decltype(::cudnnActivationBackward)* activation_backward = library["cudnnActivationBackward"];
};

class relu_layer {
 public:
  relu_layer(const map_form& form, map_source& maps)
      : x_(maps.before_relu(form)),
        y_(empty_map(form)),
        dx_(empty_map(form)),
        tensor_(api_, CUDNN_TENSOR_NHWC, form.type, cudnn_batch(form)) {
    api_.check(api_.create_activation(&relu_), "cudnnCreateActivationDescriptor");
    api_.check(api_.set_activation(relu_, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0),
               "cudnnSetActivationDescriptor");
    forward(nullptr);
    wait_for_device();
  }
  ~relu_layer() { (void)api_.destroy_activation(relu_); }
  relu_layer(const relu_layer&) = delete;
  relu_layer& operator=(const relu_layer&) = delete;

  void forward(void* stream) const {
    api_.check(api_.activation_forward(handle_.in(stream), relu_, &one, tensor_.get(), x_->data(), &zero,
                                       tensor_.get(), y_->data()),
               "cudnnActivationForward");
  }
  void backward(void* stream) const {
    api_.check(
        api_.activation_backward(handle_.in(stream), relu_, &one, tensor_.get(), y_->data(), tensor_.get(),
                                 x_->data(), tensor_.get(), x_->data(), &zero, tensor_.get(), dx_->data()),
        "cudnnActivationBackward");
  }
  std::uint64_t dense_bytes() const { return x_->bytes(); }

 private:
  static constexpr float one = 1, zero = 0;

  cudnn api_;
  cudnn_handle handle_{api_};
  shared_map x_, y_, dx_;
  cudnn_tensor tensor_;
  cudnnActivationDescriptor_t relu_ = nullptr;
};

/// `maps` are read and written.
measured_case layer_case(const char* name, void (relu_layer::*call)(void*) const, std::uint64_t maps_moved) {
  return {name, takes_floats, [=](const map_form& form, map_source& maps) {
            const auto l = std::make_shared<relu_layer>(form, maps);
            return unchecked([=](void* stream) { (*l.*call)(stream); }, maps_moved * l->dense_bytes(),
                             l->dense_bytes());
          }};
}

}  // namespace

// The gradient is that of the interface as it is: it reads y and dy (here x, which is as good as any and is
// what else the interface asks for).
std::vector<measured_case> cudnn_relu_baselines() {
  return {layer_case("baseline/cudnn_relu_forward", &relu_layer::forward, 2),
          layer_case("baseline/cudnn_relu_backward", &relu_layer::backward, 3)};
}

}  // namespace stash::gpu

#else

namespace stash::gpu {

std::vector<measured_case> cudnn_relu_baselines() {
  return {{"baseline/cudnn_relu", takes_floats, [](const map_form&, map_source&) -> prepared_case {
             throw failure("built without the headers of cuDNN");
           }}};
}

}  // namespace stash::gpu

#endif
