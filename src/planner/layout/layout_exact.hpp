// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Exact search for a layout within a capacity: depth first over layouts in which every block lies on the
/// floor or on a block below it. Each decision is about one block that nothing can come below any more: it
/// lies at its lowest offset, or higher, on a block that is still to come.

#include <cstdint>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"

namespace stash::planner::placing {

enum class exact_outcome : std::uint8_t {
  found,
  none,   ///< proven: there is no layout (only where the instance has no windows)
  limit,  ///< neither within the limits
};

/// Which section the next decision is about. None is best for all problems.
enum class exact_rule : std::uint8_t {
  lowest,      ///< where free bytes begin lowest
  fewest,      ///< where fewest blocks can come next
  few_and_low  ///< the product of both
};

class exact_search {
 public:
  /// The instance must outlive this. Work and memory grow with the number of conflicting pairs.
  explicit exact_search(const instance& problem);

  /// Of the blocks that could come next in a section, takes the one that is first in this order (item
  /// numbers). Ends with `limit` after `work` steps or when the budget is over. With `found`, `offsets` (one
  /// per item) holds the layout.
  exact_outcome run(std::int64_t capacity, const std::vector<std::uint32_t>& order, exact_rule rule,
                    std::int64_t work, work_budget& budget, std::vector<std::int64_t>& offsets);

  std::int64_t nodes() const noexcept { return nodes_; }

 private:
  const instance& problem_;
  std::vector<std::vector<std::uint32_t>> conflicts_;  ///< per item
  std::int64_t nodes_ = 0;
};

}  // namespace stash::planner::placing
