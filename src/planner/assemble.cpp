// SPDX-License-Identifier: Apache-2.0
// From a placement to a plan: reasons and sizes.

#include <fmt/format.h>

#include <algorithm>

#include "planner/bounds.hpp"
#include "planner/byte_sizes.hpp"
#include "planner/needs.hpp"
#include "planner/placement.hpp"
#include "planner/search.hpp"
#include "planner/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

std::int64_t boundary_bytes(const graph& g, const schedule& s) {
  const std::vector<std::int64_t> live = live_bytes(s);
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    if (s.steps[i].kind == step_kind::run && g.op_at(s.steps[i].op).stage == op_stage::backward)
      return live[i];
  }
  return 0;
}

bool policy_has(const plan_options& options, value_format f) {
  const std::vector<value_format> formats = lossy_values(options.chosen_policy, options.values, false);
  return std::find(formats.begin(), formats.end(), f) != formats.end();
}

std::string reason_for(const stash_choice& c, storage_role role, const plan_options& options,
                       const std::vector<reader>& readers) {
  if (readers.empty()) return "no chosen backward op reads it";
  const auto wants = [&](need what) {
    return std::any_of(readers.begin(), readers.end(), [what](const reader& r) { return r.what == what; });
  };
  const bool value =
      std::any_of(readers.begin(), readers.end(), [](const reader& r) { return wants_values(r.what); });
  const bool may_round =
      !lossy_values(options.chosen_policy, options.values, false).empty() && !wants(need::exact_value);
  switch (c.kind) {
    case stash_kind::none:
      return "no chosen backward op reads it";
    case stash_kind::raw:
      if (role == storage_role::image) return "images are kept as they came, one byte per value";
      if (options.chosen_policy == policy::none) return "the policy encodes nothing";
      if (c.density >= 1.0 && value && !may_round)
        return "dense values are needed, and no allowed encoding keeps them in less";
      return options.budget_bytes > 0
                 ? "the budget is met without encoding it"
                 : "keeping it costs nothing at the peak, so no time is spent on encoding it";
    case stash_kind::recompute:
      return c.stored.kind == encoding_kind::sign_mask
                 ? "computed again from the kept input of the norm, gated by one bit per value"
                 : "computed again from the kept input of the norm, bit for bit";
    case stash_kind::encoded:
      break;
  }
  switch (c.stored.kind) {
    case encoding_kind::sign_mask:
      return wants(need::mask) ? "backward needs only which values were kept"
                               : "backward needs only the sign";
    case encoding_kind::window_index:
      return "backward needs only the winning cell of each window";
    case encoding_kind::relu_pool:
      return "backward needs only the winning cell and whether the gradient passes";
    case encoding_kind::range_mask:
      return "backward needs only which values lie between the bounds";
    case encoding_kind::csr:
    case encoding_kind::bitmap:
      return fmt::format("about {:.0f} % of the values are zero; the mask also answers the sign",
                         100.0 * (1.0 - c.density));
    case encoding_kind::cast:
      if (!policy_has(options, c.stored.values))
        return "a reader needs 16 bits at least, and too few values are zero for a bitmap";
      return "the policy allows fewer bits, and too few values are zero for a bitmap";
    case encoding_kind::raw:
    case encoding_kind::shape_only:
      break;
  }
  return "";
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

plan assemble(const graph& g, const plan_options& options, const scheduler& facts, const selection& s,
              placement where) {
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
  p.choices = s.choices;
  p.alternative = s.alternative;
  const auto readers = readers_of(g, p.alternative);
  for (std::size_t i = 0; i < p.choices.size(); ++i) {
    p.choices[i].reason = reason_for(p.choices[i], g.storages[i].role, options, readers[i]);
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
  sizes.bound = std::min(peak_bound(facts, make_options(g, unforced, 0.0)), proven_peak_bytes(p));
  if (options.chosen_policy == policy::none) {
    sizes.baseline_peak = where.height;
  } else {
    plan_options none = unforced;
    none.chosen_policy = policy::none;
    none.tensors.clear();
    const option_set raw = make_options(g, none, 0.0);
    const search raw_finder(facts, raw, none);
    schedule unplanned = raw_finder.build(raw_finder.least_work());
    sizes.baseline_peak =
        (where.laid_out ? place(std::move(unplanned)) : without_layout(std::move(unplanned))).height;
  }
  sizes.baseline_peak_total = sizes.baseline_peak + parameters + workspace;
  check_sizes(p);
  return p;
}

}  // namespace stash::planner
