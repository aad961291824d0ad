// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Policies that follow the rule of a published system instead of the search, each in a file of its own
/// (docs/policies.md). A rule chooses; simulator, schedule, layout and validator are those of all plans.

#include <string>

#include "planner/time/items.hpp"

namespace stash::planner {

/// What a rule works on.
struct rule_input {
  const graph& g;
  const option_set& options;
  std::int64_t limit = 0;         ///< bytes that maps may take
  std::int64_t static_bytes = 0;  ///< weights, gradients, momentum and workspace, for rules about all memory
  bool swap_all = false;          ///< plan_options::swap_all
};

struct ruled {
  option_choice choice;
  /// Copies come back as late as link and deadlines allow; false: as early as transfer::earliest and memory
  /// allow.
  bool late = false;
  std::string parameters;  ///< what the rule found, for people; may be empty
};

/// Whether plans of `p` follow a rule.
bool has_rule(policy p) noexcept;

/// The options with the one format in which Gist keeps narrow values: the first of theirs, fp16 if there is
/// none.
plan_options gist_values(plan_options options);

/// Components as make_options() finds them, each with the one configuration of Gist's rule. Narrow values
/// are in the first format of `options.values`, fp16 if it is empty. Throws error(invalid_argument) if
/// `options` have rules for tensors or force an encoding: Gist decides by layer pairs alone.
option_set gist_options(const graph& g, const plan_options& options, double margin);

/// The choice of a policy that has a rule among the options of `ticks` (make_problem() of in.options). May
/// set transfer::earliest in them. Whether it fits is the simulator's to say.
ruled apply_rule(policy p, const rule_input& in, problem& ticks);

// The rules, for apply_rule().
ruled swap_only_rule(const rule_input& in, problem& ticks);
ruled lms_rule(const rule_input& in, problem& ticks);
ruled layrub_rule(const rule_input& in, problem& ticks);

/// The storages of an item that some option moves, as bits, and the option that moves at least those of
/// `required` and as few others as possible.
std::uint32_t movable(const item& i);
std::int32_t option_that_moves(const item& i, std::uint32_t required);

/// Per op the topological level: one more than that of the last writer of anything it reads, 1 where there is
/// none. Stash reads are those of the alternatives in `options`, the first configuration of each component.
id_vector<op_id, std::int32_t> levels_of(const graph& g, const option_set& options);

}  // namespace stash::planner
