// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_exact.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace stash::planner::placing {
namespace {

constexpr std::int64_t infinite = std::numeric_limits<std::int64_t>::max() / 2;

std::uint64_t mixed(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

}  // namespace

/// One run. Blocks are numbered by their position in the order, so that a comparison of numbers breaks ties.
class exact_search::walk {
 public:
  walk(const instance& problem, const std::vector<std::vector<std::uint32_t>>& conflicts,
       std::int64_t capacity, const std::vector<std::uint32_t>& order, std::int64_t work, work_budget& budget)
      : capacity_(capacity), work_limit_(budget.used() + work), budget_(budget) {
    const std::size_t n = order.size();
    std::vector<number> position(n);
    for (std::size_t i = 0; i < n; ++i)
      position[order[i]] = static_cast<number>(i);
    blocks_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const item& it = problem.items[order[i]];
      block& b = blocks_[i];
      b.size = it.size;
      b.alignment = it.alignment;
      b.first = it.first;
      b.last = it.last;
      b.spans_begin = spans_.size();
      for (const segment& p : problem.segments_of(it))
        spans_.emplace_back(p.first, p.last);
      b.spans_end = spans_.size();
      b.neighbours_begin = neighbours_.size();
      for (const std::uint32_t other : conflicts[order[i]]) {
        const item& o = problem.items[other];
        if (o.fixed < 0) {
          neighbours_.push_back(position[other]);
        }
      }
      b.neighbours_end = neighbours_.size();
      b.obstacles_begin = obstacles_.size();
      for (const std::uint32_t other : conflicts[order[i]]) {
        const item& o = problem.items[other];
        if (o.fixed >= 0) obstacles_.emplace_back(o.fixed, o.fixed + o.size);
      }
      b.obstacles_end = obstacles_.size();
      std::sort(obstacles_.begin() + static_cast<std::ptrdiff_t>(b.obstacles_begin), obstacles_.end());
      b.placed = it.fixed >= 0;
      b.offset = std::max<std::int64_t>(it.fixed, 0);
      if (!b.placed) b.lowest = fit(b, 0);
    }
    filled_.assign(problem.live.size() + 1, 0);
    memory_.resize(std::size_t{1} << memory_bits);
    // By section, as the division into independent parts wants it; that is the order of the items.
    for (std::size_t i = 0; i < n; ++i) {
      if (!blocks_[index(position[i])].placed) stack_.push_back(position[i]);
    }
  }

  exact_outcome run() { return parts({0, stack_.size()}, 0, -1); }
  std::int64_t nodes() const noexcept { return nodes_; }
  std::int64_t offset(std::size_t i) const { return blocks_[i].offset; }

 private:
  using number = std::int32_t;

  struct block {
    std::int64_t size;
    std::int64_t lowest;  ///< above everything placed that conflicts
    std::int64_t reach;   ///< at least this far up, given what may still be placed (within one node)
    std::int64_t offset;  ///< if placed
    std::int64_t alignment;
    std::int32_t first;
    std::int32_t last;
    bool placed;
    std::size_t spans_begin, spans_end;
    std::size_t neighbours_begin, neighbours_end;
    std::size_t obstacles_begin, obstacles_end;
  };

  /// A part of stack_: blocks that are not placed, by first section.
  struct range {
    std::size_t begin;
    std::size_t end;
  };

  struct undo {
    number who;
    std::int64_t lowest;  ///< what it was before; -1: it was not placed
  };

  struct failure {
    std::uint64_t first_key = 0;
    std::uint64_t second_key = 0;
    std::int64_t offset = -1;
    number last = 0;
  };

  static constexpr unsigned memory_bits = 16;
  static constexpr unsigned memory_shift = 64 - memory_bits;

  /// The lowest offset from `from` on that the alignment and fixed blocks allow.
  std::int64_t fit(const block& b, std::int64_t from) const {
    std::int64_t at = aligned(from, b.alignment);
    for (std::size_t o = b.obstacles_begin; o < b.obstacles_end; ++o) {
      if (obstacles_[o].first < at + b.size && at < obstacles_[o].second)
        at = aligned(obstacles_[o].second, b.alignment);
    }
    return at;
  }

