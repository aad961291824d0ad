// SPDX-License-Identifier: Apache-2.0
// Generated problems: rectangles that were cut, and steps of large models. What decides is work, never time.

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/cases/layout_cases.hpp"
#include "planner/layout/layout.hpp"
#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_exact.hpp"
#include "planner/layout/layout_instance.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {
namespace {

using bench::cut_rectangle;
using bench::cut_settings;
using bench::model_step;
using bench::step_settings;

enum class gap { first, best };

/// The simple members of the portfolio from their definition: blocks one after the other, each in the lowest
/// or the tightest gap between those that it meets in time.
class one_by_one {
 public:
  explicit one_by_one(const std::vector<layout_block>& blocks) : blocks_(blocks), met_(blocks.size()) {
    std::vector<std::size_t> by_begin(blocks.size());
    std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
    std::stable_sort(by_begin.begin(), by_begin.end(),
                     [&](std::size_t a, std::size_t b) { return blocks[a].begin < blocks[b].begin; });
    for (std::size_t i = 0; i < by_begin.size(); ++i) {
      for (std::size_t j = i + 1; j < by_begin.size(); ++j) {
        if (blocks[by_begin[j]].begin >= blocks[by_begin[i]].end) break;
        met_[by_begin[i]].push_back(static_cast<std::uint32_t>(by_begin[j]));
        met_[by_begin[j]].push_back(static_cast<std::uint32_t>(by_begin[i]));
      }
    }
  }

  std::int64_t height(const std::vector<std::size_t>& order, gap how) const {
    std::vector<std::int64_t> offsets(blocks_.size(), -1);
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    std::int64_t height = 0;
    for (const std::size_t i : order) {
      taken.clear();
      for (const std::uint32_t other : met_[i]) {
        if (offsets[other] >= 0) taken.emplace_back(offsets[other], offsets[other] + blocks_[other].size);
      }
      std::sort(taken.begin(), taken.end());
      std::int64_t floor = 0, tightest = std::numeric_limits<std::int64_t>::max(), chosen = -1;
      for (const auto& [low, high] : taken) {
        const std::int64_t free = low - floor;
        if (free >= blocks_[i].size && free < tightest && (how == gap::best || chosen < 0)) {
          tightest = free;
          chosen = floor;
        }
        floor = std::max(floor, high);
      }
      offsets[i] = chosen < 0 ? floor : chosen;
      height = std::max(height, offsets[i] + blocks_[i].size);
    }
    return height;
  }

 private:
  const std::vector<layout_block>& blocks_;
  std::vector<std::vector<std::uint32_t>> met_;  ///< per block, those alive at the same time
};

/// By size, area, lifetime, begin and end; equals in the order of the blocks.
std::vector<std::vector<std::size_t>> simple_orders(const std::vector<layout_block>& blocks) {
  std::vector<std::vector<std::size_t>> orders;
  const auto add = [&](auto value) {
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return value(blocks[a]) > value(blocks[b]); });
    orders.push_back(std::move(order));
  };
  add([](const layout_block& b) { return b.size; });
  add([](const layout_block& b) { return b.size * (b.end - b.begin); });
  add([](const layout_block& b) { return b.end - b.begin; });
  add([](const layout_block& b) { return -b.begin; });
  add([](const layout_block& b) { return b.end; });
  return orders;
}

std::int64_t lowest_simple_member(const std::vector<layout_block>& blocks) {
  const one_by_one members(blocks);
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::size_t>& order : simple_orders(blocks)) {
    for (const gap how : {gap::first, gap::best})
      lowest = std::min(lowest, members.height(order, how));
  }
  return lowest;
}

layout_solution solved(const layout_problem& problem, std::int64_t work) {
  layout_limits limits;
  limits.work = work;
  layout_solution s = solve_layout(problem, limits);
  layout_problem unlimited = problem;
  if (s.status != layout_status::fits) unlimited.capacity.reset();
  const auto wrong = check_layout(unlimited, s.offsets);
  EXPECT_TRUE(wrong.empty()) << wrong.front();
  return s;
}

TEST(layout_generated, the_portfolio_is_no_higher_than_its_simple_members) {
  // 1,600 blocks: the simple orders follow the first round of the search. 4,500: they come first, and one of
  // them is lower than all others.
  for (const step_settings& s : {step_settings{4, 4, 400, 0.3}, step_settings{25, 18, 240, 0},
                                 step_settings{8, 18, 240, 0.05}, step_settings{27, 18, 240, 0.05}}) {
    const std::vector<layout_block> blocks = model_step(s);
    const layout_solution found = solved({blocks, 1, {}}, blocks.size() > 4096 ? 0 : 100'000'000);
    EXPECT_LE(found.height, lowest_simple_member(blocks)) << blocks.size() << " blocks, odd " << s.odd;
  }
}

