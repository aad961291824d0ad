// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The planner's answer for a step.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/plan/planner_graph.hpp"

namespace stash_tf {

/// The way to the host and back of what is kept, by ops of the planner's graph.
struct host_stay {
  bool moves = false;
  int out_by = -1;  ///< the op that waits for the end of the copy to the host; -1: none does
  int in_from = 0;  ///< the op at whose end the copy back begins
};

struct block_choice {
  std::string encoding;  ///< a name of stash_parse_encoding; empty: stays as it is
  bool keep_nonzero = false;
  std::int64_t stored_bytes = 0;
  std::string reason;
  host_stay on_host;
  std::set<int> bit_readers;  ///< nodes that read stashed_block::bits, kept for them alone
  std::int64_t bits_bytes = 0;
  host_stay bits_on_host;
};

enum class pooling_choice { from_maps, from_index, joint };

struct choices {
  std::vector<block_choice> blocks;      ///< as step::blocks
  std::vector<pooling_choice> poolings;  ///< as step::poolings
  std::vector<std::int64_t> pooling_bytes;
  std::vector<host_stay> taps_on_host;  ///< as step::poolings
  std::string infeasible;               ///< not empty: no plan keeps the budget, and all else is empty; why
};

/// Asks the planner about a step, `g` being its graph. `budget_bytes` 0: for the smallest peak. With
/// request.swap, which needs a budget, what is kept may move to the host, as the fastest plan for
/// request.machine has it. Throws std::runtime_error if it refuses the graph.
choices plan(const planner_graph& g, const step& analysis, const settings& request,
             std::int64_t budget_bytes);

/// The form of the elements of each of step::lists, by the policy alone: the smallest that serves their
/// readers. Forms whose size depends on the values are none for lists. Throws as plan() does.
std::vector<block_choice> plan_lists(const step& analysis, const settings& request);

}  // namespace stash_tf
