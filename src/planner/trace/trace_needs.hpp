// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What backward operators of a trace need of the forward values that they get, and how much operators
/// compute. Internal to the reading of traces.

#include <optional>
#include <string_view>

#include "planner/trace/trace_ops.hpp"

namespace stash::planner::traces {

/// The need of a backward operator for its argument; none if it looks at the shape only.
/// `type` is that of the argument's storage.
std::optional<need> need_of(const trace_node& n, std::size_t argument, trace_type type);

/// Floating-point operations of convolutions, matrix products and attention from their shapes; 0 for others.
double flops_of(const trace_node& n);

/// Share of non-zeros in what an operator writes; none if nothing is known.
std::optional<double> density_of(const trace_node& n, double relu_density);

/// Taps of the window of a maximum pooling; 0 for every other operator.
std::int32_t window_taps_of(const trace_node& n);

/// Whether the operator is cheap to run again: element-wise, or a norm. Its result depends on its arguments
/// alone.
bool runs_again(const trace_node& n);
/// Whether it adds tensors: cheap as well, but residual connections are such sums.
bool sums_up(const trace_node& n);

}  // namespace stash::planner::traces
