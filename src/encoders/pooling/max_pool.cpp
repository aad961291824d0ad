// SPDX-License-Identifier: Apache-2.0
#include "encoders/device/backend.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/pooling/pool_backward.hpp"
#include "encoders/pooling/pool_general_backward.hpp"
#include "encoders/public_call.hpp"
#include "stash/pool.hpp"

namespace stash {

using namespace encoders;

void max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                      const encoded_view& index, framework_rule rule, const execution_context& context) try {
  constexpr std::string_view function = "max_pool_forward";
  check_context(function, context);
  check_rule(function, rule);
  pool_planes planes;
  const auto want_index = [&](std::int64_t taps) {
    if (index.data != nullptr) set_index_plane(function, index, taps, y.elements(), planes);
    call_memory(function).reads("x", x).writes("y", y).writes("index", index,
                                                              plane_bytes(y.elements(), planes.index_bits));
  };
  if (on_device(context)) {
    want_index(check_general_pool(function, "x", x, "y", y, window, context.space).taps());
    return device::kernels().max_pool_forward(x, y, window, index, rule, context);
  }
  if (is_general(window, x)) {
    const general_shape s = check_general_pool(function, "x", x, "y", y, window);
    want_index(s.taps());
    general_pool_forward(false, s, x, y, planes, rule, context);
  } else {
    const pool_shape s = check_pool(function, "x", x, "y", y, window);
    want_index(s.taps());
    pool_forward(false, s, x, y, planes, rule, context);
  }
  if (index.data != nullptr) add(index.report->slot_bytes, plane_bytes(y.elements(), planes.index_bits));
} catch (...) {
  encoders::rethrow("max_pool_forward");
}

void max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index, const tensor_view& dx,
                       const pool_window& window, const execution_context& context) try {
  constexpr std::string_view function = "max_pool_backward";
  check_context(function, context);
  const auto checked_source = [&](std::int64_t taps) {
    const index_source source = checked_index_source(function, index, window, taps, dy);
    call_memory(function)
        .reads("dy", dy)
        .reads("index", index.bytes, plane_bytes(dy.elements(), tap_bits(taps)))
        .writes("dx", dx);
    return source;
  };
  if (on_device(context)) {
    checked_source(check_general_pool(function, "dx", dx, "dy", dy, window, context.space).taps());
    return device::kernels().max_pool_backward(dy, index, dx, window, context);
  }
  if (is_general(window, dx)) {
    const general_shape s = check_general_pool(function, "dx", dx, "dy", dy, window);
    const index_source source = checked_source(s.taps());
    return general_pool_backward(s, dy, source, dx, index.bytes.report->status, context);
  }
  const pool_shape s = check_pool(function, "dx", dx, "dy", dy, window);
  const index_source source = checked_source(s.taps());
  pool_backward(s, dy, source, dx, index.bytes.report->status, context);
} catch (...) {
  encoders::rethrow("max_pool_backward");
}

void max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                       const pool_window& window, framework_rule rule, const execution_context& context) try {
  constexpr std::string_view function = "max_pool_backward";
  check_context(function, context);
  check_rule(function, rule);
  const auto check_x = [&](std::int64_t taps) {
    check_same_shape(function, "x", x, "dx", dx, window, context.space);
    checked_index_bits(function, taps);
    call_memory(function).reads("dy", dy).reads("x", x).writes("dx", dx);
  };
  if (on_device(context)) {
    check_x(check_general_pool(function, "dx", dx, "dy", dy, window, context.space).taps());
    return device::kernels().max_pool_backward(dy, x, dx, window, rule, context);
  }
  std::uint32_t never_set = 0;
  if (is_general(window, dx)) {
    const general_shape s = check_general_pool(function, "dx", dx, "dy", dy, window);
    check_x(s.taps());
    return general_pool_backward(s, dy, general_search_source(s, x, rule, false), dx, never_set, context);
  }
  const pool_shape s = check_pool(function, "dx", dx, "dy", dy, window);
  check_x(s.taps());
  pool_backward(s, dy, search_source(s, x, rule, false), dx, never_set, context);
} catch (...) {
  encoders::rethrow("max_pool_backward");
}

}  // namespace stash
