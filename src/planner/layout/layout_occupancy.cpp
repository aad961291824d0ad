// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_occupancy.hpp"

#include <algorithm>
#include <cmath>

namespace stash::planner::placing {

occupancy::occupancy(const instance& problem, work_budget& budget) : problem_(problem), budget_(budget) {
  const auto sections = static_cast<std::int32_t>(problem.live.size());
  width_ = std::max(1, static_cast<std::int32_t>(std::sqrt(static_cast<double>(sections))));
  buckets_.resize(static_cast<std::size_t>((sections + width_ - 1) / width_));
}

void occupancy::clear() {
  for (bucket& b : buckets_) {
    b.covering.clear();
    b.any.clear();
    b.partly.clear();
  }
  added_.clear();
  changes_.clear();
  replaced_.clear();
}

bool occupancy::covers(const item& it, std::int32_t b) const {
  const auto sections = static_cast<std::int32_t>(problem_.live.size());
  return it.first <= b * width_ && it.last >= std::min((b + 1) * width_, sections);
}

void occupancy::add(std::uint32_t index, std::int64_t offset) {
  const item& it = problem_.items[index];
  const std::int64_t top = offset + it.size;
  added_.push_back({index, offset, changes_.size()});
  const std::int32_t last = bucket_of(it.last - 1);
  for (std::int32_t n = bucket_of(it.first); n <= last; ++n) {
    bucket& b = buckets_[static_cast<std::size_t>(n)];
    join(b.any, offset, top);
    if (covers(it, n)) {
      join(b.covering, offset, top);
    } else {
      const auto next = std::upper_bound(b.partly.begin(), b.partly.end(), offset,
                                         [](std::int64_t o, const box& x) { return o < x.low; });
      b.partly.insert(next, {offset, top, it.first, it.last});
    }
  }
  budget_.spend(16 * static_cast<std::int64_t>(last - bucket_of(it.first) + 1));
}

std::uint32_t occupancy::take_back() {
  const addition gone = added_.back();
  added_.pop_back();
  const item& it = problem_.items[gone.index];
  for (; changes_.size() > gone.changes; changes_.pop_back()) {
    const change& c = changes_.back();
    const auto at = c.where->begin() + static_cast<std::ptrdiff_t>(c.at);
    const auto old = replaced_.end() - static_cast<std::ptrdiff_t>(c.replaced);
    if (c.replaced == 1) {
      *at = *old;
    } else {
      c.where->insert(c.where->erase(at), old, replaced_.end());
    }
    replaced_.erase(old, replaced_.end());
  }
  for (const std::int32_t n : {bucket_of(it.first), bucket_of(it.last - 1)}) {
    std::vector<box>& partly = buckets_[static_cast<std::size_t>(n)].partly;
    auto at = std::lower_bound(partly.begin(), partly.end(), gone.offset,
                               [](const box& x, std::int64_t o) { return x.low < o; });
    while (at != partly.end() && at->low == gone.offset && (at->first != it.first || at->last != it.last))
      ++at;
    if (at != partly.end() && at->low == gone.offset) partly.erase(at);
  }
  budget_.spend(16 * static_cast<std::int64_t>(bucket_of(it.last - 1) - bucket_of(it.first) + 1));
  return gone.index;
}

void occupancy::join(interval_union& u, std::int64_t low, std::int64_t high) {
  const auto first =
      std::partition_point(u.begin(), u.end(), [&](const interval& i) { return i.high < low; });
  auto end = first;
  while (end != u.end() && end->low <= high)
    ++end;
  const auto replaced = end - first;
  if (replaced == 1 && first->low <= low && high <= first->high) return;
  const auto at = first - u.begin();
  changes_.push_back({&u, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(replaced)});
  replaced_.insert(replaced_.end(), first, end);
  if (replaced == 0) {
    u.insert(first, {low, high});
    return;
  }
  *first = {std::min(low, first->low), std::max(high, (end - 1)->high)};
  u.erase(first + 1, end);
}

/// The lists that together hold whatever meets the item in time.
void occupancy::gather(const item& it) {
  cursors_.clear();
  const auto look_at = [&](const interval_union& u) {
    if (!u.empty()) cursors_.push_back({u.data(), u.data() + u.size(), nullptr, nullptr});
  };
  const std::int32_t last = bucket_of(it.last - 1);
  for (std::int32_t n = bucket_of(it.first); n <= last; ++n) {
    const bucket& b = buckets_[static_cast<std::size_t>(n)];
    if (covers(it, n)) {
      look_at(b.any);
      continue;
    }
    look_at(b.covering);
    if (!b.partly.empty())
      cursors_.push_back({nullptr, nullptr, b.partly.data(), b.partly.data() + b.partly.size()});
  }
  steps_ = 16 + 2 * static_cast<std::int64_t>(cursors_.size());
}

/// Lifts the floor to where the item fits in all lists; false if that is above `highest`.
bool occupancy::raise(const item& it, std::int64_t& floor, std::int64_t highest) {
  std::size_t agreeing = 0;
  for (std::size_t i = 0; agreeing < cursors_.size() && floor <= highest; i = (i + 1) % cursors_.size()) {
    const std::int64_t before = floor;
    raise(cursors_[i], it, floor);
    agreeing = floor == before ? agreeing + 1 : 1;
    steps_ += 2;
  }
  return floor <= highest;
}

void occupancy::raise(cursor& c, const item& it, std::int64_t& floor) {
  const interval* next = c.next;
  for (; next != c.end && (next->high <= floor || next->low < floor + it.size); ++next)
    floor = std::max(floor, next->high);
  const box* next_box = c.next_box;
  for (; next_box != c.end_box; ++next_box) {
    if ((next_box->first >= it.last) | (it.first >= next_box->last) | (next_box->high <= floor)) continue;
    if (next_box->low >= floor + it.size) break;
    floor = next_box->high;
  }
  steps_ += (next - c.next) + (next_box - c.next_box);
  c.next = next;
  c.next_box = next_box;
}

std::int64_t occupancy::next_above() const {
  std::int64_t lowest = open;
  for (const cursor& c : cursors_) {
    if (c.next != c.end) lowest = std::min(lowest, c.next->low);
    if (c.next_box != c.end_box) lowest = std::min(lowest, c.next_box->low);
  }
  return lowest;
}

}  // namespace stash::planner::placing
