// SPDX-License-Identifier: Apache-2.0
// The emulator finds what it promises to find. Kernels here are deliberately small, and most of them wrong.

#include "simt/simt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace {

#define HERE           \
  simt::location {     \
    __FILE__, __LINE__ \
  }

constexpr std::uint32_t all = 0xffffffffU;

std::vector<simt::schedule> schedules() {
  return {{simt::order::forward, 1, 1},
          {simt::order::reverse, 1, 1},
          {simt::order::random, 1, 1},
          {simt::order::random, 2, 3},
          {simt::order::random, 3, 7}};
}

template <class Kernel>
void on_every_schedule(simt::dim3 grid, simt::dim3 block, const Kernel& kernel) {
  for (const simt::schedule& s : schedules()) {
    simt::set_schedule(s);
    kernel(grid, block);
  }
  simt::set_schedule({});
}

/// The text of the violation that a launch ends with, or "".
std::string violation_of(simt::dim3 block, const std::function<void()>& kernel) {
  try {
    simt::launch({2}, block, 0, kernel);
  } catch (const simt::violation& v) {
    return v.what();
  }
  return "";
}

std::uint32_t rank() {
  return simt::thread_index().x;
}

/// Reverses 256 numbers of each block through shared memory.
std::vector<int> reversed(bool with_barrier) {
  std::vector<int> out(3 * 256);
  simt::launch({3}, {256}, 0, [&] {
    auto* shared = static_cast<int*>(simt::static_shared(256 * sizeof(int), alignof(int), HERE));
    shared[rank()] = static_cast<int>(rank());
    if (with_barrier) simt::sync_block(HERE);
    out[simt::block_index().x * 256 + rank()] = shared[255 - rank()];
  });
  return out;
}

TEST(simt, barriers_order_shared_memory) {
  on_every_schedule({3}, {256}, [](auto, auto) {
    const std::vector<int> out = reversed(true);
    for (int i = 0; i < 3 * 256; ++i)
      ASSERT_EQ(out[static_cast<std::size_t>(i)], 255 - i % 256);
  });
}

TEST(simt, a_removed_barrier_shows_in_every_order) {
  on_every_schedule({3}, {256}, [](auto, auto) {
    const std::vector<int> out = reversed(false);
    int wrong = 0;
    for (int i = 0; i < 3 * 256; ++i)
      wrong += out[static_cast<std::size_t>(i)] != 255 - i % 256 ? 1 : 0;
    EXPECT_GT(wrong, 100);
  });
}

TEST(simt, a_missing_sync_warp_after_a_shared_write_shows) {
  for (const bool with_sync : {true, false}) {
    int wrong_orders = 0;
    for (const simt::schedule& s : schedules()) {
      simt::set_schedule(s);
      std::vector<int> out(64);
      simt::launch({1}, {64}, 0, [&] {
        auto* shared = static_cast<int*>(simt::static_shared(64 * sizeof(int), alignof(int), HERE));
        shared[rank()] = static_cast<int>(rank());
        if (with_sync) simt::sync_warp(all, HERE);
        out[rank()] = shared[rank() ^ 1U];
      });
      for (std::uint32_t i = 0; i < 64; ++i) {
        if (out[i] != static_cast<int>(i ^ 1U)) {
          ++wrong_orders;
          break;
        }
      }
    }
    EXPECT_EQ(wrong_orders, with_sync ? 0 : static_cast<int>(schedules().size()));
  }
  simt::set_schedule({});
}

TEST(simt, shared_memory_is_poisoned_in_every_block) {
  std::vector<int> seen;
  simt::launch({2}, {1}, 8, [&] {
    auto* fixed = static_cast<int*>(simt::static_shared(sizeof(int), alignof(int), HERE));
    auto* dynamic = static_cast<int*>(simt::dynamic_shared());
    seen.push_back(*fixed);
    seen.push_back(dynamic[1]);
    *fixed = dynamic[1] = 0;
  });
  EXPECT_EQ(seen, std::vector<int>(4, static_cast<int>(0xa5a5a5a5U)));
}

TEST(simt, ballots_and_exchanges_in_every_order) {
  on_every_schedule({2}, {96}, [](simt::dim3 grid, simt::dim3 block) {
    std::vector<std::uint32_t> bits(192), neighbours(192), part(192);
    simt::launch(grid, block, 0, [&] {
      const std::uint32_t at = simt::block_index().x * 96 + rank();
      const std::uint32_t lane = rank() % 32;
      bits[at] = simt::ballot(all, lane % 3 == 0, HERE);
      neighbours[at] = static_cast<std::uint32_t>(simt::exchange(all, at, lane - 1, "shuffle_up", HERE));
      part[at] = lane < 7 ? simt::ballot(0x7f, lane > 2, HERE) : 0;
    });
    for (std::uint32_t i = 0; i < 192; ++i) {
      ASSERT_EQ(bits[i], 0x49249249U);
      ASSERT_EQ(neighbours[i], i % 32 == 0 ? i : i - 1);
      ASSERT_EQ(part[i], i % 32 < 7 ? 0x78U : 0U);
    }
  });
}

TEST(simt, a_barrier_that_not_all_reach) {
  on_every_schedule({}, {}, [](auto, auto) {
    const std::string ended = violation_of({64}, [] {
      if (rank() < 40) simt::sync_block(HERE);
    });
    EXPECT_NE(ended.find("24 threads of the block have ended"), std::string::npos) << ended;
    const std::string elsewhere = violation_of({64}, [] {
      if (rank() == 3) {
        simt::sync_block(HERE);
      } else {
        simt::sync_block(HERE);
      }
    });
    EXPECT_NE(elsewhere.find("waits at a barrier at"), std::string::npos) << elsewhere;
  });
}

