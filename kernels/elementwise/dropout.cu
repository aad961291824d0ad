// SPDX-License-Identifier: Apache-2.0
#include "elementwise/dropout.hpp"

#include "backend.hpp"
#include "common/host.hpp"

namespace stash::kernels {

namespace {

template <class Kept>
void apply(const char* function, const const_tensor_view& in, const tensor_view& out,
           const encoded_view& mask, float scale, const Kept& kept, const execution_context& context) {
  with_element(in.type, [&](auto bits) {
    const dropout_body<decltype(bits), Kept> body{device_tensor_of(in),
                                                  device_tensor_of(out),
                                                  device_plane_of(mask, in.elements()),
                                                  element_type_of(in.type),
                                                  scale,
                                                  kept};
    run_groups(function, context, body,
               mask.data == nullptr ? groups_of(body.input.elements) : body.plane.bytes);
  });
}

dropout_stream stream_of(const dropout_key& key, std::uint32_t threshold) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  return {{low(key.seed), high(key.seed) ^ high(key.step)}, key.layer, low(key.step), threshold};
}

}  // namespace

void device_kernels::dropout_forward(const const_tensor_view& x, const tensor_view& y,
                                     const encoded_view& mask, const encoders::dropout_constants& constants,
                                     const dropout_key& key, const execution_context& context) const {
  apply("dropout_forward", x, y, mask, constants.scale, kept_by_key{stream_of(key, constants.threshold)},
        context);
}

void device_kernels::dropout_backward(const const_tensor_view& dy, const encoded_tensor& mask,
                                      const tensor_view& dx, const encoders::dropout_constants& constants,
                                      const execution_context& context) const {
  const kept_by_mask kept{static_cast<const std::uint8_t*>(mask.bytes.data)};
  apply("dropout_backward", dy, dx, {}, constants.scale, kept, context);
}

void device_kernels::dropout_backward(const const_tensor_view& dy, const tensor_view& dx,
                                      const encoders::dropout_constants& constants, const dropout_key& key,
                                      const execution_context& context) const {
  apply("dropout_backward", dy, dx, {}, constants.scale, kept_by_key{stream_of(key, constants.threshold)},
        context);
}

}  // namespace stash::kernels
