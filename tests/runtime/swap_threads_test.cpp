// SPDX-License-Identifier: Apache-2.0
// One swapper, many threads: every tensor comes back as it went, whatever the others do.

#include <gtest/gtest.h>

#include <thread>

#include "encoders/support.hpp"
#include "runtime/swap_support.hpp"
#include "stash/swap.hpp"

namespace stash {
namespace {

using stash_test::bits_of;
using stash_test::flavour;
using stash_test::make_bytes;
using stash_test::make_values;
using stash_test::same_bytes;
using stash_test::view_of;

constexpr int threads = 8, rounds = 12, layers = 5;

/// What one thread does: layers out, then back in the other order, each in another way.
void train(swapper& swaps, memory_resource& memory, std::uint32_t thread) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::uint8_t>> raw;
    std::vector<std::vector<float>> maps;
    std::vector<swapped> kept;  // goes before its sources do
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::uint32_t seed = thread * 1000 + round * 10 + layer;
      swap_request request;
      request.needed_at = layers - 1 - static_cast<int>(layer);
      request.priority = static_cast<int>(seed % 3);
      raw.push_back(make_bytes(500 + 997 * layer, seed));
      maps.push_back(make_values(700, 0.5, flavour::special, seed));
      if (layer % 2 == 0) {
        kept.push_back(swaps.swap_out(raw.back().data(), raw.back().size(), request));
      } else {
        kept.push_back(swaps.swap_out(
            stashed_tensor(parse_encoding("bitmap"), view_of(maps.back()), {.memory = &memory}), request));
      }
    }
    if (round % 5 == 4) continue;  // a step that is given up
    for (std::uint32_t layer = layers; layer-- > 0;) {
      swaps.reached(layers - 1 - static_cast<int>(layer));
      if (layer % 2 == 1) {
        std::vector<float> back(700);
        kept[layer].restore(view_of(back));
        ASSERT_EQ(bits_of(back), bits_of(maps[layer]));
      } else if ((thread + round) % 2 == 0) {
        ASSERT_TRUE(same_bytes(kept[layer].wait_in(), raw[layer]));
      } else {
        std::vector<std::uint8_t> mine(raw[layer].size());
        kept[layer].swap_in(mine.data(), mine.size());
        kept[layer].wait_in();
        ASSERT_EQ(mine, raw[layer]);
      }
      (void)swaps.statistics();
      kept[layer].wait_out();
      kept[layer].reset();
    }
  }
}

TEST(swap_threads, share_a_swapper) {
  counting_memory host(host_memory()), memory(host_memory());
  {
    swapper swaps({.host = &host, .memory = &memory, .residency_limit_bytes = 4000, .chunk_bytes = 256});
    std::vector<std::thread> workers;
    for (std::uint32_t thread = 0; thread < threads; ++thread)
      workers.emplace_back([&, thread] { train(swaps, memory, thread); });
    for (std::thread& worker : workers)
      worker.join();
    const swap_statistics now = swaps.statistics();
    EXPECT_EQ(now.host_bytes, 0U);
    EXPECT_EQ(now.resident_bytes, 0U);
    EXPECT_EQ(now.bytes_in_flight, 0U);
    EXPECT_EQ(now.failures, 0U);
  }
  EXPECT_EQ(host.blocks_in_use(), 0U);
  EXPECT_EQ(memory.blocks_in_use(), 0U);
}

TEST(swap_threads, a_handle_goes_from_thread_to_thread) {
  swapper swaps({.chunk_bytes = 64});
  for (std::uint32_t round = 0; round < 50; ++round) {
    const auto data = make_bytes(1000, round);
    swapped kept = swaps.swap_out(data.data(), data.size());
    std::thread([&] { kept.swap_in(); }).join();
    std::thread([&] { EXPECT_TRUE(same_bytes(kept.wait_in(), data)); }).join();
  }
}

// Here, where operator new is the library's own.
TEST(swap_threads, sizes_that_cannot_be_are_out_of_memory) {
  swapper swaps;
  const auto data = make_bytes(100, 1);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 10, SIZE_MAX / 2}) {
    EXPECT_EQ(stash_test::code_of([&] { swaps.swap_out(data.data(), bytes); }), errc::out_of_memory) << bytes;
    EXPECT_TRUE(swaps.swap_out(data.data(), bytes, {.empty_if_full = true}).empty());
  }
}

TEST(swap_threads, full_memory_is_survived) {
  swapper swaps({.host_limit_bytes = 8192, .chunk_bytes = 512});
  std::atomic<int> refused{0};
  std::vector<std::thread> workers;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      const auto data = make_bytes(2048, thread);
      for (int round = 0; round < 50; ++round) {
        swapped kept = swaps.swap_out(data.data(), data.size(), {.empty_if_full = true});
        if (kept.empty()) {
          ++refused;
          std::this_thread::yield();
          continue;
        }
        EXPECT_TRUE(same_bytes(kept.wait_in(), data));
      }
    });
  }
  for (std::thread& worker : workers)
    worker.join();
  EXPECT_LE(swaps.statistics().host_peak_bytes, 8192U);
  EXPECT_LE(refused, threads * 50);
}

}  // namespace
}  // namespace stash
