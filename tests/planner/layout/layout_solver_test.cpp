// SPDX-License-Identifier: Apache-2.0
// solve_layout() and check_layout() against exhaustive search and against each other.

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/layout/layout.hpp"
#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_exact.hpp"
#include "planner/layout/layout_instance.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using offsets_t = std::vector<std::int64_t>;

std::int64_t height_of(const layout_problem& p, const offsets_t& offsets) {
  std::int64_t height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::int64_t size = p.blocks[i].size;
    if (size > 0)
      height = std::max(height, offsets[i] + (size + p.alignment - 1) / p.alignment * p.alignment);
  }
  return height;
}

void expect_sound(const layout_problem& p, const layout_solution& s) {
  layout_problem unlimited = p;
  if (s.status != layout_status::fits) unlimited.capacity.reset();
  const auto wrong = check_layout(unlimited, s.offsets);
  EXPECT_TRUE(wrong.empty()) << wrong.front();
  EXPECT_EQ(s.height, height_of(p, s.offsets));
  EXPECT_GE(s.height, s.bound);
  EXPECT_GE(s.bound, peak_of(p).bytes);
  EXPECT_EQ(s.proven_optimal, s.height == s.bound);
}

/// Lowest height over all orders of the blocks that are not fixed, each at the lowest offset that is free.
/// Exact without windows: sorted by offset, the blocks of an optimal layout whose offsets have the least sum
/// lie like that.
std::int64_t optimum_by_orders(const layout_problem& p) {
  std::vector<std::size_t> sequence, fixed;
  for (std::size_t i = 0; i < p.blocks.size(); ++i)
    (p.blocks[i].fixed ? fixed : sequence).push_back(i);
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  do {
    layout_problem placed{{}, p.alignment, {}};
    offsets_t offsets;
    for (const std::size_t i : fixed) {
      placed.blocks.push_back(p.blocks[i]);
      offsets.push_back(*p.blocks[i].fixed);
    }
    for (const std::size_t i : sequence) {
      placed.blocks.push_back(p.blocks[i]);
      offsets.push_back(0);
      while (!check_layout(placed, offsets).empty())
        ++offsets.back();
    }
    lowest = std::min(lowest, height_of(placed, offsets));
  } while (std::next_permutation(sequence.begin(), sequence.end()));
  return lowest;
}

/// Lowest height over all offsets: for three or four small blocks.
std::int64_t optimum_by_offsets(const layout_problem& p, std::int64_t most) {
  offsets_t offsets(p.blocks.size(), 0);
  std::int64_t lowest = most;
  const std::function<void(std::size_t)> choose = [&](std::size_t i) {
    if (i == offsets.size()) {
      if (height_of(p, offsets) < lowest && check_layout(p, offsets).empty()) lowest = height_of(p, offsets);
      return;
    }
    for (offsets[i] = 0; offsets[i] + p.blocks[i].size < lowest; ++offsets[i])
      choose(i + 1);
    offsets[i] = 0;
  };
  choose(0);
  return lowest;
}

class problems {
 public:
  explicit problems(unsigned seed) : random_(seed) {}

  std::int64_t up_to(std::int64_t most) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most + 1));
  }

  layout_block block(std::int64_t steps, std::int64_t largest) {
    layout_block b;
    b.begin = up_to(steps - 1);
    b.end = b.begin + 1 + up_to(steps - 1 - b.begin);
    b.size = up_to(largest);
    return b;
  }

  /// Up to two gaps; windows only on request.
  void add_gaps(layout_block& b, bool windows) {
    std::int64_t from = b.begin;
    for (int i = 0; i < 2 && from < b.end; ++i) {
      layout_gap g;
      g.begin = from + up_to(b.end - 1 - from);
      g.end = g.begin + 1 + up_to(b.end - 1 - g.begin);
      from = g.end;
      if (windows && up_to(2) > 0) {
        g.low = up_to(b.size);
        g.high = g.low + up_to(b.size - g.low);
      }
      if (up_to(1) == 0) b.gaps.insert(b.gaps.begin() + up_to(static_cast<std::int64_t>(b.gaps.size())), g);
    }
  }

  layout_problem problem(std::int64_t blocks, std::int64_t steps, std::int64_t largest) {
    layout_problem p;
    for (std::int64_t i = 0; i < blocks; ++i)
      p.blocks.push_back(block(steps, largest));
    return p;
  }

  /// Fixes some blocks where they do not overlap each other.
  void fix_some(layout_problem& p, std::int64_t highest) {
    layout_problem fixed{{}, p.alignment, {}};
    offsets_t offsets;
    for (layout_block& b : p.blocks) {
      if (up_to(3) > 0) continue;
      const std::int64_t unit = std::lcm(p.alignment, b.alignment);
      fixed.blocks.push_back(b);
      offsets.push_back(up_to(highest) / unit * unit);
      if (check_layout(fixed, offsets).empty()) {
        b.fixed = offsets.back();
      } else {
        fixed.blocks.pop_back();
        offsets.pop_back();
      }
    }
  }

 private:
  std::mt19937_64 random_;
};

