// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The training graph: one step of training as a fixed list of ops over storages. This is what planners
/// plan, executors run and files hold (docs/graph.md); integrations will produce it from their own graphs.
///
/// A *storage* is one memory block, possibly written by several ops in turn (in-place activations) and read
/// through channel slices (concatenation). Sizes are `fixed_bytes + bytes_per_sample * batch`.
/// Each backward op lists *alternative* sets of stash reads; a plan picks one set per op.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/graph/ids.hpp"
#include "planner/graph/network.hpp"
#include "stash/tensor_view.hpp"

namespace stash::planner {

/// Places in the lists of a graph: storages, ops and recipes.
using storage_id = typed_id<struct storage>;
using op_id = typed_id<struct op>;
using recipe_id = typed_id<struct recipe>;

enum class storage_role : std::uint8_t {
  image,            ///< input batch, uint8, live for the whole step
  label,            ///< s32, live for the whole step
  feature_map,      ///< forward value
  gradient,         ///< of a feature map
  auxiliary,        ///< mask, window index or relu_pool code; exists only if the plan asks the op for it
  weight,           ///< trainable parameter (fixed size)
  weight_gradient,  ///< (fixed size)
  momentum,         ///< optimizer state (fixed size)
  statistic,        ///< running statistics of batch norm (fixed size, updated with the weights)
  saved_statistic,  ///< batch mean and inverse standard deviation of this step (fixed size)
};

struct storage {
  std::string name;  ///< unique
  storage_role role = storage_role::feature_map;
  dtype type = dtype::f32;
  /// Dense shape: per sample for batch-proportional roles ({H, W, C} or {features}), whole for the others.
  std::vector<std::int64_t> shape;
  std::int64_t fixed_bytes = 0;
  std::int64_t bytes_per_sample = 0;
  /// Share of non-zero elements, assumed or measured; 1 where nothing is known to be zero.
  double density = 1.0;
  /// Auxiliary storages: the number of taps of the pooling window (window index, relu_pool code).
  std::int32_t window_taps = 0;

