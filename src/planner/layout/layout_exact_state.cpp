// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_exact_state.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner::placing {

exact_state::exact_state(const instance& problem, const pairs& conflicts, std::int64_t capacity,
                         const std::vector<std::uint32_t>& order, work_budget& budget)
    : capacity_(capacity), budget_(budget), explanation_(order.size()) {
  std::vector<number> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    position[order[i]] = static_cast<number>(i);
  sections_.resize(problem.live.size());
  touched_.resize(problem.live.size());
  for (const std::uint32_t item : order)
    add_block(problem, conflicts, item, position);
  number_members();
  for (const block& b : blocks_)
    touch(b);
}

void exact_state::add_block(const instance& problem, const pairs& conflicts, std::uint32_t item,
                            const std::vector<number>& position) {
  const placing::item& it = problem.items[item];
  block b{};
  b.size = it.size;
  b.alignment = it.alignment;
  b.offset = std::max<std::int64_t>(it.fixed, 0);
  b.sections_begin = sections_of_.size();
  b.neighbours_begin = neighbours_.size();
  b.obstacles_begin = obstacles_.size();
  if (it.fixed < 0) {
    ++left_;
    for (const segment& p : problem.segments_of(it)) {
      for (std::int32_t s = p.first; s < p.last; ++s)
        sections_of_.push_back(s);
    }
    for (const std::uint32_t other : conflicts[item]) {
      const placing::item& o = problem.items[other];
      if (o.fixed < 0) {
        neighbours_.push_back(position[other]);
      } else {
        obstacles_.emplace_back(o.fixed, o.fixed + o.size);
      }
    }
  }
  b.sections_end = sections_of_.size();
  b.neighbours_end = neighbours_.size();
  b.obstacles_end = obstacles_.size();
  std::sort(obstacles_.begin() + static_cast<std::ptrdiff_t>(b.obstacles_begin), obstacles_.end());
  lowest_.push_back(it.fixed < 0 ? fit(b, 0) : is_placed);
  blocks_.push_back(b);
}

void exact_state::number_members() {
  for (const std::int32_t s : sections_of_)
    ++sections_[index(s)].end;
  std::size_t end = 0;
  for (section& s : sections_) {
    s.begin = end;
    end += s.end;
    s.end = s.begin;
  }
  members_.resize(end);
  member_sets_.assign(sections_.size(), block_set(blocks_.size()));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    for (std::size_t k = blocks_[i].sections_begin; k < blocks_[i].sections_end; ++k) {
      const std::size_t s = index(sections_of_[k]);
      members_[sections_[s].end++] = static_cast<number>(i);
      member_sets_[s].insert(static_cast<number>(i));
    }
  }
  budget_.spend(static_cast<std::int64_t>(4 * end + sections_.size() * blocks_.size() / 64));
}

/// The lowest offset from `from` on that the alignment and fixed blocks allow.
std::int64_t exact_state::fit(const block& b, std::int64_t from) const {
  std::int64_t at = aligned(from, b.alignment);
  for (std::size_t o = b.obstacles_begin; o < b.obstacles_end; ++o) {
    if (obstacles_[o].first < at + b.size && at < obstacles_[o].second)
      at = aligned(obstacles_[o].second, b.alignment);
  }
  return at;
}

void exact_state::touch(const block& b) {
  for (std::size_t k = b.sections_begin; k < b.sections_end; ++k) {
    const std::int32_t s = sections_of_[k];
    if (touched_[index(s)]) continue;
    touched_[index(s)] = true;
    queue_.push_back(s);
  }
}

bool exact_state::ready(number who) const {
  const block& b = blocks_[index(who)];
  const std::int64_t at = lowest_[index(who)];
  for (std::size_t k = b.neighbours_begin; k < b.neighbours_end; ++k) {
    const number other = neighbours_[k];
    if (!placed(other) && lowest_[index(other)] + blocks_[index(other)].size <= at) return false;
  }
  return true;
}

std::int64_t exact_state::lifted(number who) const {
  const block& b = blocks_[index(who)];
  std::int64_t least = capacity_ + 1;
  for (std::size_t k = b.neighbours_begin; k < b.neighbours_end; ++k) {
    const number other = neighbours_[k];
    if (!placed(other)) least = std::min(least, lowest_[index(other)] + blocks_[index(other)].size);
  }
  return least;
}

bool exact_state::place(number who) {
  block& b = blocks_[index(who)];
  const std::int64_t at = lowest_[index(who)];
  b.offset = at;
  trail_.push_back({at, who, decision});
  lowest_[index(who)] = is_placed;
  --left_;
  touch(b);
  budget_.spend(static_cast<std::int64_t>(b.neighbours_end - b.neighbours_begin));
  for (std::size_t k = b.neighbours_begin; k < b.neighbours_end; ++k) {
    const number other = neighbours_[k];
    if (placed(other) || lowest_[index(other)] >= at + b.size) continue;
    if (raise(other, at + b.size, decision, who)) continue;
    forget_touched();
    return false;
  }
  return true;
}

