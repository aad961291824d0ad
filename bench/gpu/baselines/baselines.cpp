// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/baselines/baselines.hpp"

#include <iterator>

namespace stash::gpu {

std::vector<measured_case> baseline_cases() {
  std::vector<measured_case> all;
  for (const auto group : {kernel_baselines, cub_baselines, cusparse_baselines, cudnn_relu_baselines,
                           cudnn_pool_baselines, cudnn_graph_baselines, link_baselines}) {
    std::vector<measured_case> part = group();
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace stash::gpu
