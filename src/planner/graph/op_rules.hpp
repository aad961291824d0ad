// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What check_graph demands of every kind of op: stage, forward partner and number of operands
/// (docs/graph.md, "Operands").

#include <array>
#include <cstddef>
#include <optional>

#include "planner/graph/graph.hpp"

namespace stash::planner::graph_rules {

struct operand_count {
  std::size_t least = 0;
  std::size_t most = 0;
};

struct op_rule {
  op_kind kind;
  std::optional<op_stage> stage;   ///< none: forward or backward
  std::optional<op_kind> forward;  ///< of a backward op: the kind of its forward op
  operand_count inputs;
  operand_count outputs;
  operand_count parameters;
  operand_count parameters_written;
  std::size_t optional_outputs;  ///< at most
  bool needs_alternative;        ///< a backward op that cannot do without a choice
  bool in_place;                 ///< an output may be one of the inputs
};

inline constexpr operand_count none{0, 0};
inline constexpr operand_count one{1, 1};
inline constexpr operand_count two{2, 2};
inline constexpr operand_count four{4, 4};
inline constexpr operand_count up_to_one{0, 1};
inline constexpr operand_count one_or_two{1, 2};
inline constexpr operand_count any{0, static_cast<std::size_t>(-1)};
inline constexpr op_stage fwd = op_stage::forward;
inline constexpr op_stage bwd = op_stage::backward;

/// The index of an entry is its kind's value. The output of an element-wise backward op may be missing:
/// nobody wants the gradient of an image.
inline constexpr std::array op_rules{
    op_rule{op_kind::conv2d, fwd, {}, one, one, one_or_two, none, 0, false, false},
    op_rule{op_kind::conv2d_backward_weights, bwd, op_kind::conv2d, one, none, none, one_or_two, 0, true,
            false},
    op_rule{op_kind::conv2d_backward_data, bwd, op_kind::conv2d, one, one, one, none, 0, false, false},
    op_rule{op_kind::dense, fwd, {}, one, one, one_or_two, none, 0, false, false},
    op_rule{op_kind::dense_backward_weights, bwd, op_kind::dense, one, none, none, one_or_two, 0, true,
            false},
    op_rule{op_kind::dense_backward_data, bwd, op_kind::dense, one, one, one, none, 0, false, false},
    op_rule{op_kind::relu, fwd, {}, one, one, none, none, 0, false, true},
    op_rule{op_kind::relu_backward, bwd, op_kind::relu, one, up_to_one, none, none, 0, true, true},
    op_rule{op_kind::leaky_relu, fwd, {}, one, one, none, none, 0, false, true},
    op_rule{op_kind::leaky_relu_backward, bwd, op_kind::leaky_relu, one, up_to_one, none, none, 0, true,
            true},
    op_rule{op_kind::relu6, fwd, {}, one, one, none, none, 0, false, true},
    op_rule{op_kind::relu6_backward, bwd, op_kind::relu6, one, up_to_one, none, none, 0, true, true},
    op_rule{op_kind::max_pool, fwd, {}, one, one, none, none, 1, false, false},
    op_rule{op_kind::max_pool_backward, bwd, op_kind::max_pool, one, one, none, none, 0, true, false},
    op_rule{op_kind::relu_max_pool, fwd, {}, one, one, none, none, 2, false, false},
    op_rule{op_kind::relu_max_pool_backward, bwd, op_kind::relu_max_pool, one, one, none, none, 0, true,
            false},
    op_rule{op_kind::avg_pool, fwd, {}, one, one, none, none, 0, false, false},
    op_rule{op_kind::avg_pool_backward, bwd, op_kind::avg_pool, one, one, none, none, 0, false, false},
    op_rule{op_kind::global_avg_pool, fwd, {}, one, one, none, none, 0, false, false},
    op_rule{op_kind::global_avg_pool_backward, bwd, op_kind::global_avg_pool, one, one, none, none, 0, false,
            false},
    op_rule{op_kind::batch_norm, fwd, {}, one, one, four, two, 0, false, true},
    op_rule{op_kind::batch_norm_backward, bwd, op_kind::batch_norm, one, up_to_one, four, two, 0, true, true},
    op_rule{op_kind::add, {}, {}, two, one, none, none, 0, false, true},
    op_rule{op_kind::copy, {}, {}, one, one, none, none, 0, false, false},
    op_rule{op_kind::accumulate, {}, {}, two, one, none, none, 0, false, true},
    op_rule{op_kind::dropout, fwd, {}, one, one, none, none, 1, false, true},
    op_rule{op_kind::dropout_backward, bwd, op_kind::dropout, one, up_to_one, none, none, 0, true, true},
    op_rule{op_kind::lrn, fwd, {}, one, one, none, none, 0, false, true},
    op_rule{op_kind::lrn_backward, bwd, op_kind::lrn, one, up_to_one, none, none, 0, true, true},
    op_rule{op_kind::softmax_cross_entropy, fwd, {}, two, one, none, none, 0, false, true},
    op_rule{op_kind::softmax_cross_entropy_backward, bwd, op_kind::softmax_cross_entropy, one, one, none,
            none, 0, true, false},
    op_rule{op_kind::sgd_update, {}, {}, none, none, any, any, 0, false, false},
    op_rule{op_kind::generic, {}, {}, any, any, any, any, static_cast<std::size_t>(-1), false, true},
};

/// Whether backward ops of this kind can make something of `what`. Values are values to all of them, but the
/// other needs are met by bytes that few kernels read.
constexpr bool can_take(op_kind kind, need what) {
  switch (what) {
    case need::window:
      return kind == op_kind::max_pool_backward || kind == op_kind::relu_max_pool_backward ||
             kind == op_kind::generic;
    case need::sign_window:
      return kind == op_kind::relu_max_pool_backward || kind == op_kind::generic;
    case need::mask:
      return kind == op_kind::dropout_backward || kind == op_kind::generic;
    case need::sign:
    case need::range:
    case need::value:
    case need::fine_value:
    case need::exact_value:
      break;
  }
  return true;
}

}  // namespace stash::planner::graph_rules
