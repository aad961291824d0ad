// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_placer.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner::placing {
namespace {

/// Up to here, passing over all placed items beats sorting those that conflict.
constexpr std::size_t most_sorted = 1024;
constexpr std::size_t most_pairs = std::size_t{1} << 25;

}  // namespace

placer::placer(const instance& problem, work_budget& budget)
    : problem_(problem),
      budget_(budget),
      offsets_(problem.items.size(), -1),
      sorted_(!problem.windows && problem.items.size() <= most_sorted) {
  const std::vector<item>& items = problem.items;
  if (sorted_) {
    slots_.reserve(items.size());
  } else if (problem.boxes) {
    occupancy_.emplace(problem, budget);
  } else {
    later_end_.resize(items.size());
    earlier_begin_.assign(1, 0);
    std::vector<std::uint32_t> alive;
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      const auto later = std::partition_point(items.begin() + i, items.end(),
                                              [&](const item& o) { return o.first < items[i].last; });
      later_end_[i] = static_cast<std::uint32_t>(later - items.begin());
      if (earlier_begin_.empty()) continue;
      std::erase_if(alive, [&](std::uint32_t other) { return items[other].last <= items[i].first; });
      if (earlier_.size() + alive.size() > most_pairs) {
        earlier_begin_.clear();
        earlier_ = {};
        continue;
      }
      earlier_.insert(earlier_.end(), alive.begin(), alive.end());
      earlier_begin_.push_back(earlier_.size());
      alive.push_back(i);
    }
  }
  clear();
}

void placer::clear() {
  slots_.clear();
  if (occupancy_) occupancy_->clear();
  for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
    offsets_[i] = -1;
    if (problem_.items[i].fixed >= 0) place(i, problem_.items[i].fixed);
  }
}

void placer::forbid(const item& it, std::uint32_t other) {
  const item& o = problem_.items[other];
  const std::int64_t offset = offsets_[other];
  if (!problem_.windows) {
    if (it.segment_end - it.segment_begin + o.segment_end - o.segment_begin > 2 && !problem_.conflict(it, o))
      return;
    forbidden_.emplace_back(offset - it.size, offset + o.size);
    return;
  }
  problem_.each_meeting(it, o, [&](const segment& p, const segment& q) {
    forbidden_.emplace_back(offset + q.low - p.high, offset + q.high - p.low);
    return true;
  });
}

/// Calls visit(low, high) for open intervals in which the item's offset must not lie, by ascending low, until
/// it returns false.
template <class Visit>
void placer::each_forbidden(std::uint32_t index, Visit visit) {
  const item& it = problem_.items[index];
  if (sorted_) {
    std::size_t i = 0;
    for (; i < slots_.size(); ++i) {
      const slot& s = slots_[i];
      if ((s.first >= it.last) | (it.first >= s.last)) continue;
      if (!problem_.boxes && !problem_.conflict(it, problem_.items[s.index])) continue;
      if (!visit(s.offset - it.size, s.top)) break;
    }
    budget_.spend(static_cast<std::int64_t>(i) + 1);
    return;
  }
  forbidden_.clear();
  if (earlier_begin_.empty()) {
    for (std::uint32_t other = 0; other < index; ++other) {
      if (offsets_[other] >= 0 && problem_.items[other].last > it.first) forbid(it, other);
    }
    budget_.spend(index);
  } else {
    for (std::size_t e = earlier_begin_[index]; e < earlier_begin_[index + 1]; ++e) {
      if (offsets_[earlier_[e]] >= 0) forbid(it, earlier_[e]);
    }
    budget_.spend(static_cast<std::int64_t>(earlier_begin_[index + 1] - earlier_begin_[index]));
  }
  for (std::uint32_t other = index + 1; other < later_end_[index]; ++other) {
    if (offsets_[other] >= 0) forbid(it, other);
  }
  budget_.spend(later_end_[index] - index + 8 * static_cast<std::int64_t>(forbidden_.size()));
  std::sort(forbidden_.begin(), forbidden_.end());
  for (const auto& [low, high] : forbidden_) {
    if (!visit(low, high)) return;
  }
}

