// SPDX-License-Identifier: Apache-2.0
#include "optimizer/verdict.hpp"

#include "absl/strings/str_cat.h"

namespace stash_tf {

namespace {

// Another trace of the step may differ by a scalar here and there.
std::int64_t with_reserve(std::int64_t peak) {
  return peak + peak / 200;
}

// Gradients that are added up as they come, and iterations that wait for it, are worth any gain.
bool is_lower(const candidate& best, std::int64_t plain) {
  const bool ordered_sums = best.sums > 0 || best.ordered.loops_held_back > 0;
  return ordered_sums ? best.peak() < plain : best.peak() + plain / parts_that_count <= plain;
}

void decide_over_budget(const candidate& best, bool unknown_lists, const settings& request, verdict* v) {
  v->smallest_budget_bytes = with_reserve(best.peak());
  const std::string word = absl::StrCat(
      "the budget of ", request.budget_bytes, " bytes is too small for this step; ", v->smallest_budget_bytes,
      " would do under policy ", request.policy, request.swap ? " with swap" : "");
  if (request.accepted) {
    v->over_accepted = word;
  } else if (!unknown_lists) {  // else the step may well fit: the report says that nobody knows
    v->becomes = fate::refused;
    v->reason = word;
  }
}

void decide_without_budget(const candidate& best, std::int64_t plain, const settings& request, verdict* v) {
  const bool nothing = best.result.graph.stashes == 0 && best.lists.changed() == 0 && !v->lower;
  v->higher = !nothing && best.peak() > plain;
  if (!nothing && !v->higher) return;
  // Moves are about bytes of a step, not of a sample.
  v->becomes = !best.sizes.batch_known() && request.swap ? fate::watched : fate::left;
  if (v->becomes == fate::left)
    v->reason = nothing ? "no other form of a tensor and no other order would lower its peak"
                        : "the peak of this step would not be lower";
}

}  // namespace

verdict decide(const candidate& best, const footprint& untouched, const settings& request) {
  verdict v;
  v.lower = is_lower(best, untouched.peak_bytes);
  if (request.budget_bytes == 0) {
    decide_without_budget(best, untouched.peak_bytes, request, &v);
  } else if (best.peak() > request.budget_bytes && best.sizes.batch_known()) {
    decide_over_budget(best, untouched.unknown_lists, request, &v);
  }
  return v;
}

}  // namespace stash_tf
