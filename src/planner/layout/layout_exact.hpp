// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Exact search for a layout within a capacity: depth first over canonical layouts, in which every block lies
/// on the floor or on a block below it and blocks are placed in the order of their offsets.

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

class exact_search {
 public:
  /// The instance must outlive this. Work and memory grow with the number of conflicting pairs.
  explicit exact_search(const instance& problem);
  ~exact_search();
  exact_search(const exact_search&) = delete;
  exact_search& operator=(const exact_search&) = delete;

  /// Tries blocks that could be placed next in this order (item numbers) where their offsets are equal. Ends
  /// with `limit` after `work` steps or when the budget is over. With `found`, `offsets` (one per item)
  /// holds the layout.
  exact_outcome run(std::int64_t capacity, const std::vector<std::uint32_t>& order, std::int64_t work,
                    work_budget& budget, std::vector<std::int64_t>& offsets);

  std::int64_t nodes() const noexcept;

 private:
  class walk;
  const instance& problem_;
  std::vector<std::vector<std::uint32_t>> conflicts_;  ///< per item
  std::int64_t nodes_ = 0;
};

}  // namespace stash::planner::placing
