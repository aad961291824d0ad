// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A schedule with offsets: the map region and the host arena laid out.

#include <optional>

#include "planner/memory/schedule.hpp"

namespace stash::planner {

struct placement {
  schedule steps;
  std::int64_t height = 0;      ///< of the map region
  std::int64_t max_live = 0;    ///< of its buffers
  std::int64_t host_bytes = 0;  ///< of the host arena, once place_on_host() was called
  bool laid_out = true;         ///< false: no offsets, and the heights are the largest sums of live bytes
  bool mirrored = false;        ///< the layout was turned upside down
  std::int32_t way = 0;         ///< layout_solution::way
};

/// A decision for every storage, with its schedule laid out: what becomes a plan.
struct placed_choice {
  selection chosen;
  placement where;
};

/// Of place(), in the steps of layout_limits.
inline constexpr std::int64_t default_layout_work = 50'000'000;

/// Offsets for all buffers of `s` on the device; the overflow arena lies at the bottom. Deterministic. With
/// `capacity` a height within it is enough; `work` bounds the search after the simple orders
/// (layout_limits). With `like`, the placement of a similar schedule, that is mended instead (layout_hint).
placement place(schedule s, std::optional<std::int64_t> capacity = {},
                std::int64_t work = default_layout_work, const placement* like = nullptr);

/// Offsets for the buffers on the host, as low as make_layout() gets them: once, for a plan that is made.
void place_on_host(placement& p);
/// What host_bytes would be then.
std::int64_t bytes_on_host(const placement& p);

/// place() without offsets: only what is live at once is counted.
placement without_layout(schedule s);

/// Bytes above the capacity at each step: the sum of what stands out of it, or, without offsets, what is live
/// beyond it.
id_vector<step_number, std::int64_t> bytes_above(const placement& p, std::int64_t capacity);

/// A storage of fixed size that is there from the first op that writes it to the last that reads it.
struct fixed_life {
  storage_id storage = no_id;
  op_id first = no_id, last = no_id;
};
/// Weight gradients whose update is part of the backward stage.
std::vector<fixed_life> passing_gradients(const graph& g);

/// Bytes of everything whose size does not depend on the batch, each rounded up to buffer_alignment. Weight
/// gradients that an sgd_update of the backward stage reads are there until it has run, and count as often as
/// they are there together.
std::int64_t parameter_bytes(const graph& g);
/// The largest workspace of one op, rounded up.
std::int64_t workspace_bytes(const graph& g);

/// Whether the arena for overflow is more than a small part of the height.
bool overflow_arena_matters(const placement& p);

/// Throws error(infeasible_budget) that names the op and the tensors at the peak of `smallest`, the plan that
/// needs `needed` bytes in all, of which `fixed` are not maps.
[[noreturn]] void refuse_budget(const graph& g, const placement& smallest, std::int64_t fixed,
                                std::int64_t budget);

/// Throws error(invalid_argument) for more than the planner counts with.
void check_total_bytes(const graph& g);

/// The plan: choices with their reasons, steps, buffers and sizes. Throws error(invalid_argument) for sizes
/// that the text of a plan cannot hold.
plan assemble(const graph& g, const plan_options& options, const scheduler& facts, placed_choice placed);

}  // namespace stash::planner