TEST(simt, a_lane_outside_its_mask) {
  const std::string found = violation_of({32}, [] { simt::ballot(0xffff, true, HERE); });
  EXPECT_NE(found.find("lane 16 is not in its own mask"), std::string::npos) << found;
  EXPECT_NE(found.find("simt_test.cpp:"), std::string::npos) << found;
}

TEST(simt, a_warp_operation_whose_lanes_do_not_meet) {
  on_every_schedule({}, {}, [](auto, auto) {
    const std::string ended = violation_of({32}, [] {
      if (rank() != 5) simt::sync_warp(all, HERE);
    });
    EXPECT_NE(ended.find("names lane 5, which has ended"), std::string::npos) << ended;
    const std::string missing = violation_of({16}, [] { simt::sync_warp(all, HERE); });
    EXPECT_NE(missing.find("names lane 16, which does not exist"), std::string::npos) << missing;
    const std::string elsewhere = violation_of({32}, [] {
      if (rank() < 4) {
        simt::ballot(all, true, HERE);
      } else {
        simt::sync_block(HERE);
      }
    });
    EXPECT_NE(elsewhere.find("waits"), std::string::npos) << elsewhere;
    const std::string outside = violation_of({32}, [] {
      if (rank() < 8) simt::exchange(0xff, 1, 9, "shuffle", HERE);
    });
    EXPECT_NE(outside.find("reads lane 9, which is not in the mask"), std::string::npos) << outside;
  });
}

TEST(simt, only_the_last_blocks) {
  for (simt::schedule s : schedules()) {
    s.last_blocks = 3;
    simt::set_schedule(s);
    std::vector<int> hits(10);
    std::uint64_t last = 0;
    const auto kernel = [&] {
      if (simt::block_index().x < 10) ++hits[simt::block_index().x];
      last = std::max<std::uint64_t>(last, simt::block_index().x);
    };
    simt::launch({10}, {1}, 0, kernel);
    EXPECT_EQ(hits, (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
    simt::launch({2}, {1}, 0, kernel);
    EXPECT_EQ(hits[0] + hits[1], 2);
    simt::launch({0xffffffffU}, {1}, 0, kernel);
    EXPECT_EQ(last, 0xfffffffeU);
  }
  simt::set_schedule({});
}

TEST(simt, waiting_for_a_block_that_was_not_started_yet_needs_yield_and_residents) {
  std::vector<int> done(2);
  simt::set_schedule({simt::order::forward, 1, 2});
  simt::launch({2}, {1}, 0, [&] {
    if (simt::block_index().x == 0) {
      while (done[1] == 0)
        simt::yield();
    }
    done[simt::block_index().x] = 1;
  });
  EXPECT_EQ(done, (std::vector<int>{1, 1}));
  simt::set_schedule({});
}

TEST(simt, exceptions_and_violations_unwind_all_threads) {
  struct counted {
    int* live;
    explicit counted(int* l) : live(l) { ++*live; }
    ~counted() { --*live; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
  };
  int live = 0;
  EXPECT_THROW(simt::launch({4}, {64}, 0,
                            [&] {
                              const counted c(&live);
                              simt::sync_block(HERE);
                              if (rank() == 17) throw std::runtime_error("a kernel may not, a test may");
                              simt::sync_block(HERE);
                            }),
               std::runtime_error);
  EXPECT_EQ(live, 0);
  std::vector<int> again(64);
  simt::launch({1}, {64}, 0, [&] { again[rank()] = 1; });
  EXPECT_EQ(again, std::vector<int>(64, 1));
}

TEST(simt, wrong_launches_and_calls_outside) {
  EXPECT_THROW(simt::launch({1}, {1025}, 0, [] {}), simt::violation);
  EXPECT_THROW(simt::launch({0}, {1}, 0, [] {}), simt::violation);
  EXPECT_THROW(simt::launch({1}, {1}, 0, [] { simt::launch({1}, {1}, 0, [] {}); }), simt::violation);
  EXPECT_THROW(simt::thread_index(), simt::violation);
  EXPECT_THROW(simt::sync_block(HERE), simt::violation);
}

TEST(simt, indices_in_three_dimensions) {
  std::vector<int> hits(2 * 3 * 4 * 5 * 2 * 3);
  simt::launch({2, 3, 4}, {5, 2, 3}, 0, [&] {
    const simt::dim3 b = simt::block_index(), t = simt::thread_index(), n = simt::block_size(),
                     g = simt::grid_size();
    const std::size_t block = b.x + g.x * (b.y + std::size_t{g.y} * b.z);
    ++hits[block * n.count() + t.x + n.x * (t.y + std::size_t{n.y} * t.z)];
  });
  EXPECT_EQ(hits, std::vector<int>(hits.size(), 1));
}

#if defined(__SANITIZE_ADDRESS__)
TEST(simt_death_test, an_index_outside_shared_or_global_memory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(simt::launch({1}, {32}, 0,
                            [] {
                              auto* shared =
                                  static_cast<volatile int*>(simt::static_shared(32 * sizeof(int), 4, HERE));
                              shared[rank() + 1] = 0;
                            }),
               "heap-buffer-overflow");
  std::vector<int> global(31);
  volatile int* out = global.data();
  EXPECT_DEATH(simt::launch({1}, {32}, 0, [&] { out[rank()] = 0; }), "heap-buffer-overflow");
}
#endif

}  // namespace
