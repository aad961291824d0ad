// SPDX-License-Identifier: Apache-2.0
#include "elementwise/relu.hpp"

#include "elementwise/cast.hpp"
#include "tiles/dispatch.hpp"
#include "backend.hpp"
#include "tiles/tiles_decode.hpp"

namespace stash::kernels {
namespace {

template <class Function, class Predicate>
void forward(const char* name, const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
             const Function& function, const Predicate& predicate, const execution_context& context) {
  with_element(x.type, [&](auto bits) {
    const activation_body<decltype(bits), Function, Predicate> body{
        device_tensor_of(x), device_tensor_of(y), device_plane_of(mask, x.elements()), function, predicate};
    run_groups(name, context, body, mask.data == nullptr ? groups_of(body.x.elements) : body.plane.bytes);
  });
}

/// What a backward call works on.
struct gradient_call {
  const char* name;
  const const_tensor_view& dy;
  const tensor_view& dx;
  gate function;
  const execution_context& context;
};

template <class Bits, class Source>
void backward_from(const gradient_call& call, const Source& source) {
  const gradient_body<Bits, Source> body{device_tensor_of(call.dy), device_tensor_of(call.dx), call.function,
                                         source};
  run_groups(call.name, call.context, body, groups_of(body.dy.elements));
}

template <class Bits, class Predicate>
void backward_from_dense(const gradient_call& call, const const_tensor_view& map,
                         const Predicate& predicate) {
  backward_from<Bits>(call, dense_bits<Bits, Predicate>{device_tensor_of(map), predicate});
}

template <class Bits, bool Narrow, class Test>
void backward_from_tiles(const gradient_call& call, const encoding& e, const const_encoded_view& stash,
                         const Test& test) {
  const device_tiles job = device_tiles_of(e, call.dx, stash);
  const device_tensor dy = device_tensor_of(call.dy);
  const auto kernel = e.kind == encoding_kind::csr ? gate_tiles<Bits, Narrow, true, Test>
                                                   : gate_tiles<Bits, Narrow, false, Test>;
  launch(call.name, call.context, tile_blocks(dy.elements), tile_threads, kernel, job, dy, call.function,
         test);
}

/// The dense map that raw keeps.
const_tensor_view raw_map(const gradient_call& call, const const_encoded_view& stash) {
  const_tensor_view map = call.dy;
  map.data = stash.data;
  map.pixel_pitch = 0;
  return map;
}

/// Backward of the two layers that read a sign.
void backward_from_sign(const gradient_call& call, const encoding& e, const const_encoded_view& stash,
                        bool nan_passes) {
  const dtype type = call.dy.type;
  with_element(type, [&](auto bits) {
    using element = decltype(bits);
    const element_type limits = element_type_of(type);
    if (e.kind == encoding_kind::sign_mask) {
      backward_from<element>(call, plane_bits{static_cast<const std::uint8_t*>(stash.data)});
    } else if (e.kind == encoding_kind::raw) {
      backward_from_dense<element>(call, raw_map(call, stash), sign_predicate{limits, nan_passes});
    } else if (e.kind == encoding_kind::cast) {
      const auto elements = static_cast<std::uint64_t>(call.dy.elements());
      const device_cast codes = device_cast_of(e, type, elements, stash.data);
      with_code_size(e.values, [&](auto code_bits, auto scaled) {
        if constexpr (code_bits < 8 * sizeof(element)) {
          backward_from<element>(call, cast_bits<code_bits, scaled>{codes, nan_passes});
        }
      });
    } else if (e.values == value_format::source) {
      backward_from_tiles<element, false>(call, e, stash, present_test{limits, nan_passes});
    } else {
      backward_from_tiles<element, true>(call, e, stash, present_test{limits, nan_passes});
    }
  });
}

void backward_from_range(const gradient_call& call, const encoding& e, const const_encoded_view& stash,
                         const range_predicate& predicate) {
  with_element(call.dy.type, [&](auto bits) {
    using element = decltype(bits);
    if (e.kind == encoding_kind::range_mask) {
      backward_from<element>(call, plane_bits{static_cast<const std::uint8_t*>(stash.data)});
    } else if (e.kind == encoding_kind::raw) {
      backward_from_dense<element>(call, raw_map(call, stash), predicate);
    } else {
      backward_from_tiles<element, false>(call, e, stash, value_test<range_predicate>{predicate});
    }
  });
}

}  // namespace

void device_kernels::relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                                  framework_rule rule, const execution_context& context) const {
  const element_type type = element_type_of(x.type);
  forward("relu_forward", x, y, mask, rectify{type}, sign_predicate{type, rule == framework_rule::pytorch},
          context);
}