bool exact_state::lift(number who, std::int64_t offset) {
  return raise(who, offset, decision, who);
}

void exact_state::explain_lift(number who, std::int64_t offset) {
  const block& b = blocks_[index(who)];
  explanation_.insert(who);
  // Those that are no smaller could not end lower, wherever they lie.
  for (std::size_t k = b.neighbours_begin; k < b.neighbours_end; ++k) {
    if (blocks_[index(neighbours_[k])].size < offset) explanation_.insert(neighbours_[k]);
  }
}

bool exact_state::undo(std::size_t length, number who) {
  bool mattered = explanation_.has(who);
  for (; trail_.size() > length; trail_.pop_back()) {
    const change& c = trail_.back();
    if (c.who < 0) {
      sections_[index(~c.who)].lowest = static_cast<number>(c.old);
      sections_[index(~c.who)].candidates = c.by;
      continue;
    }
    if (placed(c.who)) ++left_;
    lowest_[index(c.who)] = c.old;
    if (!explanation_.has(c.who)) continue;
    if (c.by != decision) {
      explanation_.insert(member_sets_[index(c.by)]);
      continue;
    }
    // It lies on the block of the decision, wherever else it could lie.
    mattered = true;
    explanation_.erase(c.who);
    explanation_.insert(who);
  }
  budget_.spend(64);
  return mattered;
}

bool exact_state::propagate() {
  while (!queue_.empty()) {
    const std::int32_t s = queue_.back();
    queue_.pop_back();
    touched_[index(s)] = false;
    if (examine(s)) continue;
    forget_touched();
    return false;
  }
  return true;
}

void exact_state::forget_touched() {
  for (const std::int32_t s : queue_)
    touched_[index(s)] = false;
  queue_.clear();
}

bool exact_state::examine(std::int32_t s) {
  section& own = sections_[index(s)];
  number* const list = members_.data() + own.begin;
  const std::size_t count = own.end - own.begin;
  budget_.spend(static_cast<std::int64_t>(3 * count));
  // The list is nearly sorted; who is placed comes last.
  for (std::size_t i = 1; i < count; ++i) {
    const number who = list[i];
    std::size_t k = i;
    for (; k > 0 && lowest_[index(list[k - 1])] < lowest_[index(who)]; --k)
      list[k] = list[k - 1];
    list[k] = who;
  }
  // Those that lie at or above any height must fit between it and the capacity.
  std::int64_t bytes = 0;
  std::size_t alive = 0;
  for (; alive < count && !placed(list[alive]); ++alive) {
    bytes += blocks_[index(list[alive])].size;
    if (bytes <= capacity_ - lowest_[index(list[alive])]) continue;
    explanation_.clear();
    for (std::size_t i = 0; i <= alive; ++i)
      explanation_.insert(list[i]);
    return false;
  }
  // Who begins higher than the free bytes reach is not the lowest, and lies on one who can be.
  std::int64_t least_top = std::numeric_limits<std::int64_t>::max();
  std::size_t first = alive;
  for (; first > 0 && lowest_[index(list[first - 1])] <= capacity_ - bytes; --first)
    least_top = std::min(least_top, lowest_[index(list[first - 1])] + blocks_[index(list[first - 1])].size);
  const auto candidates = static_cast<std::int32_t>(alive - first);
  const number lowest = alive == 0 ? -1 : list[alive - 1];
  if (candidates != own.candidates || lowest != own.lowest) {
    trail_.push_back({own.lowest, ~s, own.candidates});
    own.candidates = candidates;
    own.lowest = lowest;
  }
  for (std::size_t i = 0; i < first; ++i) {
    if (lowest_[index(list[i])] < least_top && !raise(list[i], least_top, s, -1)) return false;
  }
  return true;
}

/// `decided` is the block of the decision if that is what raises it, else it is the section.
bool exact_state::raise(number who, std::int64_t least, std::int32_t by, number decided) {
  const block& b = blocks_[index(who)];
  const std::int64_t at = fit(b, least);
  if (at > capacity_ - b.size) {
    explanation_.clear();
    if (by == decision) {
      explanation_.insert(who);
      explanation_.insert(decided);
    } else {
      explanation_.insert(member_sets_[index(by)]);
    }
    return false;
  }
  trail_.push_back({lowest_[index(who)], who, by});
  lowest_[index(who)] = at;
  touch(b);
  return true;
}

}  // namespace stash::planner::placing
