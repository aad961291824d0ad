// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/kernels.hpp"

#include <fmt/format.h>

#include <fstream>

#include "executor/kernels/onednn.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

using factory = kernel_pointer (*)(const kernel_setup& setup);

/// Null for ops that have no kernel here.
factory factory_of(op_kind kind) noexcept {
  switch (kind) {
    case op_kind::conv2d:
    case op_kind::conv2d_backward_weights:
    case op_kind::conv2d_backward_data:
      return make_convolution_kernel;
    case op_kind::dense:
    case op_kind::dense_backward_weights:
    case op_kind::dense_backward_data:
      return make_dense_kernel;
    case op_kind::relu:
    case op_kind::relu_backward:
    case op_kind::leaky_relu:
    case op_kind::leaky_relu_backward:
    case op_kind::relu6:
    case op_kind::relu6_backward:
      return make_activation_kernel;
    case op_kind::max_pool:
    case op_kind::max_pool_backward:
    case op_kind::relu_max_pool:
    case op_kind::relu_max_pool_backward:
      return make_max_pool_kernel;
    case op_kind::avg_pool:
    case op_kind::avg_pool_backward:
    case op_kind::global_avg_pool:
    case op_kind::global_avg_pool_backward:
      return make_mean_pool_kernel;
    case op_kind::batch_norm:
    case op_kind::batch_norm_backward:
      return make_batch_norm_kernel;
    case op_kind::add:
    case op_kind::copy:
    case op_kind::accumulate:
      return make_sum_kernel;
    case op_kind::dropout:
    case op_kind::dropout_backward:
      return make_dropout_kernel;
    case op_kind::softmax_cross_entropy:
    case op_kind::softmax_cross_entropy_backward:
      return make_loss_kernel;
    case op_kind::lrn:
    case op_kind::lrn_backward:
    case op_kind::sgd_update:
    case op_kind::generic:
      return nullptr;
  }
  return nullptr;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

void openmp_for(void* user, std::int64_t count, std::int64_t grain, range_function body, void* state) {
  const int threads = *static_cast<const int*>(user);
  const std::int64_t chunks = (count + grain - 1) / grain;
  if (threads <= 1 || chunks <= 1) {
    if (count > 0) body(state, 0, count);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < chunks; ++i)
    body(state, i * grain, std::min(count, (i + 1) * grain));
}

}  // namespace

std::unique_ptr<op_kernel> make_kernel(const planner::graph& g, planner::op_id op,
                                       const kernel_options& options) {
  const kernel_setup setup{g, g.op_at(op), options};
  const factory make = factory_of(setup.op.kind);
  if (make == nullptr) {
    throw error(errc::unsupported,
                fmt::format("make_kernel: op '{}': expected a kind that the CPU executor runs, got {}",
                            setup.op.name, planner::to_string(setup.op.kind)));
  }
  if (options.threads < 1 || setup.batch() < 1) {
    throw error(errc::invalid_argument,
                fmt::format("make_kernel: op '{}': expected at least 1 thread and 1 sample, got {} "
                            "and {}",
                            setup.op.name, options.threads, setup.batch()));
  }
  return make(setup);
}

execution_context openmp_context(const int& threads) {
  execution_context context;
  context.parallel_for = openmp_for;
  context.user = const_cast<int*>(&threads);  // read only; the callback's user pointer has no const
  return context;
}

std::string annotate_workspaces(planner::graph& g, const kernel_options& options) {
  for (const planner::op_id i : g.ops.ids()) {
    if (g.ops[i].kind == planner::op_kind::generic) continue;  // its author knows what it takes
    g.ops[i].workspace_bytes = 0;
    if (factory_of(g.ops[i].kind) == nullptr) continue;
    g.ops[i].workspace_bytes = make_kernel(g, planner::op_id(i), options)->workspace_bytes();
  }
  return fmt::format("{}, {}", processor_name(), onednn::description());
}

}  // namespace stash::executor
