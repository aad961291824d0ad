// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "planner/baselines/policies.hpp"
#include "planner/budget_planner.hpp"
#include "planner/graph/byte_sizes.hpp"
#include "planner/memory/placement.hpp"
#include "planner/memory/search.hpp"
#include "planner/order_planner.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

placed_choice place_picks(const search& s, const picks& p) {
  placement where = s.lays_out() ? place(s.build(p)) : without_layout(s.build(p));
  return {s.select(p), std::move(where)};
}

// A plan of at most this height with as little codec work as the greedy choice manages.
std::optional<placed_choice> fit(const search& s, std::int64_t capacity) {
  std::int64_t limit = capacity;
  placed_choice result = place_picks(s, s.meet(limit));
  // Layout needs more than max-live now and then: ask for less until it fits.
  for (int attempt = 0; attempt < 8 && result.where.height > capacity && result.where.max_live <= limit;
       ++attempt) {
    limit -= result.where.height - capacity;
    result = place_picks(s, s.meet(limit));
  }
  if (result.where.height > capacity) return std::nullopt;
  return result;
}

// The lowest plan that either search finds: whatever is below it is refused as a budget.
placed_choice smallest(const search& s) {
  placed_choice best = place_picks(s, s.smallest_peak());
  if (overflow_arena_matters(best.where)) {
    placed_choice other = place_picks(s, s.smallest_peak(false));
    if (other.where.height < best.where.height) best = std::move(other);
  }
  while (std::optional<placed_choice> next = fit(s, best.where.height - buffer_alignment))
    best = std::move(*next);
  return best;
}

// Beyond these a plan file could not say them exactly, or sums of bytes would overflow.
void check_options(const plan_options& o) {
  constexpr int most_threads = 1 << 16;
  constexpr double most_share = 1000.0;
  const auto check = [](bool fits, std::string_view field, std::string_view expected, auto got) {
    if (fits) return;
    throw error(errc::invalid_argument,
                fmt::format("make_plan: options.{}: expected {}, got {}", field, expected, got));
  };
  check(o.budget_bytes >= 0 && o.budget_bytes <= largest_bytes, "budget_bytes", "0 (no limit) to 2^53 bytes",
        o.budget_bytes);
  check(o.threads >= 1 && o.threads <= most_threads, "threads", "1 to 65536", o.threads);
  check(o.evaluations >= 0, "evaluations", "at least 0", o.evaluations);
  check(o.slot_margin >= 0.0 && o.slot_margin <= most_share, "slot_margin", "0 to 1000", o.slot_margin);
  check(o.overflow_share >= 0.0 && o.overflow_share <= most_share, "overflow_share", "0 to 1000",
        o.overflow_share);
}

// A policy that only moves maps is never planned as if it were another one.
void check_policy(const plan_options& o) {
  if (!has_rule(o.chosen_policy) || o.chosen_policy == policy::gist) return;
  const auto refuse = [&](std::string_view field, std::string_view expected, std::string_view got) {
    throw error(
        errc::invalid_argument,
        fmt::format("make_plan: options.{}: expected {} with policy {}, which only moves maps, got {}", field,
                    expected, to_string(o.chosen_policy), got));
  };
  if (!o.model) refuse("model", "a machine", "none");
  if (!(o.model->out_bytes_per_second > 0.0 && o.model->in_bytes_per_second > 0.0))
    refuse("model", "a machine with a link to its host", "one without");
  if (!o.swap) refuse("swap", "true", "false");
}

// Gist's rule leaves no choice, so that neither a machine nor a search has a say in it.
plan make_gist_plan(const graph& g, plan_options options) {
  options = gist_values(std::move(options));
  const scheduler facts(g);
  const option_set choices = gist_options(g, options, options.slot_margin);
  const search finder(facts, choices, options);
  placed_choice only = place_picks(finder, finder.least_work());
  const std::int64_t static_bytes = parameter_bytes(g) + workspace_bytes(g);
  if (options.budget_bytes > 0 && only.where.height + static_bytes > options.budget_bytes)
    refuse_budget(g, only.where, static_bytes, options.budget_bytes);
  return assemble(g, options, facts, std::move(only));
}

}  // namespace

plan make_plan(const graph& g, const plan_options& options) {
  check_options(options);
  check_policy(options);
  check_total_bytes(g);
  if (options.order == op_order::memory) return plan_in_any_order(g, options);
  if (options.model) return budget_planner(g, options).make(options.budget_bytes);
  if (options.swap) {
    throw error(errc::invalid_argument,
                "make_plan: options: expected a model of the machine to swap with, got none");
  }
  if (options.chosen_policy == policy::gist) return make_gist_plan(g, options);
  const scheduler facts(g);
  const option_set choices = make_options(g, options, options.slot_margin);
  const search finder(facts, choices, options);
  const std::int64_t static_bytes = parameter_bytes(g) + workspace_bytes(g);

  placed_choice best;
  if (!options.force.empty()) {
    best = place_picks(finder, finder.least_work());
  } else if (options.budget_bytes == 0) {
    best = smallest(finder);
  } else {
    std::optional<placed_choice> fitting = fit(finder, options.budget_bytes - static_bytes);
    best = fitting ? std::move(*fitting) : smallest(finder);
  }
  if (options.budget_bytes > 0 && best.where.height + static_bytes > options.budget_bytes) {
    refuse_budget(g, best.where, static_bytes, options.budget_bytes);
  }
  return assemble(g, options, facts, std::move(best));
}

}  // namespace stash::planner
