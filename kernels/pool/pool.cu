// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "pool/pool_axes.hpp"
#include "pool/pool_call.hpp"
#include "tiles/dispatch.hpp"

namespace stash::kernels {
namespace {

encoded_argmaxes argmaxes_of(const const_encoded_view& taps, const pool_window& window) {
  encoded_argmaxes w{};
  w.taps = static_cast<const std::uint8_t*>(taps.data);
  w.bits = tap_bits(window);
  w.report = taps.report;
  return w;
}

/// Argmaxes from window_index, signs from the dense pooled output.
encoded_argmaxes argmaxes_of(const const_encoded_view& index, const const_tensor_view& y,
                             const pool_window& window) {
  encoded_argmaxes w = argmaxes_of(index, window);
  w.passing = pass_source::dense;
  w.y = y.data;
  w.y_pitch = static_cast<std::uint64_t>(pitch_of(y, window));
  return w;
}

/// The same, signs from a mask or a cast of that output.
encoded_argmaxes argmaxes_of(const const_encoded_view& index, const encoded_tensor& y,
                             const const_tensor_view& dy, const pool_window& window) {
  encoded_argmaxes w = argmaxes_of(index, window);
  if (y.how.kind == encoding_kind::sign_mask) {
    w.passing = pass_source::plane;
    w.plane = static_cast<const std::uint8_t*>(y.bytes.data);
    return w;
  }
  w.passing = pass_source::cast;
  w.cast = device_cast_of(y.how, dy.type, static_cast<std::uint64_t>(dy.elements()), y.bytes.data);
  with_code_size(y.how.values, [&](auto bits, auto scaled) {
    w.cast_bits = bits;
    w.cast_scaled = scaled;
  });
  return w;
}

searched_argmaxes argmaxes_in(const const_tensor_view& x, const pool_window& window, bool relu) {
  return {x.data, static_cast<std::uint64_t>(pitch_of(x, window)), relu};
}

pool_source source_of(const encoded_argmaxes& w) {
  switch (w.passing) {
    case pass_source::always:
    case pass_source::code:
      return pool_source::codes;
    case pass_source::plane:
      return pool_source::codes_and_bits;
    case pass_source::dense:
    case pass_source::cast:
      break;
  }
  return pool_source::codes_and_values;
}
pool_source source_of(const tiled_argmaxes&) {
  return pool_source::codes_and_tiles;
}
pool_source source_of(const searched_argmaxes&) {
  return pool_source::x;
}

template <class Source>
void run_backward(const pool_request& request, const const_tensor_view& dy, const Source& source,
                  const tensor_view& dx, const const_tensor_view* third = nullptr) {
  backward(call_of(request, source_of(source), dx, dy, third), dy, source, dx);
}

void run_forward(const pool_request& request, bool relu, const const_tensor_view& x, const tensor_view& y,
                 const pool_planes& planes) {
  forward(call_of(request, pool_source::forward, x, y, nullptr), relu, x, y, planes);
}

constexpr const char* backward_name = "max_pool_backward";
constexpr const char* relu_backward_name = "relu_max_pool_backward";
// Codes say nothing of a rule.
constexpr framework_rule any_rule = framework_rule::tensorflow;

}  // namespace

void device_kernels::max_pool_forward(const const_tensor_view& x, const tensor_view& y,
                                      const pool_window& window, const encoded_view& index,
                                      framework_rule rule, const execution_context& context) const {
  pool_planes planes;
  if (index.data != nullptr) planes.index = plane_of(index, y.elements(), tap_bits(window));
  planes.index_report = index.report;
  run_forward({"max_pool_forward", window, rule, context}, false, x, y, planes);
}

void device_kernels::max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                       const tensor_view& dx, const pool_window& window,
                                       const execution_context& context) const {
  run_backward({backward_name, window, any_rule, context}, dy, argmaxes_of(index.bytes, window), dx);
}

void device_kernels::max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                       const tensor_view& dx, const pool_window& window, framework_rule rule,
                                       const execution_context& context) const {
  run_backward({backward_name, window, rule, context}, dy, argmaxes_in(x, window, false), dx, &x);
}

void device_kernels::relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y,
                                           const pool_window& window, const encoded_view& code,
                                           const encoded_view& index, framework_rule rule,
                                           const execution_context& context) const {
  const std::int64_t elements = y.elements();
  pool_planes planes;
  if (index.data != nullptr) planes.index = plane_of(index, elements, tap_bits(window));
  if (code.data != nullptr) planes.code = plane_of(code, elements, tap_bits(window));
  if (planes.code.bits == 2) {
    planes.gradient = {planes.code.data + planes.code.bytes, plane_bytes(elements, 1), 1};
  }
  planes.index_report = index.report;
  planes.code_report = code.report;
  run_forward({"relu_max_pool_forward", window, rule, context}, true, x, y, planes);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code,
                                            const tensor_view& dx, const pool_window& window,
                                            const execution_context& context) const {
  encoded_argmaxes w = argmaxes_of(code.bytes, window);
  w.tap_needs_pass = true;
  w.passing = pass_source::code;
  if (w.bits == 2) {
    w.passing = pass_source::plane;
    w.plane = w.taps + plane_bytes(dy.elements(), w.bits);
  }
  run_backward({relu_backward_name, window, any_rule, context}, dy, w, dx);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                            const encoded_tensor& y_stash, const tensor_view& dx,
                                            const pool_window& window, framework_rule rule,
                                            const execution_context& context) const {
  const pool_request request{relu_backward_name, window, rule, context};
  if (y_stash.how.kind == encoding_kind::raw) {
    const const_tensor_view y{y_stash.bytes.data, dy.type, memory_space::device, dy.dims, 0};
    return run_backward(request, dy, argmaxes_of(index.bytes, y, window), dx);
  }
  if (y_stash.how.kind == encoding_kind::bitmap || y_stash.how.kind == encoding_kind::csr) {
    const const_tensor_view shape_of{nullptr, dy.type, memory_space::device, shape{dy.elements()}, 0};
    const tiled_argmaxes w{argmaxes_of(index.bytes, window),
                           device_tiles_of(y_stash.how, shape_of, y_stash.bytes),
                           y_stash.how.kind == encoding_kind::csr};
    return run_backward(request, dy, w, dx);
  }
  run_backward(request, dy, argmaxes_of(index.bytes, y_stash, dy, window), dx);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                            const const_tensor_view& y, const tensor_view& dx,
                                            const pool_window& window, framework_rule rule,
                                            const execution_context& context) const {
  run_backward({relu_backward_name, window, rule, context}, dy, argmaxes_of(index.bytes, y, window), dx, &y);
}

void device_kernels::relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                            const tensor_view& dx, const pool_window& window,
                                            framework_rule rule, const execution_context& context) const {
  run_backward({relu_backward_name, window, rule, context}, dy, argmaxes_in(x, window, true), dx, &x);
}

}  // namespace stash::kernels