TEST(solve_layout, is_optimal_for_tiny_problems) {
  problems make(1);
  for (int round = 0; round < 300; ++round) {
    layout_problem p = make.problem(1 + make.up_to(round % 10 == 0 ? 6 : 5), 2 + make.up_to(7), 9);
    const layout_solution s = solve_layout(p);
    expect_sound(p, s);
    ASSERT_EQ(s.height, optimum_by_orders(p)) << round;
    EXPECT_TRUE(s.proven_optimal) << round;
  }
}

TEST(solve_layout, is_optimal_with_gaps_alignments_and_fixed_blocks) {
  problems make(2);
  int beyond_max_live = 0;
  for (int round = 0; round < 800; ++round) {
    layout_problem p = make.problem(1 + make.up_to(5), 2 + make.up_to(7), 9);
    if (round % 3 == 0) p.alignment = std::int64_t{1} << make.up_to(2);
    for (layout_block& b : p.blocks) {
      if (round % 2 == 0) make.add_gaps(b, false);
      if (make.up_to(2) == 0) b.alignment = 1 + make.up_to(5);
    }
    if (round % 4 != 0) make.fix_some(p, 20);
    const layout_solution s = solve_layout(p);
    expect_sound(p, s);
    ASSERT_EQ(s.height, optimum_by_orders(p)) << round;
    EXPECT_TRUE(s.proven_optimal) << round;
    if (s.height > peak_of(p).bytes) ++beyond_max_live;
  }
  EXPECT_GT(beyond_max_live, 50) << "problems that need a proof";
}

TEST(exact_search, finds_what_there_is_and_proves_what_there_is_not) {
  // On its own: after a portfolio that finds the optimum, nothing shows what the search overlooks.
  problems make(9);
  const std::function<bool()> never;
  for (int round = 0; round < 700; ++round) {
    layout_problem p = make.problem(2 + make.up_to(round % 8 == 0 ? 5 : 4), 2 + make.up_to(6), 5);
    for (layout_block& b : p.blocks) {
      if (round % 3 == 0) make.add_gaps(b, false);
      if (round % 2 == 0 && make.up_to(2) == 0) b.alignment = 1 + make.up_to(3);
    }
    if (round % 5 == 0) make.fix_some(p, 12);
    const placing::instance problem(p.blocks, p.alignment, "test");
    const std::int64_t best = optimum_by_orders(p);
    if (problem.items.empty() || best == problem.idle_top) continue;
    std::vector<std::uint32_t> order(problem.items.size());
    std::iota(order.begin(), order.end(), 0U);
    for (std::size_t k = order.size(); k > 1; --k)
      std::swap(order[k - 1], order[static_cast<std::size_t>(make.up_to(static_cast<std::int64_t>(k) - 1))]);
    placing::work_budget budget(never);
    placing::exact_search search(problem);
    offsets_t offsets;
    constexpr std::int64_t work = 100'000'000;
    for (const placing::exact_rule rule :
         {placing::exact_rule::lowest, placing::exact_rule::fewest, placing::exact_rule::few_and_low}) {
      ASSERT_EQ(search.run(best, order, rule, work, budget, offsets), placing::exact_outcome::found) << round;
      offsets_t by_block(p.blocks.size(), 0);
      for (std::size_t i = 0; i < p.blocks.size(); ++i)
        by_block[i] = p.blocks[i].fixed.value_or(0);
      for (std::size_t i = 0; i < offsets.size(); ++i)
        by_block[problem.items[i].block] = offsets[i];
      EXPECT_TRUE(check_layout(p, by_block).empty()) << round;
      EXPECT_LE(height_of(p, by_block), best) << round;
      ASSERT_EQ(search.run(best - 1, order, rule, work, budget, offsets), placing::exact_outcome::none)
          << round;
    }
  }
}

