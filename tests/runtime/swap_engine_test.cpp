// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "runtime/swap/swap_orders.hpp"
#include "stash/error.hpp"
#include "swap_toys.hpp"

namespace stash::runtime {
namespace {

using ::testing::HasSubstr;
using testing::random_step;
using testing::toy;

struct outcome {
  std::uint64_t result = 0;
  std::size_t violations = 0;
};

/// One run of the toy under a schedule over poisoned memory, with edges left out.
outcome run(toy& t, swap_schedule& schedule, std::vector<swap_edge> without = {}) {
  swap_settings s;
  s.schedule = &schedule;
  s.poison = true;
  s.chunk_bytes = 48;
  s.without = std::move(without);
  swap_engine engine(t.program, t.memory(), s);
  return {t.result_of(engine), schedule.violations.size()};
}

std::uint64_t right_result(toy& t) {
  list_order order;
  const outcome o = run(t, order);
  EXPECT_EQ(o.violations, 0U);
  return o.result;
}

TEST(swap_engine, a_map_goes_and_comes_back) {
  toy t;
  const std::int32_t map = t.take(swap_side::device, 100), host = t.take(swap_side::host, 100);
  t.compute({{map, true}});
  t.copy(swap_lane::out, map, host);
  t.give(map);
  const std::int32_t other = t.take(swap_side::device, 60);
  t.compute({{other, true}});
  t.give(other);
  const std::int32_t again = t.take(swap_side::device, 100);
  t.copy(swap_lane::in, host, again);
  t.compute({{again, false}});
  EXPECT_EQ(t.device_bytes(), 100);
  // The copy waits for the map, the other op for the copy, the copy back for it, the last op for that.
  t.program.edges = order_edges(t.program);
  EXPECT_EQ(t.program.edges, (std::vector<swap_edge>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  const std::uint64_t right = right_result(t);
  swap_engine engine(t.program, t.memory());
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(t.result_of(engine), right);
  EXPECT_EQ(engine.copied_bytes(), 200);
  EXPECT_LE(engine.times()[1].end, engine.times()[2].begin);
}

TEST(swap_engine, no_order_that_the_edges_allow_changes_a_bit) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    toy t = random_step(seed, 4 + static_cast<int>(seed % 9));
    const std::uint64_t right = right_result(t);
    for (std::size_t task = 0; task < t.program.tasks.size(); ++task) {
      laggard_order order(static_cast<std::int32_t>(task));
      const outcome o = run(t, order);
      EXPECT_EQ(o.result, right) << seed << " laggard " << task;
      EXPECT_EQ(o.violations, 0U);
    }
    for (std::uint64_t i = 0; i < 20; ++i) {
      random_order order(i);
      EXPECT_EQ(run(t, order).result, right) << seed << " random " << i;
      EXPECT_TRUE(order.violations.empty());
    }
  }
}

TEST(swap_engine, every_order_of_small_steps) {
  int complete = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    toy t = random_step(seed, 4, 0.6, 60);
    const std::uint64_t right = right_result(t);
    every_order order;
    int runs = 0;
    bool more = true;
    for (; more && runs < 4000; ++runs) {
      ASSERT_EQ(run(t, order).result, right) << seed << " run " << runs;
      more = order.next();
    }
    EXPECT_TRUE(order.violations.empty());
    complete += more ? 0 : 1;
  }
  EXPECT_GE(complete, 6);  // of the others the first 4000 orders
}

/// What catches an edge that is missing: the check of conflicts, an order with a violation, wrong bytes.
void expect_caught(toy& t, const swap_edge& e, std::uint64_t right) {
  swap_program less = t.program;
  std::erase(less.edges, e);
  EXPECT_FALSE(find_races(less).empty()) << e.before << " " << e.after;
  EXPECT_THROW(swap_engine(less, t.memory()), error);
  laggard_order order(e.before);
  const outcome o = run(t, order, {e});
  EXPECT_GT(o.violations, 0U) << e.before << " " << e.after;
  EXPECT_NE(o.result, right) << e.before << " " << e.after;
}

TEST(swap_engine, every_edge_is_missed) {
  int edges = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    toy t = random_step(seed, 3 + static_cast<int>(seed % 7));
    const std::uint64_t right = right_result(t);
    for (const swap_edge& e : t.program.edges) {
      SCOPED_TRACE(seed);
      expect_caught(t, e, right);
      ++edges;
    }
  }
  EXPECT_GE(edges, 200);
}

TEST(swap_engine, a_thousand_edges_of_long_steps_are_missed) {
  std::mt19937_64 random(7);
  int edges = 0;
  for (std::uint64_t seed = 0; edges < 1000; ++seed) {
    toy t = random_step(1000 + seed, 60, 0.7, 40);
    const std::uint64_t right = right_result(t);
    for (int i = 0; i < 50 && edges < 1000; ++i, ++edges)
      expect_caught(t, t.program.edges[random() % t.program.edges.size()], right);
  }
}

TEST(swap_engine, threads_give_the_same_bits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    toy t = random_step(seed, 12, 0.7, 3000);
    const std::uint64_t right = right_result(t);
    swap_settings s;
    s.poison = seed % 2 == 0;
    s.chunk_bytes = 100;
    swap_engine engine(t.program, t.memory(), s);
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(t.result_of(engine), right) << seed;
  }
}

