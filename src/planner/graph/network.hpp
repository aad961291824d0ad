// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A network as its author thinks of it: forward nodes, one output each, channels-last. Model builders write
/// these; make_training_graph() derives storages, in-place merges and the backward pass from them.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/graph/ids.hpp"

namespace stash::planner {

/// A node of a network.
using node_id = typed_id<struct node>;

enum class node_kind : std::uint8_t {
  input,   ///< uint8 images (H, W, C)
  conv2d,  ///< with optional bias
  dense,   ///< fully connected over all features, with bias
  relu,
  leaky_relu,
  relu6,
  max_pool,
  avg_pool,         ///< padding taps do not count in the mean
  global_avg_pool,  ///< output {1, 1, C}
  batch_norm,
  add,     ///< two inputs of one shape
  concat,  ///< along channels
  dropout,
  lrn,  ///< y = x / (k + alpha / size * sum of x^2 over size channels around it)^beta
  flatten,
  softmax_cross_entropy,  ///< mean over the batch; the last node
};

/// Parameters of a node or op; each kind reads the ones named after it, the rest stay at their defaults.
struct op_attributes {
  // conv2d, max_pool, avg_pool
  std::int32_t kernel_h = 1, kernel_w = 1;
  std::int32_t stride_h = 1, stride_w = 1;
  std::int32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool ceil_mode = false;         ///< pooling: a last partial window counts
  std::int32_t groups = 1;        ///< conv2d
  std::int64_t out_features = 0;  ///< conv2d: output channels; dense: outputs
  bool bias = true;               ///< conv2d
  // batch_norm
  float epsilon = 1e-5F;
  float statistics_momentum = 0.1F;  ///< weight of the newest batch in the running statistics
  bool fused_relu = false;           ///< training graph only: batch_norm followed by its relu
  // leaky_relu
  float negative_slope = 0.01F;
  // dropout
  float drop_probability = 0.5F;
  // lrn
  std::int32_t lrn_size = 5;
  float lrn_alpha = 1e-4F, lrn_beta = 0.75F, lrn_k = 2.0F;

  friend bool operator==(const op_attributes&, const op_attributes&) = default;
};

struct node {
  std::string name;  ///< unique
  node_kind kind = node_kind::input;
  std::vector<node_id> inputs;
  op_attributes attributes;
  std::vector<std::int64_t> shape;  ///< of the output, per sample: {H, W, C} or {features}
};

/// Nodes in topological order, the one input (named "input") first; the builder functions infer and check
/// shapes and return the new node's id. They throw error(invalid_argument) that names the node when shapes do
/// not fit.
class network {
 public:
  explicit network(std::string name) : name_(std::move(name)) {}

  node_id input(std::int64_t height, std::int64_t width, std::int64_t channels);
  node_id conv2d(const std::string& name, node_id x, std::int64_t out_channels,
                 std::array<std::int32_t, 2> kernel, std::array<std::int32_t, 2> stride,
                 std::array<std::int32_t, 2> padding, bool bias = true, std::int32_t groups = 1);
  node_id dense(const std::string& name, node_id x, std::int64_t outputs);
  node_id relu(const std::string& name, node_id x);
  node_id leaky_relu(const std::string& name, node_id x, float negative_slope);
  node_id relu6(const std::string& name, node_id x);
  node_id max_pool(const std::string& name, node_id x, std::int32_t kernel, std::int32_t stride,
                   std::int32_t padding = 0, bool ceil_mode = false);
  node_id avg_pool(const std::string& name, node_id x, std::int32_t kernel, std::int32_t stride,
                   std::int32_t padding = 0, bool ceil_mode = false);
  node_id global_avg_pool(const std::string& name, node_id x);
  node_id batch_norm(const std::string& name, node_id x, float epsilon = 1e-5F,
                     float statistics_momentum = 0.1F);
  node_id add(const std::string& name, node_id a, node_id b);
  node_id concat(const std::string& name, const std::vector<node_id>& inputs);
  node_id dropout(const std::string& name, node_id x, float probability);
  node_id lrn(const std::string& name, node_id x, std::int32_t size = 5, float alpha = 1e-4F,
              float beta = 0.75F, float k = 2.0F);
  node_id flatten(const std::string& name, node_id x);
  node_id softmax_cross_entropy(const std::string& name, node_id logits);

  const std::string& name() const noexcept { return name_; }
  const id_vector<node_id, node>& nodes() const noexcept { return nodes_; }
  const node& at(node_id id) const { return nodes_.at(id); }

 private:
  node_id append(node n);
  const node& operand(const std::string& user, node_id id) const;

  std::string name_;
  id_vector<node_id, node> nodes_;
};

/// Number of window positions along one axis; 0 if the kernel does not fit the padded extent. In ceil mode a
/// last partial window counts if it starts inside the input or the padding before it. stride >= 1.
std::int64_t window_count(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                          std::int64_t pad_begin, std::int64_t pad_end, bool ceil_mode) noexcept;

/// Number of trainable parameters (weights, biases, batch-norm scales and shifts).
std::int64_t parameter_count(const network& net);

}  // namespace stash::planner
