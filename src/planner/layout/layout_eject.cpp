// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_eject.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stash::planner::placing {
namespace {

constexpr std::int64_t immovable = std::int64_t{1} << 50;
constexpr std::int64_t nowhere = std::numeric_limits<std::int64_t>::max();

}  // namespace

bool ejection_search::handles(const instance& problem) {
  return !problem.windows && std::all_of(problem.items.begin(), problem.items.end(),
                                         [&](const item& it) { return problem.grain % it.alignment == 0; });
}

ejection_search::ejection_search(const instance& problem, work_budget& budget)
    : problem_(problem), budget_(budget), offsets_(problem.items.size(), -1) {
  // Half of it is about the square root of the number of sections.
  const auto sections = static_cast<std::int32_t>(problem.live.size());
  width_ = 2 * std::max(1, static_cast<std::int32_t>(std::sqrt(static_cast<double>(sections))));
  groups_.resize(static_cast<std::size_t>(sections / (width_ / 2)) + 1);
  std::int64_t largest = 1;
  for (const item& it : problem.items)
    largest = std::max(largest, it.size);
  for (const item& it : problem.items) {
    // Who is large is hard to place again, but many small ones are no better.
    const double part = static_cast<double>(it.size) / static_cast<double>(largest);
    stature_.push_back(1 + static_cast<std::int64_t>(1000.0 * std::sqrt(part)));
  }
}

bool ejection_search::run(std::int64_t capacity, std::int64_t work, std::span<const std::int64_t> layout) {
  start(capacity);
  for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
    if (problem_.items[i].fixed >= 0) continue;
    if (!layout.empty() && layout[i] + problem_.items[i].size <= capacity) {
      put(i, layout[i]);
    } else {
      wait(i);
    }
  }
  return place_waiting(work);
}

bool ejection_search::mend(std::int64_t capacity, std::int64_t work, std::span<const std::int64_t> layout) {
  attempt_ = 2;  // of start(): who weighs most comes first
  start(capacity);
  // Of those in each other's way the one that is there for more bytes and longer keeps its offset.
  std::vector<std::uint32_t> sequence(offsets_.size());
  std::iota(sequence.begin(), sequence.end(), 0U);
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return area(a) > area(b); });
  for (const std::uint32_t i : sequence) {
    if (problem_.items[i].fixed >= 0) continue;
    if (layout[i] >= 0 && layout[i] + problem_.items[i].size <= capacity && is_free(i, layout[i])) {
      put(i, layout[i]);
    } else {
      wait(i);
    }
  }
  return place_waiting(work);
}

bool ejection_search::place_waiting(std::int64_t work) {
  const std::int64_t until = budget_.used() + work;
  double least = waiting_;
  nearest_ = offsets_;
  while (!queue_.empty()) {
    if (budget_.used() >= until || budget_.over()) return false;
    std::pop_heap(queue_.begin(), queue_.end());
    const std::uint32_t index = queue_.back().index;
    queue_.pop_back();
    waiting_ -= area(index);
    const candidate found = cheapest(index);
    if (found.cost >= immovable) return false;
    if (found.cost > 0) {
      ++grudge_[index];
      drive_out(index, found.offset);
    }
    put(index, found.offset);
    if (waiting_ < 0.9 * least) {
      least = waiting_;
      nearest_ = offsets_;
    }
  }
  return true;
}

double ejection_search::area(std::uint32_t index) const {
  return static_cast<double>(problem_.items[index].size) * problem_.items[index].lifetime;
}

void ejection_search::start(std::int64_t capacity) {
  capacity_ = capacity;
  ++attempt_;
  grudge_.assign(offsets_.size(), 1);
  all_ = {};
  for (group& g : groups_) {
    g.bottoms.clear();
    g.tops.clear();
  }
  queue_.clear();
  waiting_ = 0;
  for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
    offsets_[i] = -1;
    if (problem_.items[i].fixed >= 0) put(i, problem_.items[i].fixed);
  }
}

/// The ways differ in who is placed first among those waiting; none is best for all problems.
void ejection_search::wait(std::uint32_t index) {
  const item& it = problem_.items[index];
  const auto size = static_cast<double>(it.size);
  const auto grudge = static_cast<double>(grudge_[index]);
  double urgency = 0;
  switch (attempt_ % 4) {
    case 1:
      urgency = size * it.lifetime * std::sqrt(grudge);
      break;
    case 2:
      urgency = size * it.lifetime;
      break;
    case 3:
      urgency = static_cast<double>(weight(index));
      break;
    default:
      urgency = size * it.lifetime * grudge;
  }
  waiting_ += area(index);
  queue_.push_back({urgency, index});
  std::push_heap(queue_.begin(), queue_.end());
}

std::int64_t ejection_search::weight(std::uint32_t index) const {
  return problem_.items[index].fixed >= 0 ? immovable : stature_[index] * grudge_[index];
}

