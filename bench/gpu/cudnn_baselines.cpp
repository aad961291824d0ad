// What frameworks call: cuDNN's ReLU and max-pooling, which keep whole maps for the backward pass.

#include "bench/gpu/baselines.hpp"

#if defined(STASH_HAS_CUDNN)

#include "bench/gpu/cudnn_library.hpp"

namespace stash::gpu {
namespace {

struct cudnn : cudnn_library {
  decltype(::cudnnCreateTensorDescriptor)* create_tensor = library["cudnnCreateTensorDescriptor"];
  decltype(::cudnnDestroyTensorDescriptor)* destroy_tensor = library["cudnnDestroyTensorDescriptor"];
  decltype(::cudnnSetTensor4dDescriptor)* set_tensor = library["cudnnSetTensor4dDescriptor"];
  decltype(::cudnnCreateActivationDescriptor)* create_activation = library["cudnnCreateActivationDescriptor"];
  decltype(::cudnnDestroyActivationDescriptor)* destroy_activation =
      library["cudnnDestroyActivationDescriptor"];
  decltype(::cudnnSetActivationDescriptor)* set_activation = library["cudnnSetActivationDescriptor"];
  decltype(::cudnnActivationForward)* activation_forward = library["cudnnActivationForward"];
  decltype(::cudnnActivationBackward)* activation_backward = library["cudnnActivationBackward"];
  decltype(::cudnnCreatePoolingDescriptor)* create_pooling = library["cudnnCreatePoolingDescriptor"];
  decltype(::cudnnDestroyPoolingDescriptor)* destroy_pooling = library["cudnnDestroyPoolingDescriptor"];
  decltype(::cudnnSetPooling2dDescriptor)* set_pooling = library["cudnnSetPooling2dDescriptor"];
  decltype(::cudnnPoolingForward)* pooling_forward = library["cudnnPoolingForward"];
  decltype(::cudnnPoolingBackward)* pooling_backward = library["cudnnPoolingBackward"];
};

/// A map and, after pooling by two, a smaller one; both with their gradients.
class layers {
 public:
  layers(const map_form& form, map_source& maps)
      : x(maps.before_relu(form)),
        y(std::make_shared<device_map>(form.type, form.dims())),
        dx(std::make_shared<device_map>(form.type, form.dims())),
        pooled(std::make_shared<device_map>(form.type, form.pooled_dims())),
        pooled_gradient(std::make_shared<device_map>(form.type, form.pooled_dims())) {
    const cudnn_batch batch(form);
    describe(&whole_, form.type, batch);
    describe(&half_, form.type, batch.pooled_by_two());
    api_.check(api_.create_activation(&relu_), "cudnnCreateActivationDescriptor");
    api_.check(api_.set_activation(relu_, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0),
               "cudnnSetActivationDescriptor");
    api_.check(api_.create_pooling(&pooling_), "cudnnCreatePoolingDescriptor");
    api_.check(
        api_.set_pooling(pooling_, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2),
        "cudnnSetPooling2dDescriptor");
    fill(pooled_gradient->data(), 0, pooled_gradient->bytes(), nullptr);
    relu_forward(nullptr);
    pool_forward(nullptr);
    wait_for_device();
  }
  ~layers() {
    if (pooling_ != nullptr) (void)api_.destroy_pooling(pooling_);
    if (relu_ != nullptr) (void)api_.destroy_activation(relu_);
    if (half_ != nullptr) (void)api_.destroy_tensor(half_);
    if (whole_ != nullptr) (void)api_.destroy_tensor(whole_);
  }
  layers(const layers&) = delete;
  layers& operator=(const layers&) = delete;

  void relu_forward(void* stream) const {
    api_.check(
        api_.activation_forward(handle_.in(stream), relu_, &one, whole_, x->data(), &zero, whole_, y->data()),
        "cudnnActivationForward");
  }
  void relu_backward(void* stream) const {
    api_.check(api_.activation_backward(handle_.in(stream), relu_, &one, whole_, y->data(), whole_, x->data(),
                                        whole_, x->data(), &zero, whole_, dx->data()),
               "cudnnActivationBackward");
  }
  void pool_forward(void* stream) const {
    api_.check(api_.pooling_forward(handle_.in(stream), pooling_, &one, whole_, x->data(), &zero, half_,
                                    pooled->data()),
               "cudnnPoolingForward");
  }
  void pool_backward(void* stream) const {
    api_.check(api_.pooling_backward(handle_.in(stream), pooling_, &one, half_, pooled->data(), half_,
                                     pooled_gradient->data(), whole_, x->data(), &zero, whole_, dx->data()),
               "cudnnPoolingBackward");
  }

  shared_map x, y, dx, pooled, pooled_gradient;

 private:
  static constexpr float one = 1, zero = 0;

  void describe(cudnnTensorDescriptor_t* made, dtype type, const cudnn_batch& b) {
    api_.check(api_.create_tensor(made), "cudnnCreateTensorDescriptor");
    api_.check(
        api_.set_tensor(*made, CUDNN_TENSOR_NHWC, cudnn_type(type), b.samples, b.channels, b.rows, b.width),
        "cudnnSetTensor4dDescriptor");
  }

  cudnn api_;
  cudnn_handle handle_{api_};
  cudnnTensorDescriptor_t whole_ = nullptr, half_ = nullptr;
  cudnnActivationDescriptor_t relu_ = nullptr;
  cudnnPoolingDescriptor_t pooling_ = nullptr;
};

/// `moved` of the layers gives the least bytes of the call.
measured_case layer_case(const char* name, void (layers::*call)(void*) const,
                         std::uint64_t (*moved)(const layers&)) {
  return {name, takes_floats, [=](const map_form& form, map_source& maps) {
            const auto l = std::make_shared<layers>(form, maps);
            return unchecked([=](void* stream) { (*l.*call)(stream); }, moved(*l), l->x->bytes());
          }};
}

}  // namespace

// The gradients are those of the interface as it is: ReLU's reads y and dy (here x, which is as good as any
// and is what the interface asks for besides), pooling's the pooled map, its gradient and x.
std::vector<measured_case> cudnn_baselines() {
  return {layer_case("baseline/cudnn_relu_forward", &layers::relu_forward,
                     [](const layers& l) { return 2 * l.x->bytes(); }),
          layer_case("baseline/cudnn_relu_backward", &layers::relu_backward,
                     [](const layers& l) { return 3 * l.x->bytes(); }),
          layer_case("baseline/cudnn_max_pool_forward", &layers::pool_forward,
                     [](const layers& l) { return l.x->bytes() + l.pooled->bytes(); }),
          layer_case("baseline/cudnn_max_pool_backward", &layers::pool_backward,
                     [](const layers& l) { return 2 * l.x->bytes() + 2 * l.pooled->bytes(); })};
}

}  // namespace stash::gpu

#else

namespace stash::gpu {

std::vector<measured_case> cudnn_baselines() {
  return {{"baseline/cudnn", takes_floats, [](const map_form&, map_source&) -> prepared_case {
             throw failure("built without the headers of cuDNN");
           }}};
}

}  // namespace stash::gpu

#endif
