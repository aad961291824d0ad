// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Order, plan, rewritten graph and simulation of the graphs that could run the step, and the best of them.

#include <memory>

#include "optimizer/candidate.hpp"

namespace stash_tf {

/// The step as it is, or, where that does not keep the budget, with loops that keep less, with cheap ops that
/// run again, or with both: what has the smaller peak, and no more copies than that needs. `first` is not
/// planned and has to outlive what is returned. `unknown_lists`: nothing says how often loops with lists run
/// (footprint::unknown_lists).
std::unique_ptr<candidate> best_candidate(const candidate& first, bool unknown_lists,
                                          const candidate_terms& terms);

}  // namespace stash_tf
