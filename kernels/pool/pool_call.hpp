// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A pass over a pooling layer on the host: which strategy takes it, and the launches of all strategies, one
/// unit for each kind of pass.

#include "pool/pool_backward.hpp"
#include "pool/pool_forward.hpp"
#include "pool/pool_strategy.hpp"
#include "pool/pool_tiles.hpp"

namespace stash::kernels {

struct pool_call {
  const char* name;  ///< of the function
  const execution_context& context;
  dtype type;
  pool_geometry layer;
  pool_strategy strategy;
  pool_job job;
};

/// What a function was called with, besides its maps.
struct pool_request {
  const char* name;
  const pool_window& window;
  framework_rule rule;
  const execution_context& context;
};

/// `third`: the map that a pass reads besides the two, if there is one: x where argmaxes are found again, y
/// where signs are its own.
pool_call call_of(const pool_request& request, pool_source source, const const_tensor_view& x,
                  const const_tensor_view& y, const const_tensor_view* third);

/// Elements from pixel to pixel.
std::int64_t pitch_of(const const_tensor_view& map, const pool_window& window);

void forward(const pool_call& call, bool relu, const const_tensor_view& x, const tensor_view& y,
             const pool_planes& planes);

void backward(const pool_call& call, const const_tensor_view& dy, const encoded_argmaxes& source,
              const tensor_view& dx);
void backward(const pool_call& call, const const_tensor_view& dy, const searched_argmaxes& source,
              const tensor_view& dx);
void backward(const pool_call& call, const const_tensor_view& dy, const tiled_argmaxes& source,
              const tensor_view& dx);

}  // namespace stash::kernels
