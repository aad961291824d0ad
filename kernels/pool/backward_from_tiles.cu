// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_general_backward.hpp"

namespace stash::kernels {

void backward(const pool_call& call, const const_tensor_view& dy, const tiled_argmaxes& source,
              const tensor_view& dx) {
  if (call.strategy == pool_strategy::disjoint) return backward_disjoint(call, dy, source, dx);
  if (call.strategy == pool_strategy::scatter) return backward_scatter(call, dy, source, dx);
  backward_one_value(call, dy, source, dx);
}

}  // namespace stash::kernels
