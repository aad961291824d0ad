// SPDX-License-Identifier: Apache-2.0
// Swap programs on a device, here the emulator's: copies happen only where somebody waits for them, and as
// late as that allows, so that a missing wait, or memory that is reused too early, shows as wrong bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "encoders/device/device_memory.hpp"
#include "runtime/swap/swap_device.hpp"
#include "runtime/swap/swap_orders.hpp"
#include "runtime/swap_toys.hpp"
#include "simt/device_memory.hpp"
#include "stash/error.hpp"
#include "stash/memory.hpp"

namespace stash::runtime {
namespace {

using ::testing::HasSubstr;
using testing::random_step;
using testing::toy;

int caller_stream;

/// A toy in memory of the device and pinned memory; its ops run at once, as emulated kernels do.
class device_toy {
 public:
  explicit device_toy(toy t) : t_(std::move(t)) {
    list_order order;
    swap_settings s;
    s.schedule = &order;
    swap_engine engine(t_.program, t_.memory(), s);
    right = t_.result_of(engine);
    device_ = device_memory().allocate(device_bytes(), 256);
    host_ = pinned_memory().allocate(host_bytes(), 4096);
    t_.elsewhere = {static_cast<std::byte*>(device_), static_cast<std::byte*>(host_)};
    std::memset(device_, 0xEE, device_bytes());
    std::memset(host_, 0xEE, host_bytes());
  }
  ~device_toy() {
    device_memory().deallocate(device_, device_bytes(), 256);
    pinned_memory().deallocate(host_, host_bytes(), 4096);
  }
  device_toy(const device_toy&) = delete;
  device_toy& operator=(const device_toy&) = delete;

  std::uint64_t run(device_swap_engine& engine) {
    t_.result = 0;
    engine.enqueue(&caller_stream, [&](std::int32_t task) { t_.run(task); });
    encoders::device::wait_for_stream(&caller_stream);
    return t_.result;
  }
  swap_memory memory() { return t_.memory(); }
  const swap_program& program() const { return t_.program; }

  std::uint64_t right = 0;

 private:
  std::size_t device_bytes() const { return static_cast<std::size_t>(t_.device_bytes()); }
  std::size_t host_bytes() const { return static_cast<std::size_t>(t_.host_bytes()) + 1; }

  toy t_;
  void* device_;
  void* host_;
};

class device_swap_engine_test : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(simt::blocks_in_use(), blocks_);
    EXPECT_EQ(simt::streams_and_events(), objects_);
  }
  std::size_t blocks_ = simt::blocks_in_use(), objects_ = simt::streams_and_events();
};

TEST_F(device_swap_engine_test, the_same_bits_as_on_the_host) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    device_toy t(random_step(seed, 4 + static_cast<int>(seed % 12), 0.7, 300));
    device_swap_settings s;
    s.chunk_bytes = 100;
    device_swap_engine engine(t.program(), t.memory(), s);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(t.run(engine), t.right) << seed;
  }
}

TEST_F(device_swap_engine_test, nothing_is_allocated_and_nothing_waits) {
  device_toy t(random_step(3, 10));
  device_swap_engine engine(t.program(), t.memory());
  std::size_t copies = 0;
  for (const swap_task& task : t.program().tasks)
    copies += task.lane == swap_lane::compute ? 0 : 1;
  ASSERT_GT(copies, 4U);
  const simt::device_calls before = simt::calls_so_far();
  engine.enqueue(&caller_stream, [](std::int32_t) {});
  const simt::device_calls after = simt::calls_so_far();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.waits, before.waits);
  EXPECT_EQ(after.copies, before.copies + copies);
}

// The emulator's copies happen late, but not in every order: what a map left in the memory that it comes back
// to is right as well, and a copy may have ended because somebody waited for the next one. All orders are the
// business of runtime_swap_engine; here it is shown that waits of the device are what the edges become.
TEST_F(device_swap_engine_test, who_does_not_wait_for_a_copy_is_caught) {
  int edges = 0, caught = 0;
  for (std::uint64_t seed = 40; seed < 50; ++seed) {
    device_toy t(random_step(seed, 8));
    for (const swap_edge& e : t.program().edges) {
      swap_program less = t.program();
      std::erase(less.edges, e);
      EXPECT_THROW(device_swap_engine(less, t.memory()), error);
      if (less.tasks[static_cast<std::size_t>(e.after)].lane != swap_lane::compute) continue;
      device_swap_settings s;
      s.allow_races = true;
      device_swap_engine engine(less, t.memory(), s);
      caught += t.run(engine) != t.right ? 1 : 0;
      ++edges;
    }
  }
  EXPECT_GE(edges, 20);
  EXPECT_GE(2 * caught, edges);
}

TEST_F(device_swap_engine_test, every_action_fails_in_turn) {
  device_toy t(random_step(5, 6));
  int left = -1;
  device_swap_settings s;
  s.chunk_bytes = 64;
  s.before = [&](swap_action, std::int32_t) {
    if (left-- == 0) throw error(errc::device_failure, "expected a link, got none");
  };
  device_swap_engine engine(t.program(), t.memory(), s);
  int n = 0;
  for (;; ++n) {
    left = n;
    try {
      EXPECT_EQ(t.run(engine), t.right);
      break;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::device_failure);
      EXPECT_THAT(e.what(), HasSubstr("swap engine: "));
    }
    left = -1;
    ASSERT_EQ(t.run(engine), t.right) << n;
  }
  EXPECT_GE(n, 30);
}

TEST_F(device_swap_engine_test, copies_that_the_device_refuses) {
  device_toy t(random_step(6, 6));
  device_swap_engine engine(t.program(), t.memory());
  bool refused = true;
  for (long n = 0; refused; ++n) {
    simt::set_copies_left(n);
    refused = false;
    try {
      t.run(engine);
    } catch (const error& e) {
      refused = true;
      EXPECT_EQ(e.code(), errc::device_failure) << e.what();
    }
    simt::set_copies_left(-1);
    EXPECT_EQ(t.run(engine), t.right);
  }
}

TEST_F(device_swap_engine_test, computation_that_throws) {
  device_toy t(random_step(7, 6));
  device_swap_engine engine(t.program(), t.memory());
  EXPECT_THROW(engine.enqueue(&caller_stream,
                              [](std::int32_t task) {
                                if (task > 3) throw std::runtime_error("of the caller");
                              }),
               std::runtime_error);
  EXPECT_EQ(t.run(engine), t.right);
}

}  // namespace
}  // namespace stash::runtime