TEST(swap_engine, every_copy_signal_and_wait_fails_in_turn) {
  toy t = random_step(5, 6);
  const std::uint64_t right = right_result(t);
  std::vector<std::pair<swap_action, std::int32_t>> asked;
  for (const bool threads : {false, true}) {
    int n = 0;
    for (bool failed = true; failed; ++n) {
      list_order order;
      swap_settings s;
      s.chunk_bytes = 64;
      if (!threads) s.schedule = &order;
      std::mutex mutex;
      int left = n;
      bool armed = true;
      s.before = [&](swap_action action, std::int32_t task) {
        const std::lock_guard lock(mutex);
        if (!threads && n == 0 && !armed) asked.emplace_back(action, task);
        if (armed && left-- == 0) throw error(errc::device_failure, "expected a link, got none");
      };
      swap_engine engine(t.program, t.memory(), s);
      failed = false;
      try {
        t.result_of(engine);
      } catch (const error& e) {
        failed = true;
        EXPECT_EQ(e.code(), errc::device_failure);
        EXPECT_THAT(e.what(), HasSubstr("swap engine: "));
        EXPECT_THAT(e.what(), HasSubstr("expected a link, got none"));
      }
      armed = false;
      EXPECT_EQ(t.result_of(engine), right) << n;
    }
    EXPECT_GT(n, 30);
  }
  for (const swap_action a : {swap_action::copy, swap_action::signal, swap_action::wait}) {
    EXPECT_TRUE(std::ranges::any_of(asked, [&](const auto& x) { return x.first == a; })) << to_string(a);
  }
}

TEST(swap_engine, computation_can_end_a_run) {
  toy t = random_step(6, 8);
  const std::uint64_t right = right_result(t);
  swap_engine engine(t.program, t.memory());
  for (std::int32_t last = 0; last < static_cast<std::int32_t>(t.program.tasks.size()); ++last) {
    if (t.program.tasks[static_cast<std::size_t>(last)].lane != swap_lane::compute) continue;
    EXPECT_FALSE(engine.run([&](std::int32_t task) { return task != last && t.run(task); }));
    EXPECT_EQ(t.result_of(engine), right);
    const auto throwing = [&](std::int32_t task) {
      if (task == last) throw std::runtime_error("of the caller");
      return t.run(task);
    };
    EXPECT_THROW(engine.run(throwing), std::runtime_error);
    EXPECT_EQ(t.result_of(engine), right);
  }
}

TEST(swap_engine, copies_move_what_a_block_holds) {
  toy t;
  const std::int32_t map = t.take(swap_side::device, 1000), host = t.take(swap_side::host, 1000);
  t.compute({{map, true}});
  t.copy(swap_lane::out, map, host);
  std::uint64_t used = 0;
  t.program.tasks[1].used = &used;
  t.program.edges = order_edges(t.program);
  swap_settings s;
  s.chunk_bytes = 64;
  swap_engine engine(t.program, t.memory(), s);
  for (const std::uint64_t bytes : {0U, 1U, 63U, 64U, 65U, 999U, 1000U, 5000U}) {
    t.result_of(engine);
    engine.run([&](std::int32_t task) {
      used = bytes;
      return t.run(task);
    });
    EXPECT_EQ(engine.copied_bytes(), std::min<std::int64_t>(static_cast<std::int64_t>(bytes), 1000));
  }
}

TEST(swap_engine, steps_without_copies) {
  toy t;
  const std::int32_t map = t.take(swap_side::device, 8);
  t.compute({{map, true}});
  t.compute({{map, false}});
  swap_engine engine(t.program, t.memory());
  EXPECT_TRUE(engine.run([&](std::int32_t task) { return t.run(task); }));
  swap_engine nothing({}, {});
  EXPECT_TRUE(nothing.run([](std::int32_t) { return false; }));
}

std::string refusal(const swap_program& p, const swap_settings& s = {}) {
  try {
    swap_engine engine(p, {}, s);
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

TEST(swap_engine, wrong_programs_are_refused) {
  swap_program p;
  p.blocks = {{swap_side::device, 0, 10}, {swap_side::host, 0, 20}};
  p.tasks = {{swap_lane::out, {{0, false}, {1, true}}, 10, nullptr, "there"}};
  EXPECT_EQ(refusal(p), "");
  const auto changed = [&](auto change) {
    swap_program q = p;
    change(q);
    return refusal(q);
  };
  EXPECT_THAT(changed([](swap_program& q) { q.tasks[0].accesses[1].block = 2; }), HasSubstr("there"));
  EXPECT_THAT(changed([](swap_program& q) { q.tasks[0].accesses.pop_back(); }), HasSubstr("1 accesses"));
  EXPECT_THAT(changed([](swap_program& q) { q.tasks[0].lane = swap_lane::in; }), HasSubstr("direction"));
  EXPECT_THAT(changed([](swap_program& q) { q.tasks[0].bytes = 11; }), HasSubstr("1..10 bytes, got 11"));
  EXPECT_THAT(changed([](swap_program& q) { q.blocks[0].bytes = 0; }), HasSubstr("got 0 at 0"));
  EXPECT_THAT(changed([](swap_program& q) { q.edges = {{0, 0}}; }), HasSubstr("from 0 to 0"));
  EXPECT_THAT(refusal(p, {.chunk_bytes = 0}), HasSubstr("chunk_bytes"));
}

}  // namespace
}  // namespace stash::runtime