/// Events of the placed items that meet this one in time, by position.
void ejection_search::meet(const std::vector<edge>& edges, std::uint32_t index, std::vector<event>& events,
                           std::int64_t shift) const {
  const item& it = problem_.items[index];
  events.resize(edges.size());
  std::size_t count = 0;
  for (const edge& e : edges) {
    events[count] = {e.at - shift, e.index};
    count += static_cast<std::size_t>((e.first < it.last) & (it.first < e.last));
  }
  events.resize(count);
  if (!problem_.boxes) {
    std::erase_if(events, [&](const event& e) {
      return !problem_.conflict(it, problem_.items[static_cast<std::size_t>(e.weight)]);
    });
  }
  for (event& e : events)
    e.weight = weight(static_cast<std::uint32_t>(e.weight));
}

/// Offsets are forbidden in open intervals, each at the weight of a placed item. The cost is lowest where one
/// begins or ends, at the floor or at the ceiling. Where nothing is in the way the lowest offset is taken,
/// else one at random.
ejection_search::candidate ejection_search::cheapest(std::uint32_t index) {
  const std::int64_t size = problem_.items[index].size;
  const std::int64_t highest = capacity_ - size;
  const group& placed = around(problem_.items[index]);
  meet(placed.bottoms, index, begins_, size);
  meet(placed.tops, index, ends_, 0);
  budget_.spend(static_cast<std::int64_t>(4 * placed.bottoms.size() + 8 * begins_.size()) + 64);
  std::int64_t cost = 0, lowest = immovable;
  std::size_t b = 0, e = 0;
  equals_.clear();
  if (highest < 0) return {0, immovable};
  while (b < begins_.size() && begins_[b].at < 0)
    cost += begins_[b++].weight;
  for (std::int64_t at = 0;;) {
    while (e < ends_.size() && ends_[e].at <= at)
      cost -= ends_[e++].weight;
    if (cost == 0) return {at, 0};
    if (cost < lowest) {
      lowest = cost;
      equals_.clear();
    }
    if (cost == lowest) equals_.push_back(at);
    if (at == highest) break;
    while (b < begins_.size() && begins_[b].at <= at)
      cost += begins_[b++].weight;
    const std::int64_t next =
        std::min(b < begins_.size() ? begins_[b].at : nowhere, e < ends_.size() ? ends_[e].at : nowhere);
    at = std::min(next, highest);
  }
  if (equals_.empty()) return {0, immovable};
  return {equals_[random_.below(equals_.size())], lowest};
}

bool ejection_search::is_free(std::uint32_t index, std::int64_t offset) const {
  const item& it = problem_.items[index];
  const std::vector<edge>& placed = around(it).bottoms;
  return std::none_of(placed.begin(), placed.end(), [&](const edge& e) {
    return e.at < offset + it.size && e.first < it.last && it.first < e.last &&
           e.at + problem_.items[e.index].size > offset &&
           (problem_.boxes || problem_.conflict(it, problem_.items[e.index]));
  });
}

void ejection_search::drive_out(std::uint32_t index, std::int64_t offset) {
  const item& it = problem_.items[index];
  driven_out_.clear();
  for (const edge& e : around(it).bottoms) {
    if (e.at >= offset + it.size) break;
    if ((e.first < it.last) & (it.first < e.last) && e.at + problem_.items[e.index].size > offset &&
        (problem_.boxes || problem_.conflict(it, problem_.items[e.index])))
      driven_out_.push_back(e.index);
  }
  for (const std::uint32_t other : driven_out_) {
    take(other);
    wait(other);
  }
}

/// A list with all that meet the item.
const ejection_search::group& ejection_search::around(const item& it) const {
  const std::int32_t half = width_ / 2, first = it.first / half;
  return it.last <= first * half + width_ ? groups_[static_cast<std::size_t>(first)] : all_;
}

/// Calls visit for every list that the item belongs into.
template <class Visit>
void ejection_search::each_group(const item& it, Visit visit) {
  const std::int32_t half = width_ / 2;
  visit(all_);
  const std::int32_t last = (it.last - 1) / half;
  for (std::int32_t n = std::max(0, it.first / half - 1); n <= last; ++n)
    visit(groups_[static_cast<std::size_t>(n)]);
  budget_.spend(16 * std::int64_t{last - it.first / half + 2});
}

void ejection_search::put(std::uint32_t index, std::int64_t offset) {
  const item& it = problem_.items[index];
  offsets_[index] = offset;
  const auto insert = [&](std::vector<edge>& edges, std::int64_t at) {
    const auto next = std::upper_bound(edges.begin(), edges.end(), at,
                                       [](std::int64_t x, const edge& e) { return x < e.at; });
    edges.insert(next, {at, it.first, it.last, index});
  };
  each_group(it, [&](group& g) {
    insert(g.bottoms, offset);
    insert(g.tops, offset + it.size);
  });
}

void ejection_search::take(std::uint32_t index) {
  const item& it = problem_.items[index];
  const auto erase = [&](std::vector<edge>& edges, std::int64_t at) {
    auto e = std::lower_bound(edges.begin(), edges.end(), at,
                              [](const edge& x, std::int64_t y) { return x.at < y; });
    while (e->index != index)
      ++e;
    edges.erase(e);
  };
  each_group(it, [&](group& g) {
    erase(g.bottoms, offsets_[index]);
    erase(g.tops, offsets_[index] + it.size);
  });
  offsets_[index] = -1;
}

}  // namespace stash::planner::placing
