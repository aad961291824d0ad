// SPDX-License-Identifier: Apache-2.0
// What the search believes of memory is what the schedule makes of it, op by op.

#include <gtest/gtest.h>

#include <random>

#include "planner/search/fast_problems.hpp"

namespace stash::planner::testing {
namespace {

id_vector<tick_number, std::int64_t> held_per_tick(const problem& p, const option_choice& choice,
                                                   bool passing) {
  id_vector<tick_number, std::int64_t> held = p.fixed_bytes;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    for (const held_bytes& h : p.items[i].options[static_cast<std::size_t>(choice[i])].held) {
      if (h.passing && !passing) continue;
      for (std::int32_t t = h.first; t <= h.last; ++t)
        held[static_cast<std::size_t>(t)] += h.bytes;
    }
  }
  return held;
}

option_choice random_choice(const step_problem& p, std::mt19937_64& random, bool stay) {
  option_choice c;
  for (const item& i : p.items) {
    std::vector<std::int32_t> fitting;
    for (std::size_t o = 0; o < i.options.size(); ++o) {
      if (!stay || i.options[o].transfers.empty()) fitting.push_back(static_cast<std::int32_t>(o));
    }
    c.push_back(fitting[random() % fitting.size()]);
  }
  return c;
}

TEST(items, memory_is_the_schedules) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const policy chosen = seed % 3 == 0 ? policy::lossless : seed % 3 == 1 ? policy::fp8 : policy::none;
    const small_problem s = make_small_problem(random_graph(seed), chosen, false, small_machine());
    std::mt19937_64 random(seed);
    for (int n = 0; n < 4; ++n) {
      const option_choice choice = random_choice(s.steps, random, true);
      plan_options o;
      o.overflow_share = 0.0;
      const schedule made = scheduler(s.g).build(selection_of(s, choice), o);
      const id_vector<step_number, std::int64_t> live = live_bytes(made);
      const id_vector<tick_number, std::int64_t> believed = held_per_tick(s.ticks, choice, true);
      op_id last = no_id;
      for (std::size_t i = 0; i < made.steps.size(); ++i) {
        if (made.steps[i].kind == step_kind::run) {
          last = made.steps[i].op;
          ASSERT_EQ(live[i], believed[tick_of(last)])
              << "seed " << seed << ", while " << s.g.op_at(last).name << " runs";
        } else if (last.valid()) {
          // Codecs between two ops run one after the other; the search counts them all at once.
          ASSERT_LE(live[i], believed[tick_of(last) + 1])
              << "seed " << seed << ", after " << s.g.op_at(last).name;
        }
      }
    }
  }
}

TEST(items, steps_hold_what_ticks_hold) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine());
    std::mt19937_64 random(seed);
    const option_choice choice = random_choice(s.steps, random, false);
    const id_vector<tick_number, std::int64_t> ticks = held_per_tick(s.ticks, choice, true);
    id_vector<joined_step, std::int64_t> steps = s.steps.fixed;
    double ms = 0.0, tick_ms = 0.0;
    for (std::size_t i = 0; i < choice.size(); ++i) {
      for (const held_bytes& h : s.steps.items[i].options[static_cast<std::size_t>(choice[i])].held) {
        for (std::int32_t k = h.first; k <= h.last; ++k)
          steps[static_cast<std::size_t>(k)] += h.bytes;
      }
    }
    for (std::size_t k = 0; k < steps.size(); ++k) {
      ms += s.steps.ms[k];
      if (s.steps.first_tick[k] == s.steps.first_tick[k + 1]) {  // a wait
        ASSERT_EQ(s.steps.ms[k], 0.0);
        continue;
      }
      std::int64_t most = 0;
      for (std::int32_t t = s.steps.first_tick[k]; t < s.steps.first_tick[k + 1]; ++t)
        most = std::max(most, ticks[static_cast<std::size_t>(t)]);
      ASSERT_EQ(steps[k], most) << "seed " << seed << ", step " << k;
    }
    for (const double t : s.ticks.tick_ms)
      tick_ms += t;
    ASSERT_NEAR(ms, tick_ms, 1e-9 * tick_ms);
  }
}

TEST(items, a_swapped_form_is_the_kept_one_with_a_hole) {
  int swapped = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const small_problem s = make_small_problem(random_graph(seed), policy::lossless, true, small_machine());
    for (const item& i : s.ticks.items) {
      for (const item_option& o : i.options) {
        if (o.swapped == 0) continue;
        ++swapped;
        const item_option* stays = nullptr;
        for (const item_option& other : i.options) {
          if (other.configuration == o.configuration && other.swapped == 0) stays = &other;
        }
        ASSERT_NE(stays, nullptr);
        std::vector<std::int64_t> with(s.ticks.tick_ms.size(), 0), without = with;
        for (const held_bytes& h : stays->held) {
          for (std::int32_t t = h.first; t <= h.last; ++t)
            without[static_cast<std::size_t>(t)] += h.bytes;
        }
        for (const held_bytes& h : o.held) {
          for (std::int32_t t = h.first; t <= h.last; ++t)
            with[static_cast<std::size_t>(t)] += h.bytes;
        }
        for (const transfer& t : o.transfers) {
          ASSERT_LT(t.released, t.needed);
          for (std::int32_t k = t.released + 1; k < t.needed; ++k)
            with[static_cast<std::size_t>(k)] += t.bytes;
        }
        ASSERT_EQ(with, without) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(swapped, 100);
}

}  // namespace
}  // namespace stash::planner::testing
