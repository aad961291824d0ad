// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Launches of the backward pass for any windows, for every source of argmaxes.

#include "pool/pool_disjoint.hpp"
#include "pool/pool_launch.hpp"

namespace stash::kernels {

template <class Source>
void backward_general(const pool_call& call, const const_tensor_view& dy, const Source& source,
                      const tensor_view& dx) {
  with_general_kernel(call, [&](auto bits, auto width, auto p) {
    launch_backward(call, pool_blocks(call.job.x_units), pool_threads,
                    pool_backward<decltype(bits), width, decltype(p), Source>, dy, source, dx);
  });
}

template <class Source>
void backward_disjoint(const pool_call& call, const const_tensor_view& dy, const Source& source,
                       const tensor_view& dx) {
  with_element(call.type, [&](auto bits) {
    launch_backward(call, pool_blocks(call.job.y_units), pool_threads,
                    pool_backward_disjoint<decltype(bits), Source>, dy, source, dx);
  });
}

}  // namespace stash::kernels
