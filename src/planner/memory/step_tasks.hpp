// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The steps of a plan as tasks that may change places.

#include <cstdint>
#include <vector>

#include "planner/plan.hpp"

namespace stash::planner {

/// A step of the plan, by its place there.
using task_list = std::vector<step_number>;

struct step_tasks {
  id_vector<step_number, std::vector<step_number>> before, after;  ///< direct dependencies
  id_vector<step_number, std::vector<buffer_id>> touches;          ///< buffers that it reads or writes
  id_vector<step_number, op_stage> stage;                          ///< all of one stage run before the next
  id_vector<buffer_id, std::int64_t> bytes;
};

/// Steps depend on each other as their ops do (graph/op_order.hpp); encoders, decoders and what is computed
/// again depend on whoever touches the same buffer.
step_tasks tasks_of(const plan& p);

/// Bytes live at each place of `order`: a buffer is there from the first task that touches it to the last.
struct live_profile {
  std::vector<std::int64_t> live;                  ///< by place
  id_vector<buffer_id, std::int32_t> first, last;  ///< places; -1: no task touches it
};
void measure(const step_tasks& tasks, const task_list& order, live_profile& into);

}  // namespace stash::planner