std::optional<std::int64_t> placer::gap_for(std::uint32_t index, fit how, std::int64_t ceiling) {
  const item& it = problem_.items[index];
  const std::int64_t highest = ceiling - it.size;
  std::int64_t floor = 0;
  std::int64_t tightest = std::numeric_limits<std::int64_t>::max();
  std::int64_t chosen = -1;
  if (occupancy_) {
    occupancy_->each_gap(it, highest, [&](std::int64_t low, std::int64_t high) {
      if (high - low >= tightest && (high != occupancy::open || chosen >= 0)) return true;
      tightest = high - low;
      chosen = low;
      return how != fit::first;
    });
    return chosen < 0 ? std::nullopt : std::optional(chosen);
  }
  each_forbidden(index, [&](std::int64_t low, std::int64_t high) {
    if (low >= floor && low - floor < tightest) {
      tightest = low - floor;
      chosen = floor;
      if (how == fit::first) return false;
    }
    if (high > floor) floor = it.alignment == 1 ? high : aligned(high, it.alignment);
    return floor <= highest;
  });
  if (chosen < 0) chosen = floor;
  if (chosen > highest) return std::nullopt;
  return chosen;
}

std::optional<std::int64_t> placer::highest_gap_for(std::uint32_t index, std::int64_t ceiling) {
  const item& it = problem_.items[index];
  std::int64_t floor = 0;
  std::int64_t chosen = -1;
  const auto offer = [&](std::int64_t highest) {
    highest -= highest % it.alignment;
    if (highest >= floor) chosen = highest;
  };
  const std::int64_t highest = ceiling - it.size;
  if (occupancy_) {
    occupancy_->each_gap(it, highest, [&](std::int64_t low, std::int64_t high) {
      floor = low;
      offer(std::min(high - it.size, highest));
      return true;
    });
    return chosen < 0 ? std::nullopt : std::optional(chosen);
  }
  each_forbidden(index, [&](std::int64_t low, std::int64_t high) {
    if (std::min(low, highest) >= floor) offer(std::min(low, highest));
    floor = std::max(floor, high);
    return floor <= highest;
  });
  if (highest >= floor) offer(highest);
  if (chosen < 0) return std::nullopt;
  return chosen;
}

void placer::place(std::uint32_t index, std::int64_t offset) {
  const item& it = problem_.items[index];
  offsets_[index] = offset;
  if (occupancy_) occupancy_->add(index, offset);
  if (!sorted_) return;
  const auto at = std::upper_bound(slots_.begin(), slots_.end(), offset,
                                   [](std::int64_t o, const slot& s) { return o < s.offset; });
  slots_.insert(at, {offset, offset + it.size, it.first, it.last, index});
}

void placer::remove(const std::uint32_t* first, const std::uint32_t* last) {
  for (const std::uint32_t* i = first; i != last; ++i)
    offsets_[*i] = -1;
  budget_.spend(last - first);
  if (occupancy_) {
    // Mostly those placed last; whoever was placed after one of them comes again.
    std::vector<std::uint32_t> again;
    for (std::ptrdiff_t left = last - first; left > 0;) {
      const std::uint32_t index = occupancy_->take_back();
      if (offsets_[index] < 0) {
        --left;
      } else {
        again.push_back(index);
      }
    }
    for (; !again.empty(); again.pop_back())
      occupancy_->add(again.back(), offsets_[again.back()]);
  }
  if (!sorted_) return;
  budget_.spend(static_cast<std::int64_t>(slots_.size()));
  std::erase_if(slots_, [&](const slot& s) { return offsets_[s.index] < 0; });
}

std::int64_t placer::height() const {
  std::int64_t h = problem_.idle_top;
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] >= 0) h = std::max(h, offsets_[i] + problem_.items[i].size);
  }
  return h;
}

}  // namespace stash::planner::placing
