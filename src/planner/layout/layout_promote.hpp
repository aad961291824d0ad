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
  /// The references must outlive this. There is a walk from each seed with fit::best and one with fit::first.
  promotion(const instance& problem, const std::vector<order>& seeds, incumbent& best, work_budget& budget);

  /// Goes on with passes until `work` steps are spent, the budget is over or the goal is reached.
  void run(std::int64_t work);

 private:
  struct walk {
    order sequence;  ///< of its lowest pass, at first of its seed
    fit how;
    std::int64_t lowest;  ///< height of that pass
  };

  void start_stretch();
  bool pass();
  void promote();

  const instance& problem_;
  incumbent& best_;
  work_budget& budget_;
  placer placer_;
  random_numbers random_;
  std::vector<walk> walks_;
  std::size_t stretches_ = 0;     ///< begun so far
  std::size_t walk_ = 0;          ///< whose stretch it is
  order sequence_;                ///< of the next pass
  std::vector<double> position_;  ///< per item, where it is to go in the order
  int vain_passes_ = 0;
};

}  // namespace stash::planner::placing
