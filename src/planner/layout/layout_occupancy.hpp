// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What is occupied when, for thousands of boxes: finding a gap takes neither a look at all of them nor a
/// sort. Sections are joined to as many buckets as each of them has sections. A bucket knows the union of
/// what covers all of it, the union of all that reaches into it, and who covers a part of it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"

namespace stash::planner::placing {

class occupancy {
 public:
  /// Of an instance of boxes (instance::boxes). Both must outlive this.
  occupancy(const instance& problem, work_budget& budget);

  void clear();
  /// The box must not overlap another one.
  void add(std::uint32_t index, std::int64_t offset);
  /// Items added and not taken back.
  std::size_t count() const noexcept { return added_.size(); }
  /// Takes back the item added last and returns its number.
  std::uint32_t take_back();

  /// Calls visit(low, high) by ascending low for every gap that an item of this size and lifetime fits into,
  /// as long as low <= highest and it returns true. The last gap has no end: high is `open`.
  template <class Visit>
  void each_gap(const item& it, std::int64_t highest, Visit visit) {
    gather(it);
    std::int64_t floor = 0;
    while (raise(it, floor, highest)) {
      const std::int64_t end = next_above();
      if (!visit(floor, end) || end == open) break;
      floor = end;
    }
    budget_.spend(steps_);
  }

  static constexpr std::int64_t open = std::numeric_limits<std::int64_t>::max();

 private:
  struct interval {
    std::int64_t low, high;
  };
  using interval_union = std::vector<interval>;  ///< sorted, neither overlapping nor touching
  struct box {
    std::int64_t low, high;
    std::int32_t first, last;
  };
  struct bucket {
    interval_union covering, any;
    std::vector<box> partly;  ///< by ascending low
  };
  /// A union that changed: the interval at `at` replaced the last `replaced` ones of replaced_.
  struct change {
    interval_union* where;
    std::uint32_t at, replaced;
  };
  struct addition {
    std::uint32_t index;
    std::int64_t offset;
    std::size_t changes;  ///< how many there were before
  };
  /// Where the search for a gap stands in a list.
  struct cursor {
    const interval* next = nullptr;  ///< of a union, or
    const interval* end = nullptr;
    const box* next_box = nullptr;  ///< of boxes
    const box* end_box = nullptr;
  };

  std::int32_t bucket_of(std::int32_t section) const { return section / width_; }
  bool covers(const item& it, std::int32_t b) const;
  void join(interval_union& u, std::int64_t low, std::int64_t high);
  void gather(const item& it);
  bool raise(const item& it, std::int64_t& floor, std::int64_t highest);
  void raise(cursor& c, const item& it, std::int64_t& floor);
  std::int64_t next_above() const;

  const instance& problem_;
  work_budget& budget_;
  std::int32_t width_ = 1;
  std::vector<bucket> buckets_;
  std::vector<addition> added_;
  std::vector<change> changes_;
  std::vector<interval> replaced_;
  std::vector<cursor> cursors_;
  std::int64_t steps_ = 0;
};

}  // namespace stash::planner::placing
