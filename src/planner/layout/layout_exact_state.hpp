// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A partial layout of the exact search: which blocks are placed, how low the others can still lie, what
/// follows from that in every section, and why it cannot be completed if it cannot.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"

namespace stash::planner::placing {

/// A set of blocks.
class block_set {
 public:
  explicit block_set(std::size_t blocks = 0) : words_(blocks / 64 + 1) {}
  bool has(std::int32_t who) const { return (words_[word(who)] >> bit(who) & 1U) != 0; }
  void insert(std::int32_t who) { words_[word(who)] |= std::uint64_t{1} << bit(who); }
  void erase(std::int32_t who) { words_[word(who)] &= ~(std::uint64_t{1} << bit(who)); }
  void clear() { words_.assign(words_.size(), 0); }
  void insert(const block_set& other) {
    for (std::size_t w = 0; w < words_.size(); ++w)
      words_[w] |= other.words_[w];
  }

 private:
  static std::size_t word(std::int32_t who) noexcept { return static_cast<std::size_t>(who) / 64; }
  static unsigned bit(std::int32_t who) noexcept { return static_cast<unsigned>(who) % 64; }

  std::vector<std::uint64_t> words_;
};

/// Blocks are numbered by their position in the order, so that a comparison of numbers breaks ties.
///
/// A failure is explained by a set of blocks: whatever else is placed, there is no layout as long as none of
/// these can lie lower. Decisions that changed none of them need not be tried another way.
class exact_state {
 public:
  using number = std::int32_t;
  using pairs = std::vector<std::vector<std::uint32_t>>;

  /// `conflicts` has, per item, those that it must not overlap. The budget must outlive this.
  exact_state(const instance& problem, const pairs& conflicts, std::int64_t capacity,
              const std::vector<std::uint32_t>& order, work_budget& budget);

  std::size_t left() const noexcept { return left_; }  ///< blocks that are not placed
  std::int64_t offset(std::size_t who) const { return blocks_[who].offset; }
  std::int64_t capacity() const noexcept { return capacity_; }
  bool placed(number who) const { return lowest_[index(who)] == is_placed; }
  /// Of a block that is not placed: no lower offset is free.
  std::int64_t lowest(number who) const { return lowest_[index(who)]; }

  /// What is known of a section.
  struct section {
    std::int32_t candidates = 0;  ///< blocks that can be its lowest one of those not placed
    number lowest = -1;           ///< a block whose lowest offset is least; -1: all are placed
    std::size_t begin = 0, end = 0;
  };
  const std::vector<section>& sections() const noexcept { return sections_; }
  /// Blocks of a section, placed or not.
  const number* begin_of(const section& s) const { return members_.data() + s.begin; }
  const number* end_of(const section& s) const { return members_.data() + s.end; }

  /// Nothing that is not placed can lie below the block's lowest offset: it lies there, or on another one.
  bool ready(number who) const;
  /// Where the block lies at least if not at its lowest offset; above the capacity where there is nothing.
  std::int64_t lifted(number who) const;

  /// The two ways of a decision about a block that is ready. False if that leaves no layout.
  bool place(number who);
  bool lift(number who, std::int64_t offset);

  /// Takes back all changes since the trail had that length, which began with a decision about this block.
  /// Turns the explanation of a failure after it into one of before. False if the decision did not matter.
  bool undo(std::size_t length, number who);
  std::size_t trail() const noexcept { return trail_.size(); }

  block_set& explanation() noexcept { return explanation_; }
  /// Adds why the block, not at its lowest offset, lies at `offset` or higher.
  void explain_lift(number who, std::int64_t offset);

  /// Draws conclusions until there are no more, false if there is no layout.
  bool propagate();

 private:
  static constexpr std::int64_t is_placed = -1;
  static constexpr std::int32_t decision = -1;

  struct block {
    std::int64_t size;
    std::int64_t offset;  ///< if placed
    std::int64_t alignment;
    std::size_t sections_begin, sections_end;
    std::size_t neighbours_begin, neighbours_end;
    std::size_t obstacles_begin, obstacles_end;
  };
  /// A value that was changed.
  struct change {
    std::int64_t old;
    number who;       ///< a block's lowest offset; ~section: its lowest block
    std::int32_t by;  ///< section, or decision; of a section: the old number of candidates
  };

  static std::size_t index(std::int32_t n) noexcept { return static_cast<std::size_t>(n); }

  void add_block(const instance& problem, const pairs& conflicts, std::uint32_t item,
                 const std::vector<number>& position);
  void number_members();
  std::int64_t fit(const block& b, std::int64_t from) const;
  void touch(const block& b);
  void forget_touched();
  bool examine(std::int32_t s);
  bool raise(number who, std::int64_t least, std::int32_t by, number decided);

  std::int64_t capacity_;
  work_budget& budget_;
  std::size_t left_ = 0;
  std::vector<block> blocks_;
  std::vector<std::int64_t> lowest_;  ///< per block, or is_placed
  std::vector<std::int32_t> sections_of_;
  std::vector<number> neighbours_;
  std::vector<std::pair<std::int64_t, std::int64_t>> obstacles_;  ///< fixed ones, by offset
  std::vector<section> sections_;
  std::vector<number> members_;  ///< per section, mostly by descending lowest offset
  std::vector<block_set> member_sets_;
  std::vector<bool> touched_;
  std::vector<std::int32_t> queue_;  ///< sections that are touched
  std::vector<change> trail_;
  block_set explanation_;
};

}  // namespace stash::planner::placing
