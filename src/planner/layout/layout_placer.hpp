// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Places items one after the other into the gaps between those placed before.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_occupancy.hpp"

namespace stash::planner::placing {

enum class fit : std::uint8_t {
  first,      ///< lowest gap
  best,       ///< tightest gap, the lowest of equals
  two_sided,  ///< long-lived blocks in the lowest gap, short-lived ones in the highest below the bound
};

class placer {
 public:
  /// The instance must outlive this. Fixed items are placed from the start.
  placer(const instance& problem, work_budget& budget);

  /// Leaves only the fixed items placed.
  void clear();
  bool placed(std::uint32_t index) const { return offsets_[index] >= 0; }

  /// The offset of the lowest (fit::first) or tightest gap; nothing if the item would end above `ceiling`.
  std::optional<std::int64_t> gap_for(std::uint32_t index, fit how, std::int64_t ceiling);
  /// The offset in the highest gap that ends at or below `ceiling`, if there is one.
  std::optional<std::int64_t> highest_gap_for(std::uint32_t index, std::int64_t ceiling);

  void place(std::uint32_t index, std::int64_t offset);
  /// Takes back items that are placed and not fixed.
  void remove(const std::uint32_t* first, const std::uint32_t* last);

  std::int64_t height() const;
  const std::vector<std::int64_t>& offsets() const noexcept { return offsets_; }

 private:
  struct slot {
    std::int64_t offset;
    std::int64_t top;
    std::int32_t first;
    std::int32_t last;
    std::uint32_t index;
  };

  template <class Visit>
  void each_forbidden(std::uint32_t index, Visit visit);
  void forbid(const item& it, std::uint32_t other);

  const instance& problem_;
  work_budget& budget_;
  std::vector<std::int64_t> offsets_;   ///< per item, -1: not placed
  bool sorted_;                         ///< few items: those placed are kept in the order of their offsets
  std::vector<slot> slots_;             ///< if sorted_
  std::optional<occupancy> occupancy_;  ///< many boxes
  /// Many of other kinds: per item, earlier ones whose hull reaches into it; too many pairs leave this empty.
  std::vector<std::size_t> earlier_begin_;
  std::vector<std::uint32_t> earlier_;
  std::vector<std::uint32_t> later_end_;
  std::vector<std::pair<std::int64_t, std::int64_t>> forbidden_;
};

}  // namespace stash::planner::placing
