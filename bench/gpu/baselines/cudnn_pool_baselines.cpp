// SPDX-License-Identifier: Apache-2.0
// What frameworks call: cuDNN's max-pooling, which keeps x and y for the backward pass. It has two calls, one
// of which always adds gradients in the same order; which is faster depends on windows, layout and type.

#include "bench/gpu/baselines/baselines.hpp"

namespace stash::gpu {
namespace {

struct pool_kind {
  int kernel;  ///< windows of kernel x kernel, stride 2
  bool channels_first, deterministic, backward;

  std::string name() const {
    return std::string("baseline/cudnn_max_pool_") + (backward ? "backward" : "forward") +
           (kernel == 2 ? "" : "_3x3") + (channels_first ? "_channels_first" : "") +
           (deterministic ? "" : "_nondeterministic");
  }
};

prepared_case prepare(const map_form& form, map_source& maps, const pool_kind& kind);

}  // namespace

std::vector<measured_case> cudnn_pool_baselines() {
  std::vector<measured_case> cases;
  for (const int kernel : {2, 3}) {
    for (const bool channels_first : {false, true}) {
      for (const bool deterministic : {true, false}) {
        for (const bool backward : {false, true}) {
          const pool_kind kind{kernel, channels_first, deterministic, backward};
          cases.push_back({kind.name(), takes_floats, [=](const map_form& form, map_source& maps) {
                             return prepare(form, maps, kind);
                           }});
        }
      }
    }
  }
  return cases;
}

}  // namespace stash::gpu

#if defined(STASH_HAS_CUDNN)

#include "bench/gpu/baselines/cudnn_tensor.hpp"

namespace stash::gpu {
namespace {

struct cudnn : cudnn_tensor_library {
  decltype(::cudnnCreatePoolingDescriptor)* create_pooling = library["cudnnCreatePoolingDescriptor"];
  decltype(::cudnnDestroyPoolingDescriptor)* destroy_pooling = library["cudnnDestroyPoolingDescriptor"];
  decltype(::cudnnSetPooling2dDescriptor)* set_pooling = library["cudnnSetPooling2dDescriptor"];
  decltype(::cudnnPoolingForward)* pooling_forward = library["cudnnPoolingForward"];
  decltype(::cudnnPoolingBackward)* pooling_backward = library["cudnnPoolingBackward"];
};

cudnn_batch batch_of(const map_form& form, const pool_kind& kind) {
  return kind.channels_first ? cudnn_batch::of_planes(form) : cudnn_batch(form);
}

cudnnTensorFormat_t layout_of(const pool_kind& kind) {
  return kind.channels_first ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
}

/// A map and what is pooled of it, both with their gradients.
class pool_layer {
 public:
  pool_layer(const map_form& form, map_source& maps, const pool_kind& kind)
      : x_(maps.before_relu(form)),
        dx_(form.type, form.dims()),
        y_(form.type, form.pooled_dims()),
        dy_(form.type, form.pooled_dims()),
        whole_(api_, layout_of(kind), form.type, batch_of(form, kind)),
        half_(api_, layout_of(kind), form.type, batch_of(form, kind).pooled_by_two()) {
    api_.check(api_.create_pooling(&pooling_), "cudnnCreatePoolingDescriptor");
    // As many windows as half of the rows and columns. Those of three taps begin a tap before x, because the
    // interface has no padding that is after x alone, where that of the other rows is.
    const int padding = kind.kernel == 2 ? 0 : 1;
    api_.check(
        api_.set_pooling(pooling_, kind.deterministic ? CUDNN_POOLING_MAX_DETERMINISTIC : CUDNN_POOLING_MAX,
                         CUDNN_PROPAGATE_NAN, kind.kernel, kind.kernel, padding, padding, 2, 2),
        "cudnnSetPooling2dDescriptor");
    forward(nullptr);
    copy_on_device(dy_.data(), y_.data(), y_.bytes(), nullptr);
    wait_for_device();
  }
  ~pool_layer() { (void)api_.destroy_pooling(pooling_); }
  pool_layer(const pool_layer&) = delete;
  pool_layer& operator=(const pool_layer&) = delete;

  void forward(void* stream) const {
    api_.check(api_.pooling_forward(handle_.in(stream), pooling_, &one, whole_.get(), x_->data(), &zero,
                                    half_.get(), y_.data()),
               "cudnnPoolingForward");
  }
  void backward(void* stream) const {
    api_.check(api_.pooling_backward(handle_.in(stream), pooling_, &one, half_.get(), y_.data(), half_.get(),
                                     dy_.data(), whole_.get(), x_->data(), &zero, whole_.get(), dx_.data()),
               "cudnnPoolingBackward");
  }
  std::uint64_t whole_bytes() const { return x_->bytes(); }
  std::uint64_t pooled_bytes() const { return y_.bytes(); }

 private:
  static constexpr float one = 1, zero = 0;

  cudnn api_;
  cudnn_handle handle_{api_};
  shared_map x_;
  device_map dx_, y_, dy_;
  cudnn_tensor whole_, half_;
  cudnnPoolingDescriptor_t pooling_ = nullptr;
};

/// The gradient is that of the interface as it is, which reads y, dy and x.
prepared_case prepare(const map_form& form, map_source& maps, const pool_kind& kind) {
  const auto l = std::make_shared<pool_layer>(form, maps, kind);
  const std::uint64_t forward_bytes = l->whole_bytes() + l->pooled_bytes();
  if (kind.backward)
    return unchecked([=](void* stream) { l->backward(stream); }, 2 * forward_bytes, l->whole_bytes());
  return unchecked([=](void* stream) { l->forward(stream); }, forward_bytes, l->whole_bytes());
}

}  // namespace
}  // namespace stash::gpu

#else

namespace stash::gpu {
namespace {

prepared_case prepare(const map_form&, map_source&, const pool_kind&) {
  throw failure("built without the headers of cuDNN");
}

}  // namespace
}  // namespace stash::gpu

#endif