TEST(solve_layout, is_sound_with_windows) {
  problems make(3);
  int optimal = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    layout_problem p = make.problem(2 + make.up_to(2), 2 + make.up_to(5), 5);
    for (layout_block& b : p.blocks)
      make.add_gaps(b, true);
    layout_limits limits;
    limits.work = 1'000'000;
    const layout_solution s = solve_layout(p, limits);
    expect_sound(p, s);
    const std::int64_t best = optimum_by_offsets(p, s.height);
    ASSERT_LE(s.bound, best) << round;
    if (s.height == best) ++optimal;
  }
  EXPECT_GT(optimal, rounds * 9 / 10);
}

TEST(solve_layout, capacities_are_met_refused_or_proven_impossible) {
  problems make(4);
  int impossible = 0;
  for (int round = 0; round < 300; ++round) {
    layout_problem p = make.problem(5, 6, 9);
    for (layout_block& b : p.blocks) {
      ++b.size;
      b.alignment = 1 + make.up_to(5);
    }
    const std::int64_t best = optimum_by_orders(p);
    p.capacity = best;
    const layout_solution fits = solve_layout(p);
    expect_sound(p, fits);
    EXPECT_EQ(fits.status, layout_status::fits);
    EXPECT_EQ(fits.height, best);
    p.capacity = best - 1;
    const layout_solution refused = solve_layout(p);
    expect_sound(p, refused);
    ASSERT_EQ(refused.status, layout_status::impossible);
    EXPECT_GE(refused.bound, best);
    if (peak_of(p).bytes < best) ++impossible;
  }
  EXPECT_GT(impossible, 3) << "beyond what max-live shows";
}

TEST(solve_layout, larger_random_problems_are_sound) {
  problems make(5);
  for (int round = 0; round < 40; ++round) {
    layout_problem p = make.problem(20 + make.up_to(150), 10 + make.up_to(200), 1 << make.up_to(20));
    for (layout_block& b : p.blocks) {
      if (round % 2 == 0) make.add_gaps(b, round % 4 == 0);
      if (round % 3 == 0) b.alignment = 1 + make.up_to(100);
    }
    if (round % 5 == 0) make.fix_some(p, 1 << 22);
    layout_limits limits;
    limits.work = 3'000'000;
    const layout_solution s = solve_layout(p, limits);
    expect_sound(p, s);
    const layout_solution again = solve_layout(p, limits);
    EXPECT_EQ(s.offsets, again.offsets);
    EXPECT_EQ(s.nodes, again.nodes);
    EXPECT_EQ(s.work, again.work);
    limits.work = 0;
    EXPECT_GE(solve_layout(p, limits).height, s.height);
  }
}

TEST(solve_layout, mended_layouts_are_sound) {
  problems make(11);
  int fitting = 0;
  for (int round = 0; round < 24; ++round) {
    const bool many = round % 4 == 3;
    layout_problem p = make.problem(many ? 1500 : 40 + make.up_to(300), many ? 4000 : 200, 1 << 16);
    for (layout_block& b : p.blocks) {
      b.end = std::min(b.end, b.begin + 1 + make.up_to(60));
      if (round % 3 == 0) make.add_gaps(b, round % 2 == 0);
    }
    if (round % 5 == 0) make.fix_some(p, 1 << 22);
    layout_limits limits;
    limits.work = 2'000'000;
    const layout_solution first = solve_layout(p, limits);
    // Others live at the next time, some are new, and there is a little less capacity.
    p.hint = {first.offsets, first.way};
    for (std::size_t i = 0; i < p.blocks.size(); i += 7) {
      if (p.blocks[i].fixed) continue;
      p.blocks[i].gaps.clear();
      p.blocks[i].end += 1 + make.up_to(5);
      p.hint.offsets[i] = i % 2 == 0 ? -1 : p.hint.offsets[i];
    }
    for (const std::int64_t percent : {50, 98, 110, 300}) {
      p.capacity = first.height * percent / 100;
      const layout_solution mended = solve_layout(p, limits);
      expect_sound(p, mended);
      EXPECT_EQ(solve_layout(p, limits).offsets, mended.offsets);
      fitting += mended.status == layout_status::fits ? 1 : 0;
    }
  }
  EXPECT_GE(fitting, 36) << "half as much capacity again, and more";
}

TEST(solve_layout, thousands_of_blocks_are_sound) {
  problems make(6);
  for (const bool windows : {false, true}) {
    layout_problem p = make.problem(5000, 20000, 1 << 16);
    for (layout_block& b : p.blocks) {
      b.end = std::min(b.end, b.begin + 1 + make.up_to(300));
      if (windows) make.add_gaps(b, true);
    }
    layout_limits limits;
    limits.work = 1'000'000;
    const layout_solution s = solve_layout(p, limits);
    expect_sound(p, s);
    EXPECT_LT(static_cast<double>(s.height), 1.1 * static_cast<double>(s.bound));
  }
}

