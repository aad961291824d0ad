// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Independent check of a plan. Shares no code with the planner: it knows the graph, the plan and the
/// meaning of encodings, and replays the steps symbolically.

#include <string>
#include <vector>

#include "planner/plan.hpp"

namespace stash::planner {

enum class plan_fault : std::uint8_t {
  bad_graph,      ///< the graph does not pass check_graph
  bad_reference,  ///< an id out of range, or lists of the wrong length
  bad_order,      ///< ops missing, twice, not in the graph's order, or in one that the planned graph forbids
  bad_alignment,  ///< offset or size not a multiple of 64, or negative
  bad_overlap,    ///< two buffers alive at one step share bytes
  bad_lifetime,   ///< a step touches a buffer outside [first_step, last_step]
  bad_size,       ///< a buffer is smaller than what it holds
  missing_value,  ///< a step reads what was not written, was overwritten, or belongs to another storage
  illegal_encoding,  ///< the stored form does not serve the need of a reader, or the policy forbids it
  lost_sign,         ///< a sign is read from a cast that may round to zero
  bad_totals,        ///< reported sizes do not match the buffers (peak, wall)
  over_budget,       ///< planned_peak_total > budget_bytes
  bad_bound,         ///< reported times contradict each other, or the certificate does not prove the bound
  bad_times,         ///< a timeline whose streams, copies or total do not agree
};
std::string_view to_string(plan_fault fault) noexcept;

struct plan_finding {
  plan_fault fault;
  std::string message;  ///< names the step, op, storage or buffers
};

/// Empty if the plan is valid. Never throws for bad plans (want of memory aside); stops after 100 findings.
/// `proven_ms`, if not null: what proven_bound_ms() returns.
std::vector<plan_finding> validate(const plan& p, double* proven_ms = nullptr);

/// The least time that any plan of this graph, order, rules and limit takes, as far as the plan's certificate
/// proves it (docs/planning.md), but no more than times.simulated_ms. Without a certificate the sum of
/// durations. 0 if the plan has no times, or nothing that could be checked.
double proven_bound_ms(const plan& p);

/// Bytes of the map region that no plan of this graph, order of ops, policy, values and tensor rules gets
/// below if nothing of it is ever on the host. Looks at none of the choices. 0 for a graph that makes no
/// sense.
std::int64_t proven_peak_bytes(const plan& p);

}  // namespace stash::planner