  /// Solves parts that share no section one by one.
  exact_outcome parts(range all, std::int64_t offset, number last) {
    std::size_t begin = all.begin;
    std::vector<range> list;
    std::int32_t until = -1;
    for (std::size_t i = all.begin; i < all.end; ++i) {
      const block& b = blocks_[index(stack_[i])];
      if (b.first >= until && i > begin) {
        list.push_back({begin, i});
        begin = i;
      }
      until = std::max(until, b.last);
    }
    if (begin < all.end) list.push_back({begin, all.end});
    // A small part that cannot be solved spares the work on a large one.
    std::sort(list.begin(), list.end(), [](const range& a, const range& b) {
      return std::pair(a.end - a.begin, a.begin) < std::pair(b.end - b.begin, b.begin);
    });
    for (const range& part : list) {
      const exact_outcome result = node(part, offset, last);
      if (result != exact_outcome::found) return result;
    }
    return exact_outcome::found;
  }

  /// Solves the part when further blocks come after (offset, last) in the order of offset and number.
  exact_outcome node(range part, std::int64_t offset, number last) {
    ++nodes_;
    budget_.spend(static_cast<std::int64_t>(part.end - part.begin) * 8);
    if (budget_.used() > work_limit_ || budget_.over()) return exact_outcome::limit;
    failure key;
    remember(part, key);
    failure& known = memory_[key.first_key >> memory_shift];
    if (known.first_key == key.first_key && known.second_key == key.second_key && known.offset >= 0 &&
        std::pair(known.offset, known.last) <= std::pair(offset, last))
      return exact_outcome::none;
    const exact_outcome result = children(part, offset, last);
    if (result == exact_outcome::none) {
      failure& slot = memory_[key.first_key >> memory_shift];
      slot = key;
      slot.offset = offset;
      slot.last = last;
    }
    return result;
  }

