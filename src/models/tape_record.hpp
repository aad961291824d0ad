// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a tape remembers of each operation: operands, how its gradient is computed, what that reads.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::models::tape_record {

/// Places in the lists of a tape.
using value_number = std::int32_t;
using node_number = std::int32_t;
using parameter_number = std::int32_t;

enum class operand : std::uint8_t { input, output, auxiliary };

/// A read of the forward pass: operand number `which` of its list.
struct read {
  operand from = operand::input;
  std::size_t which = 0;
  planner::need what = planner::need::value;
};

struct form {
  std::string name;
  std::vector<read> reads;
  double flops = 0;  ///< per sample, where this way computes something again
};

/// One op of the backward pass; its dense inputs are the gradients of the node's outputs and `id_inputs`.
struct backward_step {
  std::string suffix, label;
  std::vector<std::size_t> targets;     ///< inputs whose gradients it makes
  std::vector<std::size_t> parameters;  ///< of the node's parameters, that it reads
  std::vector<std::size_t> trained;     ///< of the node's parameters, whose gradients it makes
  std::vector<std::size_t> id_inputs;   ///< inputs that are ids
  std::vector<form> forms;
  /// Target that may take the bytes of an output's gradient, and that output; only in a node's last step.
  std::int32_t in_place_target = -1, in_place_output = 0;
  double flops = 0;            ///< per sample
  std::int64_t workspace = 0;  ///< bytes per sample
};

struct auxiliary {
  std::string suffix;
  std::vector<std::int64_t> shape;
  dtype type = dtype::u8;
  std::int32_t window_taps = 0;
};

/// Output that may be written over an input.
struct overwrite {
  std::size_t output = 0, input = 0;
};

/// Entries [first, first + count) of ids.
struct slice {
  std::int64_t first = 0, count = 0;
};

enum class node_kind : std::uint8_t {
  op,
  sum,     ///< an op whose inputs all have the gradient of its output
  concat,  ///< a view: inputs are written into their channels of the output
  split,   ///< a view: outputs are channels of the input
  input,   ///< image or ids
};

/// Elements of a shape, 0 if a dimension is not positive. Throws error(invalid_argument) if they are more
/// than most_elements.
std::int64_t elements(const std::vector<std::int64_t>& shape);
/// Of a value per sample, and bytes of all storages of a step: what the planner adds up stays within 64 bits.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 56, most_bytes = most_elements;

struct node {
  std::string name, label;
  node_kind kind = node_kind::op;
  std::vector<value_number> inputs;
  planner::id_vector<std::int32_t, value_number> outputs;
  std::vector<slice> input_slices;  ///< of ids; missing or empty: the whole
  std::vector<parameter_number> parameters;
  std::vector<std::vector<std::int64_t>> statistics;        ///< running ones, fixed size
  std::vector<std::vector<std::int64_t>> saved_statistics;  ///< of this step, fixed size
  std::vector<auxiliary> auxiliaries;
  std::vector<overwrite> overwrites;
  std::vector<backward_step> backward;
  double flops = 0;            ///< per sample
  std::int64_t workspace = 0;  ///< bytes per sample
  bool recomputable = false;
  bool loss = false;
  std::int64_t classes = 0;  ///< of a loss
  double density_factor = 1;
  bool zeroes = false;           ///< a ReLU: half of the output is zero
  bool pools = false;            ///< zero where a whole window is
  planner::storage_role role{};  ///< of an input
  dtype type = dtype::f32;
};

struct value {
  std::vector<std::int64_t> shape;
  node_number node = -1;
  std::int32_t position = 0;   ///< among the outputs of the node
  value_number alias_of = -1;  ///< reshaped: the value that it is
};

struct parameter {
  std::string name;
  std::vector<std::int64_t> shape;
};

}  // namespace stash::models::tape_record
