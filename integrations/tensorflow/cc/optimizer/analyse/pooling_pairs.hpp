// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Max-poolings whose gradient argmax can serve.

#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/log.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

struct pooling_pairs {
  std::vector<pooling> poolings;
  std::vector<left_node> left;  ///< gradients that argmax would not give bit by bit
};

/// `order` and `backward` as in step.
pooling_pairs find_poolings(const graph_view& graph, const std::vector<int>& order,
                            const std::vector<bool>& backward, const settings& request);

}  // namespace stash_tf