TEST(layout_generated, twenty_thousand_blocks_end_close_to_max_live) {
  const layout_problem problem{model_step(bench::step_number(6)), 1, {}};
  ASSERT_GT(problem.blocks.size(), 18'000U);
  const layout_solution quick = solved(problem, 0), good = solved(problem, 800'000'000);
  const std::vector<std::size_t> by_size = simple_orders(problem.blocks).front();
  EXPECT_LE(quick.height, one_by_one(problem.blocks).height(by_size, gap::first));
  EXPECT_LT(good.height, quick.height);
  EXPECT_LE(static_cast<double>(good.height), 1.003 * static_cast<double>(good.bound));
}

TEST(layout_generated, full_rectangles_are_put_together_again) {
  for (const std::int64_t number : {0, 21, 45, 75, 99}) {
    const cut_settings s = bench::cut_number(number);
    const layout_problem problem{cut_rectangle(s), 1, s.capacity};
    ASSERT_EQ(max_live(problem.blocks, 1), s.capacity) << number;
    EXPECT_EQ(solved(problem, 1'000'000'000).status, layout_status::fits) << number;
  }
}

TEST(layout_generated, rectangles_with_holes_are_put_together_again) {
  for (const std::int64_t number : {19, 34, 41, 68, 85}) {
    const cut_settings s = bench::cut_number(number);
    EXPECT_EQ(solved({cut_rectangle(s), 1, s.capacity}, 2'000'000'000).status, layout_status::fits) << number;
  }
}

TEST(exact_search, never_proves_that_there_is_not_what_there_is) {
  const std::function<bool()> never;
  int found = 0;
  const auto seeds = static_cast<std::int64_t>(stash_test::cases(400));
  for (std::int64_t seed = 1; seed <= seeds; ++seed) {
    cut_settings s{static_cast<std::uint64_t>(seed), 10 + seed % 50, 3 + seed % 11};
    s.holes = static_cast<double>(seed % 4) * 0.1;
    s.capacity = 64 * s.grain;
    s.moments = 200;
    const std::vector<layout_block> blocks = cut_rectangle(s);
    const placing::instance problem(blocks, 1, "test");
    std::vector<std::uint32_t> order(problem.items.size());
    std::iota(order.begin(), order.end(), 0U);
    placing::exact_search search(problem);
    for (const placing::exact_rule rule :
         {placing::exact_rule::lowest, placing::exact_rule::fewest, placing::exact_rule::few_and_low}) {
      placing::work_budget budget(never);
      std::vector<std::int64_t> offsets;
      const auto outcome = search.run(s.capacity, order, rule, 3'000'000, budget, offsets);
      ASSERT_NE(outcome, placing::exact_outcome::none) << seed;
      found += outcome == placing::exact_outcome::found ? 1 : 0;
    }
  }
  EXPECT_GT(found, 3 * seeds * 9 / 10);
}

TEST(layout_generated, one_byte_less_than_a_full_rectangle_is_impossible) {
  const cut_settings s = bench::cut_number(3);
  EXPECT_EQ(solved({cut_rectangle(s), 1, s.capacity - 1}, 1'000'000).status, layout_status::impossible);
}

TEST(layout_generated, a_stop_at_any_time_leaves_a_valid_layout) {
  const layout_problem problems[] = {{model_step({5, 10, 500, 0.1}), 1, {}},
                                     {cut_rectangle(bench::cut_number(50)), 1, std::int64_t{1} << 20}};
  for (const layout_problem& problem : problems) {
    for (int most = 0; most < 200; most = most * 2 + 1) {
      int questions = 0;
      layout_limits limits;
      limits.stop = [&] { return ++questions > most; };
      const layout_solution s = solve_layout(problem, limits);
      layout_problem unlimited = problem;
      unlimited.capacity.reset();
      EXPECT_TRUE(check_layout(unlimited, s.offsets).empty()) << most;
    }
  }
}

TEST(layout_generated, more_work_is_never_worse) {
  const layout_problem problem{model_step({3, 6, 300, 0.2}), 1, {}};
  std::int64_t height = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t work : {0, 1'000'000, 30'000'000, 60'000'000, 200'000'000, 500'000'000}) {
    const layout_solution s = solved(problem, work);
    EXPECT_LE(s.height, height) << work;
    EXPECT_EQ(solve_layout(problem, {work, {}}).offsets, s.offsets) << work;
    height = s.height;
  }
}

TEST(layout_generated, cases_are_the_same_everywhere) {
  const cut_settings s = bench::cut_number(1);
  const std::vector<layout_block> blocks = cut_rectangle(s);
  EXPECT_EQ(blocks.size(), static_cast<std::size_t>(s.blocks));
  EXPECT_EQ(blocks, cut_rectangle(s));
  for (const layout_block& b : blocks)
    EXPECT_EQ(b.size % s.grain, 0);
  cut_settings other = s;
  ++other.seed;
  EXPECT_NE(blocks, cut_rectangle(other));
  EXPECT_EQ(cut_rectangle({1, 1, 1}).size(), 1U);
}

TEST(layout_generated, refuses) {
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const error& e) {
      return e.code() == errc::invalid_argument ? e.what() : "another code";
    }
    return "nothing";
  };
  const auto cut = [&](auto change) {
    cut_settings s;
    change(s);
    return message([&] { cut_rectangle(s); });
  };
  EXPECT_EQ(cut([](cut_settings& s) { s.blocks = 0; }).find("cut_rectangle: blocks"), 0U);
  EXPECT_EQ(cut([](cut_settings& s) { s.live = 0; }).find("cut_rectangle: live"), 0U);
  EXPECT_EQ(cut([](cut_settings& s) { s.holes = 1; }).find("cut_rectangle: holes"), 0U);
  EXPECT_EQ(cut([](cut_settings& s) { s.moments = 0; }).find("cut_rectangle: moments"), 0U);
  EXPECT_EQ(cut([](cut_settings& s) { s.grain = 3; }).find("cut_rectangle: grain"), 0U);
  EXPECT_EQ(cut([](cut_settings& s) { s.moments = 2, s.live = 1; }).find("cut_rectangle: blocks"), 0U);
  EXPECT_EQ(message([] { model_step({1, 0}); }).find("model_step: layers"), 0U);
  EXPECT_EQ(message([] { model_step({1, 1, 19}); }).find("model_step: blocks_per_layer"), 0U);
  EXPECT_EQ(message([] { model_step({1, 1, 20, 1.5}); }).find("model_step: odd"), 0U);
}

}  // namespace
}  // namespace stash::planner