  void remember(range part, failure& key) const {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const number who = stack_[i];
      const auto lowest = static_cast<std::uint64_t>(blocks_[index(who)].lowest);
      const std::uint64_t z = mixed(lowest * 0x9E3779B97F4A7C15ULL +
                                    (static_cast<std::uint64_t>(who) + 1) * 0xD1B54A32D192ED03ULL);
      key.first_key += z;
      key.second_key += mixed(z ^ 0x9E3779B97F4A7C15ULL);
    }
  }

  exact_outcome children(range part, std::int64_t offset, number last) {
    // Where a block could end below the offset of the next one, it would have been placed there.
    std::int64_t ceiling = infinite;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const block& b = blocks_[index(stack_[i])];
      ceiling = std::min(ceiling, b.lowest + b.size);
    }
    if (!reaches(part, offset, last) || !sections_suffice(part)) return exact_outcome::none;

    const std::size_t list = choices_.size();
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const number who = stack_[i];
      const block& b = blocks_[index(who)];
      if (b.lowest < ceiling && std::pair(b.lowest, who) > std::pair(offset, last)) choices_.push_back(who);
    }
    std::sort(choices_.begin() + static_cast<std::ptrdiff_t>(list), choices_.end(), [&](number a, number b) {
      return std::pair(blocks_[index(a)].lowest, a) < std::pair(blocks_[index(b)].lowest, b);
    });
    exact_outcome result = exact_outcome::none;
    const std::size_t end = choices_.size();
    for (std::size_t c = list; c < end && result == exact_outcome::none; ++c)
      result = place(part, choices_[c]);
    choices_.resize(list);
    return result;
  }

  exact_outcome place(range part, number who) {
    block& b = blocks_[index(who)];
    const std::size_t mark = undo_.size();
    const std::int64_t top = b.lowest + b.size;
    b.placed = true;
    b.offset = b.lowest;
    undo_.push_back({who, -1});
    bool possible = true;
    for (std::size_t k = b.neighbours_begin; k < b.neighbours_end && possible; ++k) {
      block& other = blocks_[index(neighbours_[k])];
      if (other.placed || other.lowest >= top) continue;
      undo_.push_back({neighbours_[k], other.lowest});
      other.lowest = fit(other, top);
      possible = other.lowest + other.size <= capacity_;
    }
    exact_outcome result = exact_outcome::none;
    if (possible) {
      const std::size_t begin = stack_.size();
      for (std::size_t i = part.begin; i < part.end; ++i) {
        if (stack_[i] != who) stack_.push_back(stack_[i]);
      }
      result = parts({begin, stack_.size()}, b.offset, who);
      stack_.resize(begin);
    }
    if (result != exact_outcome::found) {
      while (undo_.size() > mark) {
        const undo& u = undo_.back();
        if (u.lowest < 0) {
          blocks_[index(u.who)].placed = false;
        } else {
          blocks_[index(u.who)].lowest = u.lowest;
        }
        undo_.pop_back();
      }
    }
    return result;
  }

  /// A block whose position is after (offset, last) now has to be lifted by one that is still to come.
  bool reaches(range part, std::int64_t offset, number last) {
    const std::size_t list = skipped_.size();
    for (std::size_t i = part.begin; i < part.end; ++i) {
      block& b = blocks_[index(stack_[i])];
      b.reach = b.lowest;
      if (std::pair(b.lowest, stack_[i]) > std::pair(offset, last)) continue;
      b.reach = offset;
      skipped_.push_back(stack_[i]);
    }
    bool possible = true;
    for (std::size_t i = list; i < skipped_.size() && possible; ++i) {
      block& b = blocks_[index(skipped_[i])];
      std::int64_t lift = infinite;
      for (std::size_t k = b.neighbours_begin; k < b.neighbours_end; ++k) {
        const block& other = blocks_[index(neighbours_[k])];
        if (!other.placed) lift = std::min(lift, other.reach + other.size);
      }
      b.reach = std::max(b.reach, lift);
      possible = b.reach <= capacity_ - b.size;
    }
    skipped_.resize(list);
    return possible;
  }

  /// In each section, the blocks that lie at or above any height must fit below the capacity.
  bool sections_suffice(range part) {
    by_reach_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(part.begin),
                     stack_.begin() + static_cast<std::ptrdiff_t>(part.end));
    std::sort(by_reach_.begin(), by_reach_.end(),
              [&](number a, number b) { return blocks_[index(a)].reach > blocks_[index(b)].reach; });
    std::int32_t from = std::numeric_limits<std::int32_t>::max(), until = 0;
    bool possible = true;
    for (const number who : by_reach_) {
      const block& b = blocks_[index(who)];
      from = std::min(from, b.first);
      until = std::max(until, b.last);
      const std::int64_t headroom = capacity_ - b.reach;
      for (std::size_t s = b.spans_begin; s < b.spans_end; ++s) {
        budget_.spend(spans_[s].second - spans_[s].first);
        for (std::int32_t t = spans_[s].first; t < spans_[s].second; ++t)
          possible &= (filled_[static_cast<std::size_t>(t)] += b.size) <= headroom;
      }
      if (!possible) break;
    }
    if (from < until) std::fill(filled_.begin() + from, filled_.begin() + until, 0);
    return possible;
  }

  static std::size_t index(number who) noexcept { return static_cast<std::size_t>(who); }

  std::int64_t capacity_;
  std::int64_t work_limit_;
  std::int64_t nodes_ = 0;
  work_budget& budget_;
  std::vector<block> blocks_;
  std::vector<std::pair<std::int32_t, std::int32_t>> spans_;
  std::vector<number> neighbours_;
  std::vector<std::pair<std::int64_t, std::int64_t>> obstacles_;
  std::vector<number> stack_, choices_, skipped_, by_reach_;
  std::vector<undo> undo_;
  std::vector<std::int64_t> filled_;
  std::vector<failure> memory_;
};

exact_search::exact_search(const instance& problem) : problem_(problem), conflicts_(problem.items.size()) {
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    for (std::size_t j = i + 1; j < problem.items.size() && problem.items[j].first < problem.items[i].last;
         ++j) {
      if (!problem.conflict(problem.items[i], problem.items[j])) continue;
      conflicts_[i].push_back(static_cast<std::uint32_t>(j));
      conflicts_[j].push_back(static_cast<std::uint32_t>(i));
    }
  }
}

exact_search::~exact_search() = default;

std::int64_t exact_search::nodes() const noexcept {
  return nodes_;
}

exact_outcome exact_search::run(std::int64_t capacity, const std::vector<std::uint32_t>& order,
                                std::int64_t work, work_budget& budget, std::vector<std::int64_t>& offsets) {
  for (const item& it : problem_.items) {
    if (it.fixed >= 0 && it.fixed + it.size > capacity) return exact_outcome::none;
  }
  walk w(problem_, conflicts_, capacity / problem_.grain * problem_.grain, order, work, budget);
  exact_outcome result = w.run();
  nodes_ += w.nodes();
  if (result == exact_outcome::found) {
    offsets.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      offsets[order[i]] = w.offset(i);
  }
  if (result == exact_outcome::none && problem_.windows) result = exact_outcome::limit;
  return result;
}

}  // namespace stash::planner::placing
