// SPDX-License-Identifier: Apache-2.0
// From a placement to a plan: reasons and sizes.

#include <fmt/format.h>

#include <algorithm>

#include "planner/choice_reason.hpp"
#include "planner/graph/byte_sizes.hpp"
#include "planner/graph/needs.hpp"
#include "planner/memory/bounds.hpp"
#include "planner/memory/placement.hpp"
#include "planner/memory/search.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

std::int64_t boundary_bytes(const graph& g, const schedule& s) {
  const id_vector<step_number, std::int64_t> live = live_bytes(s);
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    if (s.steps[i].kind == step_kind::run && g.op_at(s.steps[i].op).stage == op_stage::backward)
      return live[i];
  }
  return 0;
}

// As much as the text of a plan can hold (docs/plan.md).
void check_sizes(const plan& p) {
  const std::int64_t largest =
      std::max({p.sizes.planned_peak_total, p.sizes.baseline_peak_total, p.sizes.host_bytes});
  if (largest > largest_bytes) {
    throw error(
        errc::invalid_argument,
        fmt::format("make_plan: graph: expected a step within 2^53 bytes of memory, got {}", largest));
  }
  std::int64_t together = 0;
  for (const buffer& b : p.buffers) {
    if ((together += b.bytes) <= largest_total_bytes) continue;
    throw error(errc::invalid_argument,
                "make_plan: graph: expected buffers of at most 2^60 bytes in total, got more");
  }
}

}  // namespace

void check_total_bytes(const graph& g) {
  std::int64_t left = largest_total_bytes;
  for (const storage& s : g.storages) {
    const bool fits = s.fixed_bytes <= left &&
                      s.bytes_per_sample <= (left - s.fixed_bytes) / std::max<std::int64_t>(g.batch, 1);
    if (!fits) {
      throw error(errc::invalid_argument,
                  "make_plan: graph: expected storages of at most 2^60 bytes in total, got more");
    }
    left -= s.bytes(g.batch);
  }
}

namespace {

/// What a verifier needs to know of the options.
plan with_options(const graph& g, const plan_options& options) {
  plan p;
  p.network = g;
  p.chosen_policy = options.chosen_policy;
  p.values = options.values;
  p.budget_bytes = options.budget_bytes;
  p.threads = options.threads;
  p.machine = options.machine;
  p.slot_margin = options.slot_margin;
  p.tensors = options.tensors;
  if (options.model) {
    p.model = options.model;
    p.swap = options.swap;
    p.smallest_swap = options.smallest_swap;
    p.overflow_share = options.overflow_share;
  }
  return p;
}

/// The peak of the step that keeps everything as it is; offsets are made only where the plan has some.
std::int64_t baseline_peak(const graph& g, const scheduler& facts, plan_options unforced, bool lay_out) {
  unforced.chosen_policy = policy::none;
  unforced.tensors.clear();
  const option_set raw = make_options(g, unforced, 0.0);
  const search raw_finder(facts, raw, unforced);
  schedule unplanned = raw_finder.build(raw_finder.least_work());
  return (lay_out ? place(std::move(unplanned)) : without_layout(std::move(unplanned))).height;
}

}  // namespace

plan assemble(const graph& g, const plan_options& options, const scheduler& facts, placed_choice placed) {
  auto chosen = std::move(placed.chosen);
  auto where = std::move(placed.where);
  plan p = with_options(g, options);
  p.choices = std::move(chosen.choices);
  p.alternative = std::move(chosen.alternative);
  const auto readers = readers_of(g, p.alternative);
  for (const storage_id i : p.choices.ids()) {
    p.choices[i].reason = reason_for(p.choices, g, i, options, readers[i]);
  }
  place_on_host(where);
  plan_sizes& sizes = p.sizes;
  sizes.boundary = boundary_bytes(g, where.steps);
  p.buffers = std::move(where.steps.buffers);
  p.steps = std::move(where.steps.steps);
  p.overflow_bytes = where.steps.overflow_bytes;
  p.laid_out = where.laid_out;
  const std::int64_t parameters = parameter_bytes(g), workspace = workspace_bytes(g);
  sizes.planned_peak = where.height;
  sizes.max_live = where.max_live;
  sizes.host_bytes = where.host_bytes;
  sizes.parameter_bytes = parameters;
  sizes.workspace_bytes = workspace;
  sizes.planned_peak_total = where.height + parameters + workspace;
  const wall w = working_set_wall(g);
  sizes.wall = w.bytes;
  sizes.wall_op = w.op;
  plan_options unforced = options;
  unforced.force.clear();
  // A plan reports what can be checked.
  const option_set all = make_options(g, unforced, 0.0);
  p.cut_groups =
      static_cast<std::int32_t>(std::count_if(all.components.begin(), all.components.end(),
                                              [](const component& c) { return !c.least_bytes.empty(); }));
  sizes.bound = std::min(peak_bound(facts, all), proven_peak_bytes(p));
  sizes.baseline_peak = options.chosen_policy == policy::none
                            ? where.height
                            : baseline_peak(g, facts, std::move(unforced), where.laid_out);
  sizes.baseline_peak_total = sizes.baseline_peak + parameters + workspace;
  check_sizes(p);
  return p;
}

}  // namespace stash::planner