void device_kernels::relu_backward(const const_tensor_view& dy, const encoded_tensor& stash,
                                   const tensor_view& dx, framework_rule rule,
                                   const execution_context& context) const {
  backward_from_sign({"relu_backward", dy, dx, {element_type_of(dy.type), false, 0}, context}, stash.how,
                     stash.bytes, rule == framework_rule::pytorch);
}

void device_kernels::relu_backward(const const_tensor_view& dy, const const_tensor_view& y,
                                   const tensor_view& dx, framework_rule rule,
                                   const execution_context& context) const {
  const element_type type = element_type_of(dy.type);
  const gradient_call call{"relu_backward", dy, dx, {type, false, 0}, context};
  with_element(dy.type, [&](auto bits) {
    backward_from_dense<decltype(bits)>(call, y, sign_predicate{type, rule == framework_rule::pytorch});
  });
}

void device_kernels::leaky_relu_forward(const const_tensor_view& x, const tensor_view& y,
                                        const encoded_view& mask, float slope,
                                        const execution_context& context) const {
  const element_type type = element_type_of(x.type);
  forward("leaky_relu_forward", x, y, mask, leak{type, slope}, sign_predicate{type, false}, context);
}

void device_kernels::leaky_relu_backward(const const_tensor_view& dy, const encoded_tensor& stash,
                                         const tensor_view& dx, float slope,
                                         const execution_context& context) const {
  backward_from_sign({"leaky_relu_backward", dy, dx, {element_type_of(dy.type), true, slope}, context},
                     stash.how, stash.bytes, false);
}

void device_kernels::leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                         const tensor_view& dx, float slope,
                                         const execution_context& context) const {
  const element_type type = element_type_of(dy.type);
  const gradient_call call{"leaky_relu_backward", dy, dx, {type, true, slope}, context};
  with_element(dy.type, [&](auto bits) {
    backward_from_dense<decltype(bits)>(call, x, sign_predicate{type, false});
  });
}

void device_kernels::clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                                  float lower, float upper, framework_rule rule,
                                  const execution_context& context) const {
  forward("clip_forward", x, y, mask, clip_of(x.type, lower, upper),
          range_predicate_of(x.type, lower, upper, rule == framework_rule::pytorch), context);
}

void device_kernels::clip_backward(const const_tensor_view& dy, const encoded_tensor& stash,
                                   const tensor_view& dx, float lower, float upper, framework_rule rule,
                                   const execution_context& context) const {
  const element_type type = element_type_of(dy.type);
  backward_from_range({"clip_backward", dy, dx, {type, false, 0}, context}, stash.how, stash.bytes,
                      range_predicate_of(dy.type, lower, upper, rule == framework_rule::pytorch));
}

void device_kernels::clip_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                   const tensor_view& dx, float lower, float upper, framework_rule rule,
                                   const execution_context& context) const {
  const element_type type = element_type_of(dy.type);
  const gradient_call call{"clip_backward", dy, dx, {type, false, 0}, context};
  with_element(dy.type, [&](auto bits) {
    backward_from_dense<decltype(bits)>(
        call, x, range_predicate_of(dy.type, lower, upper, rule == framework_rule::pytorch));
  });
}

}  // namespace stash::kernels
