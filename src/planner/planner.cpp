#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/bounds.hpp"
#include "planner/search.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

struct placed {
  picks choice;
  schedule steps;
  std::int64_t height = 0;
  std::int64_t max_live = 0;
};

// A layout upside down is a layout too. Slots of sparse maps are seldom full to the brim, so the one with a
// dense buffer on top is taken: then the planned height is the height that a step really touches.
void put_dense_on_top(std::vector<buffer>& buffers, std::int64_t height) {
  std::int64_t top = 0, mirrored_top = 0;
  for (const buffer& b : buffers) {
    if (b.form != buffer_form::dense) continue;
    top = std::max(top, b.offset + b.bytes);
    mirrored_top = std::max(mirrored_top, height - b.offset);
  }
  if (mirrored_top <= top) return;
  for (buffer& b : buffers)
    b.offset = height - b.offset - b.bytes;
}

placed place(const search& s, picks choice) {
  placed result;
  result.steps = s.build(choice);
  result.choice = std::move(choice);
  std::vector<buffer>& buffers = result.steps.buffers;
  result.max_live = max_live(blocks_of(buffers), buffer_alignment);
  // The overflow arena lives all the time: it lies at the bottom, whatever the others do.
  std::vector<buffer> others;
  for (const buffer& b : buffers) {
    if (b.form != buffer_form::overflow) others.push_back(b);
  }
  const layout_result layout = make_layout(blocks_of(others), buffer_alignment);
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].offset = layout.offsets[i];
  put_dense_on_top(others, layout.height);
  const std::int64_t bottom = result.steps.overflow_bytes;
  auto next = others.begin();
  for (buffer& b : buffers)
    b.offset = b.form == buffer_form::overflow ? 0 : bottom + (next++)->offset;
  result.height = layout.height + bottom;
  return result;
}

// A plan of at most this height with as little codec work as the greedy choice manages.
std::optional<placed> fit(const search& s, std::int64_t room) {
  std::int64_t limit = room;
  placed result = place(s, s.meet(limit));
  // Layout needs more than max-live now and then: ask for less until it fits.
  for (int attempt = 0; attempt < 8 && result.height > room && result.max_live <= limit; ++attempt) {
    limit -= result.height - room;
    result = place(s, s.meet(limit));
  }
  if (result.height > room) return std::nullopt;
  return result;
}

// The lowest plan that either search finds: whatever is below it is refused as a budget.
placed smallest(const search& s) {
  placed best = place(s, s.smallest_peak());
  while (std::optional<placed> next = fit(s, best.height - buffer_alignment))
    best = std::move(*next);
  return best;
}

std::int64_t parameter_bytes(const graph& g) {
  std::int64_t sum = 0;
  for (const storage& s : g.storages) {
    if (!s.batch_proportional()) sum += aligned(s.bytes(g.batch));
  }
  return sum;
}

std::int64_t workspace_bytes(const graph& g) {
  std::int64_t most = 0;
  for (const op& o : g.ops)
    most = std::max(most, o.workspace_bytes);
  return aligned(most);
}

// The op of a step; encode, decode and recompute belong to the op that follows or precedes them.
op_id op_near(const schedule& s, std::size_t step) {
  for (std::size_t i = step; i < s.steps.size(); ++i) {
    if (s.steps[i].kind == step_kind::run) return s.steps[i].op;
  }
  return -1;
}

[[noreturn]] void refuse(const graph& g, const placed& smallest, std::int64_t fixed, std::int64_t budget) {
  const std::vector<std::int64_t> live = live_bytes(smallest.steps);
  const auto at = static_cast<std::size_t>(std::max_element(live.begin(), live.end()) - live.begin());
  std::vector<const buffer*> alive;
  for (const buffer& b : smallest.steps.buffers) {
    if (index(b.first_step) <= at && at <= index(b.last_step) && b.storage >= 0) alive.push_back(&b);
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [](const buffer* a, const buffer* b) { return a->bytes > b->bytes; });
  std::string tensors;
  for (std::size_t i = 0; i < alive.size() && i < 6; ++i) {
    tensors += fmt::format("{}{} ({}, {} bytes)", i == 0 ? "" : ", ", g.at(alive[i]->storage).name,
                           to_string(alive[i]->form), alive[i]->bytes);
  }
  if (alive.size() > 6) tensors += fmt::format(" and {} smaller ones", alive.size() - 6);
  const op_id o = op_near(smallest.steps, at);
  throw error(
      errc::infeasible_budget,
      fmt::format(
          "make_plan: budget: expected at least {} bytes, got {}: while {} runs, these must be in memory "
          "at once: {}; beside them {} bytes of weights, gradients, momentum and workspace",
          smallest.height + fixed, budget, o >= 0 ? g.op_at(o).name : "the last op", tensors, fixed));
}

