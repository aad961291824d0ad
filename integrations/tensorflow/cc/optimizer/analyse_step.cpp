// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse_step.hpp"

#include <algorithm>

#include "optimizer/analyse/block_rules.hpp"

namespace stash_tf {

namespace {

// Kernels for GPUs are registered in any case, but without CUDA in the core they only say that it is missing.
bool lies_where_no_kernel_runs(const graph_view& graph, const step& analysis, const settings& request) {
  if (STASH_TF_HAS_CUDA != 0 || request.any_device) return false;
  return std::any_of(analysis.blocks.begin(), analysis.blocks.end(),
                     [&](const stashed_block& b) { return is_on_gpu(graph, b.root.node); });
}

}  // namespace

step analyse_step(const read_step& read, const graph_view& graph, const tensor_sizes& sizes,
                  const settings& request) {
  step analysis = analyse(graph, sizes, request, read.preserved);
  analysis.threads = read.threads;
  return analysis;
}

std::string why_left(const graph_view& graph, const step& analysis, const settings& request) {
  if (analysis.device_node < 0) return "no backward pass that reads a large tensor of a forward pass";
  if (lies_where_no_kernel_runs(graph, analysis, request))
    return "its tensors lie on a GPU, and this stash_tf was built without CUDA (docs/tensorflow.md)";
  return analysis.order.size() == at(graph.size()) ? "" : "the graph has a cycle";
}

}  // namespace stash_tf