TEST(solve_layout, cut_rectangles_are_put_together_again) {
  // Two rows of bricks whose joints are shifted: without a gap there are only few ways, and orders miss them.
  layout_problem p;
  problems make(7);
  for (std::int64_t row = 0; row < 6; ++row) {
    for (std::int64_t i = -1; i < 8; ++i) {
      const std::int64_t begin = std::max<std::int64_t>(0, 10 * i + row * 7 % 10);
      const std::int64_t end = std::min<std::int64_t>(80, 10 * (i + 1) + row * 7 % 10);
      if (begin < end) p.blocks.push_back({begin, end, 100 + 17 * row});
    }
  }
  p.capacity = peak_of(p).bytes;
  const layout_solution s = solve_layout(p);
  expect_sound(p, s);
  EXPECT_EQ(s.status, layout_status::fits);
}

TEST(solve_layout, independent_parts_do_not_add_up) {
  layout_problem p{{{0, 2, 5}, {1, 3, 4}, {10, 12, 7}, {10, 11, 1}, {20, 21, 3}}, 1, {}};
  const layout_solution s = solve_layout(p);
  expect_sound(p, s);
  EXPECT_EQ(s.height, 9);
  EXPECT_EQ(s.offsets[4], 0);
}

TEST(solve_layout, edges) {
  const layout_solution none = solve_layout({});
  EXPECT_EQ(none.height, 0);
  EXPECT_TRUE(none.proven_optimal && none.offsets.empty());
  EXPECT_EQ(solve_layout({{}, 1, 0}).status, layout_status::fits);

  const layout_solution one = solve_layout({{{5, 6, 7}}, 1, 7});
  EXPECT_EQ(one.height, 7);
  EXPECT_EQ(one.status, layout_status::fits);
  EXPECT_EQ(solve_layout({{{5, 6, 7}}, 1, 6}).status, layout_status::impossible);

  const layout_solution equal = solve_layout({{{0, 1, 3}, {0, 1, 3}, {0, 1, 3}}, 4, {}});
  EXPECT_EQ(equal.height, 12);

  layout_problem empty_blocks{{{0, 9, 0}, {0, 9, 0}, {3, 4, 8}}, 1, {}};
  empty_blocks.blocks[1].fixed = 2;
  EXPECT_EQ(solve_layout(empty_blocks).offsets, (offsets_t{0, 2, 0}));
  EXPECT_EQ(solve_layout(empty_blocks).height, 8);

  layout_problem never{{{0, 9, 6}, {0, 9, 4}}, 1, {}};
  never.blocks[0].gaps = {{0, 9}};
  const layout_solution idle = solve_layout(never);
  expect_sound(never, idle);
  EXPECT_EQ(idle.height, 6) << "a block that never occupies memory still lies within the height";

  constexpr std::int64_t first = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();
  const layout_solution ages = solve_layout({{{first, last, 1}, {first, 0, 2}, {0, last, 3}}, 1, {}});
  EXPECT_EQ(ages.height, 4);
}

TEST(solve_layout, a_fixed_block_above_a_gap_is_no_obstacle) {
  layout_problem p{{{0, 4, 10}, {0, 2, 6}, {2, 4, 4}, {0, 4, 3}}, 1, {}};
  p.blocks[0].fixed = 6;
  const layout_solution s = solve_layout(p);
  expect_sound(p, s);
  EXPECT_EQ(s.height, 19);
  EXPECT_EQ(s.offsets[1], 0);
}

TEST(solve_layout, stops_with_a_layout_when_asked) {
  problems make(8);
  layout_problem p = make.problem(200, 100, 1000);
  layout_limits limits;
  limits.stop = [] { return true; };
  expect_sound(p, solve_layout(p, limits));
  int questions = 0;
  limits.stop = [&] { return ++questions > 3; };
  expect_sound(p, solve_layout(p, limits));
}