  std::int64_t bytes(std::int64_t batch) const noexcept { return fixed_bytes + bytes_per_sample * batch; }
  std::int64_t elements(std::int64_t batch) const noexcept;  ///< of the dense form
  bool batch_proportional() const noexcept { return bytes_per_sample != 0; }
};

/// A storage, or a range of its channels (last dimension). channels == 0: all of them.
struct tensor_ref {
  storage_id storage = no_id;
  std::int64_t channel_begin = 0;
  std::int64_t channels = 0;
  bool whole() const noexcept { return channels == 0; }
  friend bool operator==(const tensor_ref&, const tensor_ref&) = default;
};

enum class op_kind : std::uint8_t {
  conv2d,
  conv2d_backward_weights,
  conv2d_backward_data,
  dense,
  dense_backward_weights,
  dense_backward_data,
  relu,
  relu_backward,
  leaky_relu,
  leaky_relu_backward,
  relu6,
  relu6_backward,
  max_pool,
  max_pool_backward,
  relu_max_pool,
  relu_max_pool_backward,
  avg_pool,
  avg_pool_backward,
  global_avg_pool,
  global_avg_pool_backward,
  batch_norm,
  batch_norm_backward,  ///< attributes.fused_relu: with the relu after it
  add,                  ///< output = input 0 + input 1
  copy,                 ///< output = input (where a view is not possible)
  accumulate,  ///< in place: inputs {sum, part}, outputs {sum}; sum += part (maps with several readers)
  dropout,
  dropout_backward,
  lrn,
  lrn_backward,
  softmax_cross_entropy,
  softmax_cross_entropy_backward,
  sgd_update,  ///< of parameters; in the backward stage their gradients are gone after it
  generic,     ///< described by `op::label` and its operands alone: from a trace, or of a network that only
               ///< plans
};

enum class op_stage : std::uint8_t { forward, backward, update };

/// What a backward op wants to know of a storage (table in docs/needs.md).
enum class need : std::uint8_t {
  sign,         ///< whether the gradient passes
  range,        ///< whether the value lies strictly inside the activation's range
  mask,         ///< the keep decision of dropout
  window,       ///< argmax per pooled value
  sign_window,  ///< both, jointly (relu_pool)
  value,        ///< the values; reduced precision allowed if the policy allows it
  fine_value,   ///< the same, of 16 bits at least: what is computed from it vanishes if it is rounded further
  exact_value,  ///< the values bit for bit
};

struct stash_read {
  storage_id storage = no_id;
  need what = need::value;
  tensor_ref slice;  ///< the part that is read; slice.storage == storage
};

/// One legal way to run a backward op. `form` tells the kernel how to read its stashes, e.g. "from_y",
/// "from_x", "from_index", "from_index_and_y", "from_code", "from_mask", "from_seed", "recompute".
struct stash_alternative {
  std::string form;
  std::vector<stash_read> reads;
  /// Floating-point operations in addition to op::flops, where this way computes something again.
  double flops = 0.0;
};

/// By number; a plan names one of them per op.
using alternative_list = id_vector<std::int32_t, stash_alternative>;

/// One operation. Conventions for the order of operands are listed in docs/graph.md for each kind:
/// conv2d/dense: inputs {x}, outputs {y}, parameters {weight[, bias]}
/// *_backward_weights: inputs {dy}, reads {x}, parameters_written {weight_gradient[, bias_gradient]}
/// *_backward_data: inputs {dy}, outputs {dx}, parameters {weight}
/// activations and pooling: inputs {x}, outputs {y}; backward: inputs {dy}, outputs {dx}
/// batch_norm: parameters {scale, shift, running_mean, running_variance}, parameters_written {saved_mean,
///   saved_inverse_deviation}; backward: parameters {scale, shift, saved_mean, saved_inverse_deviation},
///   parameters_written {scale_gradient, shift_gradient}
/// softmax_cross_entropy: inputs {logits, labels}, outputs {probabilities}; backward: inputs {labels},
///   outputs {dlogits}, reads {probabilities}
/// generic: any number of any of them, in any stage; the first alternative is the one that frameworks use
struct op {
  std::string name;  ///< unique
  op_kind kind = op_kind::copy;
  op_stage stage = op_stage::forward;
  std::string label;         ///< generic ops: what it is, e.g. "aten::gelu"
  op_id forward_op = no_id;  ///< of a backward op
  op_attributes attributes;
  /// Dense operands. An op works in place where an output is also an input.
  std::vector<tensor_ref> inputs;
  std::vector<tensor_ref> outputs;
  /// Auxiliary storages that this forward op writes if the plan asks for them.
  std::vector<storage_id> optional_outputs;
  /// Fixed-size storages.
  std::vector<storage_id> parameters;
  std::vector<storage_id> parameters_written;
  /// Backward ops that read stashes: at least one alternative, in order of preference.
  alternative_list alternatives;
  /// Workspace that the back end asks for while the op runs (0 until a back end has been asked).
  std::int64_t workspace_bytes = 0;
  /// Floating-point operations of the whole batch, for estimates; 0: derived from kind and shapes.
  double flops = 0.0;
  /// Measured or estimated time, if known.
  std::optional<double> seconds;
  /// Samples [batch_begin, batch_end) that this op works on; batch_end == -1 means the whole batch.
  std::int64_t batch_begin = 0;
  std::int64_t batch_end = -1;
};

/// How to compute a feature map again from maps that are kept: a few forward ops run once more. A storage may
/// be the target of several recipes; a plan picks one of them, or none.
struct recipe {
  storage_id target = no_id;        ///< what the last op writes
  std::vector<storage_id> sources;  ///< feature maps that the ops read and none of them writes, by first use
  std::vector<op_id> ops;           ///< forward ops in their order, 1 to most_recipe_ops of them
};
inline constexpr std::size_t most_recipe_ops = 8;

struct graph {
  std::string name;
  std::int64_t batch = 0;
  std::int64_t classes = 0;
  id_vector<storage_id, storage> storages;
  id_vector<op_id, op> ops;  ///< in execution order: forward, backward, update
  id_vector<recipe_id, recipe> recipes;

  const storage& at(storage_id id) const { return storages.at(id); }
  const op& op_at(op_id id) const { return ops.at(id); }
};

std::string_view to_string(node_kind kind) noexcept;
std::string_view to_string(op_kind kind) noexcept;
std::string_view to_string(storage_role role) noexcept;
std::string_view to_string(op_stage stage) noexcept;
std::string_view to_string(need what) noexcept;

struct training_graph_options {
  /// Density assumed for the output of a ReLU and for maps that are zero only where such a map is.
  double relu_density = 0.5;
  /// The weights of a layer are updated as soon as nobody reads their old values: gradients of two layers are
  /// never there at once.
  bool fused_update = false;
};

/// Derives the training graph: in-place activations, concatenation as views, relu + max-pool and batch-norm +
/// relu joined where nobody else reads the map between them, backward ops in reverse order with the weight
/// gradient before the input gradient, in-place backward where the incoming gradient dies.
/// Throws error(invalid_argument) if the network does not end in softmax_cross_entropy, if a node does not
/// lead to it, or if the batch is < 1.
graph make_training_graph(const network& net, std::int64_t batch, const training_graph_options& options = {});

/// Throws error(bad_format) that names the op or storage if ids, shapes, order of definition and use, or
/// sizes are inconsistent. Every graph that comes from a file passes through it.
void check_graph(const graph& g);

}  // namespace stash::planner
