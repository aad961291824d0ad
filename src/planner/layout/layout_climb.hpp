// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Search after the portfolio for layouts of any size: aims at a height below the best one; whichever item
/// does not fit moves to an earlier position in the order, and everything from there on is placed again.

#include <cstdint>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_orders.hpp"
#include "planner/layout/layout_placer.hpp"

namespace stash::planner::placing {

/// The lowest layout seen of an instance.
struct incumbent {
  std::vector<std::int64_t> offsets;  ///< per item
  std::int64_t height = 0;
  std::int64_t goal = 0;    ///< what to aim at
  std::int64_t enough = 0;  ///< ends the search, too, without being aimed at

  bool done() const noexcept { return height <= goal || height <= enough; }
  void offer(const placer& candidate);
};

class climb {
 public:
  /// The references must outlive this; `seeds` are the orders to start from, `how` the gaps to take.
  climb(const instance& problem, const std::vector<order>& seeds, incumbent& best, work_budget& budget,
        fit how = fit::first);

  /// Goes on until `work` steps are spent, the budget is over or the goal is reached.
  void run(std::int64_t work);

 private:
  bool over();
  void start_walk();
  void step();
  std::int64_t aim() const;
  std::size_t move_forward(std::size_t position);

  const instance& problem_;
  const std::vector<order>& seeds_;
  incumbent& best_;
  work_budget& budget_;
  fit how_;
  placer placer_;
  random_numbers random_;
  order sequence_;
  std::int64_t until_ = 0;
  std::int64_t ceiling_ = 0;
  std::int64_t quarters_ = 0;
  std::size_t walk_ = 0;
  std::size_t moves_left_ = 0;
  std::size_t placed_ = 0;  ///< items of the sequence that are placed
};

}  // namespace stash::planner::placing
