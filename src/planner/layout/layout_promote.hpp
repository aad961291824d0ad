// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Search after the portfolio by whole passes: all items are placed, and those that end too high come earlier
/// in the next pass (after the squeaky wheel optimization of Joslin and Clements). For thousands of items,
/// where a pass takes milliseconds and ends in changes all over the order.

#include <cstdint>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_climb.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_orders.hpp"
#include "planner/layout/layout_placer.hpp"

namespace stash::planner::placing {

class promotion {
 public:
  /// The references must outlive this. Every other walk starts from the first seed and takes gaps as `how`
  /// says (fit::two_sided is the same as fit::first); those between start from the others, with fit::best.
  promotion(const instance& problem, const std::vector<order>& seeds, incumbent& best, work_budget& budget,
            fit how);

  /// Goes on with passes until `work` steps are spent, the budget is over or the goal is reached.
  void run(std::int64_t work);

 private:
  void start_walk();
  bool pass();
  void promote();

  const instance& problem_;
  const std::vector<order>& seeds_;
  incumbent& best_;
  work_budget& budget_;
  fit how_, how_first_;
  placer placer_;
  random_numbers random_;
  order sequence_, lowest_sequence_;   ///< of the next pass; of the lowest one of the walk
  std::vector<double> position_;       ///< per item, where it is to go in the order
  std::int64_t lowest_ = 0;            ///< height of the lowest pass of the walk
  std::size_t walk_ = 0;
  int vain_passes_ = 0;
};

}  // namespace stash::planner::placing