TEST(solve_layout, refuses) {
  const auto message = [](const layout_problem& p, const layout_limits& limits = {}) -> std::string {
    try {
      solve_layout(p, limits);
    } catch (const error& e) {
      return e.code() == errc::invalid_argument ? e.what() : "another code";
    }
    return "nothing";
  };
  const auto block = [](auto change) {
    layout_problem p{{{0, 9, 1}, {0, 9, 8}}, 1, {}};
    change(p.blocks[1]);
    return p;
  };
  using b = layout_block&;
  EXPECT_NE(message(block([](b x) { x.alignment = 0; })).find("blocks[1].alignment"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.fixed = -1; })).find("blocks[1].fixed"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.alignment = 4, x.fixed = 2; })).find("multiple of 4"),
            std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{3, 3}}; })).find("blocks[1].gaps"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{3, 10}}; })).find("blocks[1].gaps"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{-1, 4}}; })).find("blocks[1].gaps"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{1, 4, 0, 9}}; })).find("window"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{1, 4, 3, 2}}; })).find("window"), std::string::npos);
  EXPECT_NE(message(block([](b x) { x.gaps = {{4, 6}, {1, 5}}; })).find("disjoint"), std::string::npos);
  EXPECT_NE(message({{{0, 1, 1}}, 1, -1}).find("capacity"), std::string::npos);
  layout_limits limits;
  limits.work = -1;
  EXPECT_NE(message({}, limits).find("work"), std::string::npos);
  layout_problem clash{{{0, 5, 4}, {7, 9, 4}, {4, 8, 4}}, 1, {}};
  for (layout_block& x : clash.blocks)
    x.fixed = 3;
  EXPECT_NE(message(clash).find("no overlap"), std::string::npos);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const layout_block& huge :
       {layout_block{0, 1, most}, layout_block{0, 1, 1, most}, layout_block{0, 1, 1, 1, most}})
    EXPECT_NE(message({{huge, huge}, 2, {}}), "nothing");
}

TEST(peak_of, says_when_and_who) {
  layout_problem p{{{0, 4, 3}, {2, 6, 4}, {4, 8, 2}, {5, 9, 0}, {5, 6, 1}}, 1, {}};
  EXPECT_EQ(peak_of(p).bytes, 7);
  EXPECT_EQ(peak_of(p).time, 2);
  EXPECT_EQ(peak_of(p).blocks, (std::vector<std::size_t>{0, 1}));
  p.blocks[1].gaps = {{2, 4, 1, 2}};
  EXPECT_EQ(peak_of(p).bytes, 7);
  EXPECT_EQ(peak_of(p).time, 5);
  EXPECT_EQ(peak_of(p).blocks, (std::vector<std::size_t>{1, 2, 4}));
  EXPECT_EQ(peak_of({}).bytes, 0);
}

TEST(check_layout, finds_every_fault) {
  layout_problem p{{{0, 4, 6}, {2, 6, 4}, {4, 8, 5}}, 2, 12};
  p.blocks[2].alignment = 3;
  const offsets_t good{0, 6, 0};
  EXPECT_TRUE(check_layout(p, good).empty());
  const auto says = [&](const offsets_t& offsets, const std::string& what) {
    const auto found = check_layout(p, offsets);
    return !found.empty() && found.front().find(what) != std::string::npos;
  };
  EXPECT_TRUE(says({0, 6}, "2 offsets for 3 blocks"));
  EXPECT_TRUE(says({-2, 6, 0}, "out of range"));
  EXPECT_TRUE(says({0, 7, 0}, "not a multiple"));
  EXPECT_TRUE(says({0, 6, 2}, "not a multiple of 2 and 3"));
  EXPECT_TRUE(says({0, 10, 0}, "passes the capacity"));
  EXPECT_TRUE(says({0, 4, 0}, "blocks 0 and 1 overlap at time 2"));
  EXPECT_TRUE(says({0, 6, 6}, "blocks 1 and 2 overlap at time 4"));
  p.blocks[0].fixed = 2;
  EXPECT_TRUE(says(good, "fixed at 2"));
  p.blocks[0].fixed = 0;
  // Sizes are rounded up to the alignment: [0, 6) against [4, 8).
  p.blocks[2] = {3, 8, 5};
  EXPECT_TRUE(says({0, 8, 4}, "blocks 0 and 2 overlap at time 3"));
  p.blocks[0].gaps = {{3, 4}};
  EXPECT_TRUE(check_layout(p, offsets_t{0, 8, 0}).empty());
  p.blocks[0].gaps = {{3, 4, 0, 1}};
  EXPECT_TRUE(says({0, 8, 0}, "blocks 0 and 2 overlap at time 3"));
  EXPECT_TRUE(check_layout(p, offsets_t{0, 8, 2}).empty());
}

}  // namespace
}  // namespace stash::planner
