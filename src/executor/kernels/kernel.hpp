// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One op of a training graph, prepared once and run many times on memory that the plan chose. A kernel owns
/// no tensor memory: library primitives at most. It allocates nothing large while running (library-internal
/// bookkeeping of a few KiB is tolerated) and needs at most workspace_bytes() of workspace.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/graph/graph.hpp"
#include "stash/dropout.hpp"
#include "stash/encoding.hpp"

namespace stash::executor {

/// A stash as a backward kernel sees it: dense (kept raw, decoded or recomputed) or encoded bytes.
struct stash_operand {
  bool dense = true;
  const_tensor_view view;  ///< dense: the slice that is read
  encoded_tensor stored;   ///< encoded: all of the storage
};

/// An auxiliary output: not requested (`requested` false), one byte per element (stored.kind raw), or
/// encoded.
struct auxiliary_operand {
  bool requested = false;
  encoding stored;
  encoded_view bytes;
};

struct kernel_operands {
  std::vector<tensor_view> inputs;   ///< parallel to op.inputs; pitched where the ref is a slice
  std::vector<tensor_view> outputs;  ///< parallel to op.outputs
  std::vector<auxiliary_operand> optional_outputs;
  std::vector<float*> parameters;          ///< parallel to op.parameters
  std::vector<float*> parameters_written;  ///< parallel to op.parameters_written
  std::string_view form;                   ///< of the chosen alternative; empty where the op has none
  std::vector<stash_operand> stash;        ///< parallel to the chosen alternative's reads
  workspace_view workspace;                ///< 64-byte aligned, workspace_bytes() long
  dropout_key key;                         ///< seed and step; dropout: layer is the forward op's id
  bool training = true;             ///< false: batch_norm uses running statistics, dropout is the identity
  double* loss = nullptr;           ///< softmax_cross_entropy: receives the mean loss of the batch
  std::int64_t* correct = nullptr;  ///< softmax_cross_entropy: receives the number of right predictions
};

/// What all kernels of one executor share.
struct kernel_options {
  int threads = 1;  ///< OpenMP threads: part of the result for weight gradients, so it is in the plan
  framework_rule rule = framework_rule::tensorflow;
};

class op_kernel {
 public:
  virtual ~op_kernel() = default;
  virtual std::int64_t workspace_bytes() const { return 0; }
  /// Name of the code that runs, e.g. the library's "jit:avx2"; for reports and tests.
  virtual std::string implementation() const { return "loop"; }
  /// Runs to completion. Throws stash::error on failure; outputs are then unspecified.
  virtual void run(const kernel_operands& operands) = 0;
};

/// Makes the kernel for one op of `g`. Throws error(unsupported) naming the op for kinds that the CPU
/// executor does not run (lrn, lrn_backward) and for sgd_update (the executor does it).
///
/// Weights lie in plain row-major order: conv2d (out, in / groups, kernel_h, kernel_w), dense (out, in). The
/// library's blocked order, which differs between directions, exists only in the workspace: reordering from
/// this order costs about 1 % of a convolution, and files and tests see an order that anybody can index.
///
/// Pixels: a conv2d (or its backward_weights) whose x is an image converts uint8 to f32 as (p - 128) / 64 in
/// its workspace, a few samples at a time; its weight gradient is the sum over those parts in order.
std::unique_ptr<op_kernel> make_kernel(const planner::graph& g, planner::op_id op,
                                       const kernel_options& options);

/// The execution context of kernels: parallel_for over an OpenMP team of `threads` threads (the same team
/// that oneDNN uses, so that two pools never compete for the cores). `threads` must outlive the context.
execution_context openmp_context(const int& threads);

/// Asks every kernel for its workspace and stores it in g.ops[i].workspace_bytes (0 for ops that this back
/// end does not run; generic ops keep theirs). Returns a text that names processor and instruction set.
std::string annotate_workspaces(planner::graph& g, const kernel_options& options);

}  // namespace stash::executor
