// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the simulator says in items, options and steps, told in storages and ticks (problem.hpp): for
/// schedules, timelines and layouts.

#include <cstdint>
#include <vector>

#include "planner/memory/options.hpp"
#include "planner/memory/placement.hpp"
#include "planner/memory/schedule.hpp"
#include "planner/time/problem.hpp"
#include "planner/time/simulator.hpp"
#include "planner/time/timeline.hpp"

namespace stash::planner {

/// Refers to all that it is made of; `steps` may change between calls, and is compress(ticks) whenever one is
/// made. The ops of `g` do not change.
class timeline_of_choice {
 public:
  timeline_of_choice(const graph& g, const option_set& options, const problem& ticks,
                     const step_problem& steps);

  /// Choices of all storages, and when the copies of swapped ones begin and end.
  selection select(const option_choice& choice, const timeline_record& record) const;

  /// The simulation, for the plan's timeline.
  tick_times times_of(const option_choice& choice, const timeline_record& record) const;

  /// The step of the simulation that each step of a schedule lies in.
  id_vector<step_number, joined_step> steps_of(const schedule& s) const;

  /// Of each step of the simulation, the most bytes that lie above the capacity while it runs.
  id_vector<joined_step, std::int64_t> most_above(const placement& placed, std::int64_t capacity) const;

 private:
  std::int32_t carrier(std::size_t step) const;
  id_vector<tick_number, double> tick_begins(const timeline_record& record) const;
  id_vector<tick_number, double> tick_ends(const timeline_record& record,
                                           const id_vector<tick_number, double>& begin) const;
  std::vector<copy_event> copies_of(const option_choice& choice, const timeline_record& record) const;

  const graph& g_;
  const option_set& options_;
  const problem& ticks_;
  const step_problem& steps_;
  std::int32_t first_update_ = 0;  ///< tick of the first op of the update stage, which is the last stage
};

}  // namespace stash::planner
