// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What launches of several strategies have in common, on the host.

#include <algorithm>

#include "pool/pool_axes.hpp"
#include "pool/pool_call.hpp"

namespace stash::kernels {

/// Calls body(size of windows, their distance), both constants, for small squares.
template <class Body>
void with_window(const pool_call& call, const Body& body) {
  using two = std::integral_constant<unsigned, 2>;
  using three = std::integral_constant<unsigned, 3>;
  if (call.job.columns.kernel == 2) return body(two{}, two{});
  if (call.job.columns.stride == 2) return body(three{}, two{});
  body(three{}, std::integral_constant<unsigned, 1>{});
}

/// Calls body(zero of the element's bits, zero of the type of positions) for kernels of one value.
template <class Body>
void with_positions(const pool_call& call, const Body& body) {
  with_element(call.type, [&](auto bits) {
    if (call.strategy == pool_strategy::one_value) return body(bits, std::int32_t{});
    body(bits, std::int64_t{});
  });
}

/// Tiles that are worth as many threads: with fewer, multiprocessors would wait for others.
inline std::uint64_t enough_tiles() {
  return multiprocessors() * tuning::pool_tiles_of_processor;
}

/// Values of y, and those that the planes are padded with.
inline std::uint64_t padded_values(const pool_call& call, const pool_planes& planes) {
  auto values = static_cast<std::uint64_t>(call.layer.y_values());
  for (const code_plane& p : {planes.index, planes.code, planes.gradient}) {
    if (p.data != nullptr) values = std::max(values, p.bytes / p.bits * group_elements);
  }
  return values;
}

/// Runs a kernel that makes y and its planes.
template <class... Parameters, class... Grid>
void launch_forward(const pool_call& call, std::uint64_t blocks, unsigned threads,
                    void (*kernel)(Parameters...), bool relu, const const_tensor_view& x,
                    const tensor_view& y, const pool_planes& planes, const Grid&... grid) {
  launch(call.name, call.context, blocks, threads, kernel, call.job, grid..., relu,
         static_cast<const void*>(x.data), static_cast<void*>(y.data), planes);
}

/// Runs a kernel that makes dx.
template <class... Parameters, class Source, class... Grid>
void launch_backward(const pool_call& call, std::uint64_t blocks, unsigned threads,
                     void (*kernel)(Parameters...), const const_tensor_view& dy, const Source& source,
                     const tensor_view& dx, const Grid&... grid) {
  launch(call.name, call.context, blocks, threads, kernel, call.job, grid...,
         static_cast<const void*>(dy.data), source, static_cast<void*>(dx.data));
}

}  // namespace stash::kernels
