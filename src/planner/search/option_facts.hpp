// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What one option of a problem holds, adds and moves, as sums.

#include <vector>

#include "planner/time/problem.hpp"

namespace stash::planner {

/// ms per item and option: what it costs, under the prices of a relaxation or by itself.
using option_costs = std::vector<std::vector<double>>;

/// Bytes that the option holds at a step.
std::int64_t held_at(const item_option& o, joined_step step);
/// The same, with what is on its way to the host, there, or on its way back.
std::int64_t held_or_moved_at(const item_option& o, joined_step step);
/// Bytes times steps that it holds: what it costs where memory is short everywhere.
double held_area(const item_option& o);
/// ms of the compute stream that it adds.
double work_of(const item_option& o);
/// ms of the link that it takes.
double link_ms(const item_option& o, const link_model& link);

}  // namespace stash::planner
