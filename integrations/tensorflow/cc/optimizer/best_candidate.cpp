// SPDX-License-Identifier: Apache-2.0
#include "optimizer/best_candidate.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace stash_tf {

namespace {

// To find out what need not be copied: each is a plan of the step.
constexpr int most_plans_of_copies = 2;

bool keeps_budget(const candidate& planned, const settings& request) {
  return request.budget_bytes > 0 && planned.peak() <= request.budget_bytes;
}

// Copies run for the peak alone: what may stay below it, or little above but not above `most`, is not copied.
std::unique_ptr<candidate> with_less_work(const candidate& plain, std::unique_ptr<candidate> smallest,
                                          std::int64_t most, copyable which, const candidate_terms& terms) {
  const std::int64_t peak = smallest->peak();
  const std::int64_t limit = std::min(std::max(peak, most), peak + peak / parts_that_count);
  std::int64_t bound = limit;
  for (int k = 0; k < most_plans_of_copies; ++k) {
    headroom spare = smallest->headroom_below(bound);
    std::unique_ptr<candidate> lighter = plain.with_copies(&spare, which, terms);
    if (lighter == nullptr || lighter->copies.ops >= smallest->copies.ops) break;
    if (lighter->peak() <= limit && lighter->result.formats <= smallest->result.formats) return lighter;
    bound -= std::max<std::int64_t>(lighter->peak() - limit, 0);
  }
  return smallest;
}

// With a budget, policy auto computes again before it rounds more.
bool is_better(const candidate& other, const candidate& best, const settings& request) {
  if (!keeps_budget(best, request)) return other.peak() < best.peak();
  return keeps_budget(other, request) && other.result.formats < best.result.formats;
}

// `best` of null: the plain one.
std::unique_ptr<candidate> again_if_better(const candidate& plain, std::unique_ptr<candidate> best,
                                           copyable which, const candidate_terms& terms) {
  const settings& request = terms.request;
  const candidate& before = best != nullptr ? *best : plain;
  if (keeps_budget(before, request) && before.result.formats == 0) return best;
  std::unique_ptr<candidate> again = plain.with_copies(nullptr, which, terms);
  if (again == nullptr || !is_better(*again, before, request)) return best;
  const std::int64_t most = request.budget_bytes > 0 ? request.budget_bytes : before.peak();
  return with_less_work(plain, std::move(again), most, which, terms);
}

}  // namespace

std::unique_ptr<candidate> best_candidate(const candidate& first, bool unknown_lists,
                                          const candidate_terms& terms) {
  const settings& request = terms.request;
  std::unique_ptr<candidate> best = first.same();
  best->plan(terms);
  if (!best->analysis.lists.empty() && !keeps_budget(*best, request)) {
    std::unique_ptr<candidate> listed = best->with_encoded_lists(terms);
    // Where nothing says how often a loop runs, its lists are not in the peak.
    if (listed != nullptr &&
        (listed->peak() < best->peak() || (unknown_lists && listed->peak() <= best->peak())))
      best = std::move(listed);
  }
  if (request.recompute == "none") return best;
  std::unique_ptr<candidate> plain = std::move(best);
  best = again_if_better(*plain, nullptr, copyable::cheap, terms);
  if (request.recompute == "all") best = again_if_better(*plain, std::move(best), copyable::all, terms);
  return best != nullptr ? std::move(best) : std::move(plain);
}

}  // namespace stash_tf
