// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Search for a layout within a capacity that moves blocks again and again: a block that finds no gap drives
/// out those whose loss weighs least, and they are placed anew. A block weighs more each time it had to drive
/// others out (after the ejection pool of Nagata and Braysy for vehicle routing).

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_orders.hpp"

namespace stash::planner::placing {

class ejection_search {
 public:
  /// Both must outlive this. The instance must be one that it handles().
  ejection_search(const instance& problem, work_budget& budget);

  /// No windows, and every alignment divides the instance's grain: where one block ends, any other may begin.
  static bool handles(const instance& problem);

  /// From an empty layout, with the next way of choosing whom to place; true if all items lie within the
  /// capacity. Ends without after `work` steps or when the budget is over.
  bool run(std::int64_t capacity, std::int64_t work) { return run(capacity, work, {}); }
  /// The same from a layout: only those that stand out of the capacity have to find an offset first.
  bool run(std::int64_t capacity, std::int64_t work, std::span<const std::int64_t> layout);
  /// The same from offsets of another problem: items may be without (-1) and in each other's way.
  bool mend(std::int64_t capacity, std::int64_t work, std::span<const std::int64_t> layout);

  /// Per item, of the last run that was true.
  const std::vector<std::int64_t>& offsets() const noexcept { return offsets_; }
  /// Per item, of the last run: the moment at which least was waiting (-1).
  const std::vector<std::int64_t>& nearest() const noexcept { return nearest_; }

 private:
  /// A placed item where it begins or ends.
  struct edge {
    std::int64_t at;
    std::int32_t first;
    std::int32_t last;
    std::uint32_t index;
  };
  struct event {
    std::int64_t at;
    std::int64_t weight;
  };
  struct waiting {
    double urgency;
    std::uint32_t index;
    bool operator<(const waiting& other) const noexcept {
      return urgency < other.urgency || (urgency <= other.urgency && index > other.index);
    }
  };
  /// Placed items that are there within a range of sections, by where they begin and end.
  struct group {
    std::vector<edge> bottoms, tops;
  };
  struct candidate {
    std::int64_t offset;
    std::int64_t cost;  ///< weight of those in the way
  };

  void start(std::int64_t capacity);
  bool place_waiting(std::int64_t work);
  double area(std::uint32_t index) const;
  bool is_free(std::uint32_t index, std::int64_t offset) const;
  void wait(std::uint32_t index);
  std::int64_t weight(std::uint32_t index) const;
  void meet(const std::vector<edge>& edges, std::uint32_t index, std::vector<event>& events,
            std::int64_t shift) const;
  candidate cheapest(std::uint32_t index);
  void drive_out(std::uint32_t index, std::int64_t offset);
  const group& around(const item& it) const;
  template <class Visit>
  void each_group(const item& it, Visit visit);
  void put(std::uint32_t index, std::int64_t offset);
  void take(std::uint32_t index);

  const instance& problem_;
  work_budget& budget_;
  random_numbers random_;
  std::vector<std::int64_t> stature_;  ///< per item: its weight at first
  std::vector<std::int64_t> grudge_;   ///< per item: 1 and one more each time it drove others out
  std::vector<std::int64_t> offsets_;  ///< per item, -1: waiting
  std::vector<std::int64_t> nearest_;
  double waiting_ = 0;  ///< sum of area() of those waiting
  group all_;
  /// Groups of `width_` sections, each of which overlaps the next one by half: a short lifetime lies
  /// within one of them.
  std::vector<group> groups_;
  std::int32_t width_ = 2;
  std::vector<event> begins_, ends_;
  std::vector<std::int64_t> equals_;
  std::vector<waiting> queue_;  ///< a heap
  std::vector<std::uint32_t> driven_out_;
  std::int64_t capacity_ = 0;
  unsigned attempt_ = 0;
};

}  // namespace stash::planner::placing
