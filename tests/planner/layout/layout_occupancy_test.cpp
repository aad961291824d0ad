// SPDX-License-Identifier: Apache-2.0
// The lists that find gaps among many boxes, and the placer on top of them, against a look at every box.

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_occupancy.hpp"
#include "planner/layout/layout_placer.hpp"

namespace stash::planner::placing {
namespace {

using gap = std::pair<std::int64_t, std::int64_t>;

/// Lifetimes of a training step: short ones, and long ones that end in the reverse order of their begin.
std::vector<layout_block> random_blocks(std::mt19937& random, int count, std::int64_t moments) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  std::vector<layout_block> blocks;
  for (int i = 0; i < count; ++i) {
    layout_block b;
    b.size = 4 * (1 + below(below(4) == 0 ? 100 : 12));
    if (below(3) == 0) {
      b.begin = below(moments);
      b.end = std::max(b.begin + 1, 2 * moments - b.begin + below(3));
    } else {
      b.begin = below(2 * moments);
      b.end = b.begin + 1 + below(4);
    }
    blocks.push_back(b);
  }
  return blocks;
}

class reference {
 public:
  explicit reference(const instance& problem) : problem_(problem), offsets_(problem.items.size(), -1) {}

  std::vector<std::int64_t>& offsets() { return offsets_; }

  std::vector<gap> gaps_for(std::uint32_t index, std::int64_t highest) const {
    const item& it = problem_.items[index];
    std::vector<gap> taken, gaps;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      if (offsets_[i] >= 0 && problem_.conflict(it, problem_.items[i]))
        taken.emplace_back(offsets_[i], offsets_[i] + problem_.items[i].size);
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t floor = 0;
    for (const auto& [low, high] : taken) {
      if (low - floor >= it.size && floor <= highest) gaps.emplace_back(floor, low);
      floor = std::max(floor, high);
    }
    if (floor <= highest) gaps.emplace_back(floor, occupancy::open);
    return gaps;
  }

 private:
  const instance& problem_;
  std::vector<std::int64_t> offsets_;
};

const std::function<bool()> never_stop;

TEST(layout_occupancy, lists_the_gaps_of_a_look_at_every_box) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const std::vector<layout_block> blocks =
        random_blocks(random, 1 + static_cast<int>(random() % 300), 1 + static_cast<int>(random() % 200));
    const instance problem(blocks, 4, "test");
    ASSERT_TRUE(problem.boxes);
    work_budget budget(never_stop);
    occupancy lists(problem, budget);
    reference simple(problem);
    std::vector<std::uint32_t> added;
    const auto gaps_for = [&](std::uint32_t index, std::int64_t highest) {
      std::vector<gap> gaps;
      lists.each_gap(problem.items[index], highest, [&](std::int64_t low, std::int64_t high) {
        gaps.emplace_back(low, high);
        return true;
      });
      return gaps;
    };
    for (int move = 0; move < 600; ++move) {
      const auto index = static_cast<std::uint32_t>(random() % problem.items.size());
      if (simple.offsets()[index] >= 0 || random() % 4 == 0) {
        for (std::size_t n = random() % 8; n > 0 && !added.empty(); --n) {
          ASSERT_EQ(lists.take_back(), added.back());
          simple.offsets()[added.back()] = -1;
          added.pop_back();
        }
      } else {
        const std::int64_t highest =
            random() % 3 == 0 ? static_cast<std::int64_t>(random() % 2000) : occupancy::open - 1'000'000;
        const std::vector<gap> gaps = gaps_for(index, highest);
        ASSERT_EQ(gaps, simple.gaps_for(index, highest));
        if (gaps.empty()) continue;
        const auto& [low, high] = gaps[random() % gaps.size()];
        const std::int64_t size = problem.items[index].size;
        // Not only where boxes touch.
        const std::int64_t spare = std::min<std::int64_t>(high - low - size, 64) / 4;
        const std::int64_t offset =
            low + 4 * static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spare + 1));
        lists.add(index, offset);
        simple.offsets()[index] = offset;
        added.push_back(index);
      }
      ASSERT_EQ(lists.count(), added.size());
      if (random() % 200 == 0) {
        lists.clear();
        for (const std::uint32_t i : added)
          simple.offsets()[i] = -1;
        added.clear();
      }
    }
  }
}

TEST(layout_occupancy, thousands_of_boxes_are_placed_as_by_a_look_at_every_box) {
  std::mt19937 random(9);
  const instance problem(random_blocks(random, 4500, 1500), 4, "test");
  ASSERT_TRUE(problem.boxes);
  work_budget budget(never_stop);
  placer p(problem, budget);
  reference simple(problem);
  std::vector<std::uint32_t> placed;
  for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
    const auto index = static_cast<std::uint32_t>(i * 1009ULL % problem.items.size());
    const std::int64_t size = problem.items[index].size;
    const std::int64_t ceiling = i % 3 == 0
                                     ? problem.bound / 16 * 4 * (1 + static_cast<std::int64_t>(random() % 4))
                                     : 4 * problem.bound;
    const std::vector<gap> gaps = simple.gaps_for(index, ceiling - size);
    std::optional<std::int64_t> first, best, last;
    std::int64_t tightest = occupancy::open;
    for (const auto& [low, high] : gaps) {
      if (!first) first = low;
      if (high != occupancy::open && high - low < tightest) {
        tightest = high - low;
        best = low;
      }
      last = std::min(high, ceiling) - size;
    }
    if (!best && !gaps.empty()) best = gaps.back().first;
    ASSERT_EQ(p.gap_for(index, fit::first, ceiling), first);
    ASSERT_EQ(p.gap_for(index, fit::best, ceiling), best);
    ASSERT_EQ(p.highest_gap_for(index, ceiling), last);
    const std::optional<std::int64_t> chosen = i % 2 == 0 ? first : best;
    if (!chosen) continue;
    p.place(index, *chosen);
    simple.offsets()[index] = *chosen;
    placed.push_back(index);
    if (i % 500 == 499) {  // some of those in the middle, not only the last ones
      const std::size_t from = placed.size() / 2, to = from + placed.size() / 8;
      p.remove(placed.data() + from, placed.data() + to);
      for (std::size_t k = from; k < to; ++k)
        simple.offsets()[placed[k]] = -1;
      placed.erase(placed.begin() + static_cast<std::ptrdiff_t>(from),
                   placed.begin() + static_cast<std::ptrdiff_t>(to));
      ASSERT_EQ(p.offsets(), simple.offsets());
    }
  }
}

}  // namespace
}  // namespace stash::planner::placing
