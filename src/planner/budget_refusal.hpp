// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Plans that are small rather than fast: what there is where the search finds nothing, and what a refused
/// budget would have to be.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/budget_problem.hpp"
#include "planner/budget_search.hpp"

namespace stash::planner {

class small_plans {
 public:
  /// Refers to `b`.
  explicit small_plans(budget_problem& b) : b_(b) {}

  /// What the search begins with under a limit on live bytes, or what is smallest without moving anything.
  timed_choice within(std::int64_t limit);

  /// A placement within a capacity for which there is a plan, if there is none within this one, for which
  /// the nearest choice lacks `missing` bytes.
  placement enough(std::int64_t capacity, std::int64_t missing, const std::vector<timed_choice>& known);

 private:
  const timed_choice& unmoved();
  option_choice unmoved_choice(const picks& configurations) const;
  std::optional<timed_choice> first(std::int64_t limit, std::int64_t& missing);
  placement quick_above(std::int64_t capacity, std::int64_t missing);

  budget_problem& b_;
  std::optional<timed_choice> unmoved_;  ///< the smallest plan without transfers
};

}  // namespace stash::planner