std::int64_t boundary_bytes(const graph& g, const schedule& s) {
  const std::vector<std::int64_t> live = live_bytes(s);
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    if (s.steps[i].kind == step_kind::run && g.op_at(s.steps[i].op).stage == op_stage::backward)
      return live[i];
  }
  return 0;
}

std::string reason_for(const stash_choice& c, storage_role role, const plan_options& options,
                       const std::vector<reader>& readers) {
  if (readers.empty()) return "no chosen backward op reads it";
  const auto wants = [&](need what) {
    return std::any_of(readers.begin(), readers.end(), [what](const reader& r) { return r.what == what; });
  };
  const bool value = wants(need::value) || wants(need::exact_value);
  switch (c.kind) {
    case stash_kind::none:
      return "no chosen backward op reads it";
    case stash_kind::raw:
      if (role == storage_role::image) return "images are kept as they came, one byte per value";
      if (options.chosen_policy == policy::none) return "the policy encodes nothing";
      if (c.density >= 1.0 && value)
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
      return "the policy allows fewer bits, and too few values are zero for a bitmap";
    case encoding_kind::raw:
    case encoding_kind::shape_only:
      break;
  }
  return "";
}

}  // namespace

plan make_plan(const graph& g, const plan_options& options) {
  if (options.budget_bytes < 0 || options.threads < 1 || !(options.slot_margin >= 0.0) ||
      !(options.overflow_share >= 0.0)) {
    throw error(
        errc::invalid_argument,
        "make_plan: options: expected budget_bytes, slot_margin and overflow_share of at least 0 and threads "
        "of at least 1");
  }
  const scheduler facts(g);
  const option_set choices = make_options(g, options, options.slot_margin);
  const search finder(facts, choices, options);
  const std::int64_t parameters = parameter_bytes(g), workspace = workspace_bytes(g);

  placed best;
  if (!options.force.empty()) {
    best = place(finder, finder.least_work());
  } else if (options.budget_bytes == 0) {
    best = smallest(finder);
  } else {
    std::optional<placed> fitting = fit(finder, options.budget_bytes - parameters - workspace);
    best = fitting ? std::move(*fitting) : smallest(finder);
  }
  if (options.budget_bytes > 0 && best.height + parameters + workspace > options.budget_bytes) {
    refuse(g, best, parameters + workspace, options.budget_bytes);
  }

  plan p;
  p.network = g;
  p.chosen_policy = options.chosen_policy;
  p.budget_bytes = options.budget_bytes;
  p.threads = options.threads;
  p.machine = options.machine;
  p.slot_margin = options.slot_margin;
  const selection chosen = finder.select(best.choice);
  p.choices = chosen.choices;
  p.alternative = chosen.alternative;
  for (std::size_t s = 0; s < p.choices.size(); ++s) {
    p.choices[s].reason = reason_for(p.choices[s], g.storages[s].role, options,
                                     readers_of(g, static_cast<storage_id>(s), p.alternative));
  }
  p.buffers = best.steps.buffers;
  p.steps = best.steps.steps;
  p.overflow_bytes = best.steps.overflow_bytes;

  plan_sizes& sizes = p.sizes;
  sizes.planned_peak = best.height;
  sizes.max_live = best.max_live;
  sizes.parameter_bytes = parameters;
  sizes.workspace_bytes = workspace;
  sizes.planned_peak_total = best.height + parameters + workspace;
  sizes.boundary = boundary_bytes(g, best.steps);
  const wall w = working_set_wall(g);
  sizes.wall = w.bytes;
  sizes.wall_op = w.op;
  plan_options unforced = options;
  unforced.force.clear();
  sizes.bound = peak_bound(facts, make_options(g, unforced, 0.0));
  if (options.chosen_policy == policy::none) {
    sizes.baseline_peak = best.height;
  } else {
    plan_options none = unforced;
    none.chosen_policy = policy::none;
    const option_set raw = make_options(g, none, 0.0);
    const search raw_finder(facts, raw, none);
    sizes.baseline_peak = place(raw_finder, raw_finder.least_work()).height;
  }
  sizes.baseline_peak_total = sizes.baseline_peak + parameters + workspace;
  return p;
}

}  // namespace stash::planner
