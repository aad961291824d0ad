// SPDX-License-Identifier: Apache-2.0
// A swapper on a device whose work runs long after the calls that enqueue it: the memory that is in use is
// what the order of the streams makes of it, not what the host has counted.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "modelled_device.hpp"
#include "stash/swap.hpp"

namespace stash {
namespace {

constexpr std::size_t map_bytes = std::size_t{64} << 20;
constexpr double copy_ms = static_cast<double>(map_bytes) / modelled_device::link_bytes_per_ms;
constexpr int maps = 32;

swapper_options two_maps_at_a_time() {
  swapper_options o;
  o.space = memory_space::device;
  o.residency_limit_bytes = 2 * map_bytes;
  o.leaving_limit_bytes = 2 * map_bytes + map_bytes / 2;  // two, and their reports
  return o;
}

class swap_order : public testing::Test {
 protected:
  swap_order() { modelled_device::reset(); }

  double now() const { return modelled_device::end_of(compute_); }

  /// Maps that have left, with nothing on the device.
  std::vector<swapped> left(swapper& swaps) const {
    std::vector<swapped> all;
    for (int k = 0; k < maps; ++k) {
      void* const x = device_memory().allocate(map_bytes, 64, compute_);
      all.push_back(swaps.swap_out(x, map_bytes, {.needed_at = maps - 1 - k}, context_));
      all.back().wait_out(context_);
      device_memory().deallocate(x, map_bytes, 64, compute_);
    }
    return all;
  }

  stashed_tensor made() const {
    const const_tensor_view x{
        &read_by_nobody_, dtype::f32, memory_space::device, {static_cast<std::int64_t>(map_bytes / 4)}, 0};
    return {parse_encoding("raw"), x, {}, context_};
  }

  /// `run` is told whether the host waits now and then, and which pool it has.
  void for_all_pools(const std::function<void(bool host_waits, bool same_stream)>& run) {
    for (const auto rule : {modelled_device::pool_rule::ordered, modelled_device::pool_rule::same_stream}) {
      for (const bool host_waits : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "rule " << static_cast<int>(rule) << ", host waits " << host_waits);
        modelled_device::reset(rule);
        compute_ = context_.stream = modelled_device::make_stream();
        run(host_waits, rule == modelled_device::pool_rule::same_stream);
      }
    }
  }

  float read_by_nobody_ = 0;
  void* compute_ = modelled_device::make_stream();
  execution_context context_{memory_space::device, nullptr, nullptr, compute_};
};

// Whether the swapper is told where the step is, is asked for the next map, or only for the one in use.
TEST_F(swap_order, what_comes_back_stays_within_the_limit_and_ahead_of_the_layers) {
  const auto step = [&](int way, bool host_waits) {
    swapper swaps(two_maps_at_a_time());
    std::vector<swapped> all = left(swaps);
    const double begin = now();
    const std::size_t one_map = modelled_device::pool_bytes();
    for (int k = maps; k-- > 0;) {
      if (way == 0) swaps.reached(maps - 1 - k);
      if (way == 1 && k > 0) all[static_cast<std::size_t>(k) - 1].swap_in(context_);
      swapped& map = all[static_cast<std::size_t>(k)];
      map.wait_in(context_);
      modelled_device::work(compute_, 10);
      map.leave(context_);
      if (host_waits) modelled_device::host_waits();
    }
    EXPECT_LE(modelled_device::pool_bytes(), one_map + 2 * map_bytes);
    if (!host_waits) {
      EXPECT_LT(now() - begin, maps * 10 + 2 * copy_ms);
    }
    // Nothing is kept for others when the last one has left: layers take it.
    const std::size_t before = modelled_device::pool_bytes();
    device_memory().allocate(map_bytes, 64, compute_);
    device_memory().allocate(map_bytes, 64, compute_);
    EXPECT_EQ(modelled_device::pool_bytes(), before);
  };
  for (const int way : {0, 1, 2}) {
    SCOPED_TRACE(way);
    for_all_pools([&](bool host_waits, bool) { step(way, host_waits); });
  }
}

// A tensor that is larger than the limit is served, and its memory is nobody else's in the meantime.
TEST_F(swap_order, what_is_kept_for_the_next_is_within_the_limit) {
  modelled_device::reset(modelled_device::pool_rule::same_stream);
  compute_ = context_.stream = modelled_device::make_stream();
  swapper_options o = two_maps_at_a_time();
  o.residency_limit_bytes = map_bytes - 1;
  swapper swaps(o);
  std::vector<swapped> all = left(swaps);
  all.back().wait_in(context_);
  all.back().leave(context_);
  const std::size_t before = modelled_device::pool_bytes();
  device_memory().allocate(map_bytes, 64, compute_);
  device_memory().allocate(map_bytes, 64, compute_);
  EXPECT_EQ(modelled_device::pool_bytes(), before);
}

TEST_F(swap_order, tensors_that_are_taken_and_destroyed_free_memory) {
  swapper swaps(two_maps_at_a_time());
  std::vector<swapped> all;
  for (int k = 0; k < maps; ++k)
    all.push_back(swaps.swap_out(made(), {.needed_at = maps - 1 - k}, context_));
  const std::size_t before = modelled_device::pool_bytes();
  const double begin = now();
  for (int k = maps; k-- > 0;) {
    swaps.reached(maps - 1 - k);
    const stashed_tensor taken = all[static_cast<std::size_t>(k)].take(context_);
    modelled_device::work(compute_, 10);
  }
  EXPECT_LE(modelled_device::pool_bytes(), before + 3 * (map_bytes + 4096));
  EXPECT_LT(now() - begin, maps * 10 + 4 * copy_ms);
}

// The host waits where pinned memory is made: between a map and its copy.
TEST_F(swap_order, what_leaves_stays_within_the_limit) {
  for_all_pools([&](bool host_waits, bool) {
    swapper swaps(two_maps_at_a_time());
    std::vector<swapped> all;
    for (int k = 0; k < maps; ++k) {
      modelled_device::work(compute_, 10);
      stashed_tensor map = made();
      if (host_waits) modelled_device::host_waits();
      all.push_back(swaps.swap_out(std::move(map), {}, context_));
    }
    // The layers do not wait for a link that is faster than they are.
    EXPECT_DOUBLE_EQ(now(), maps * 10);
    EXPECT_LE(modelled_device::pool_bytes(), 3 * (map_bytes + 4096));
  });
}

TEST_F(swap_order, layers_that_are_faster_than_the_link_wait_for_it) {
  for_all_pools([&](bool host_waits, bool) {
    swapper swaps(two_maps_at_a_time());
    std::vector<swapped> all;
    for (int k = 0; k < maps; ++k) {
      modelled_device::work(compute_, copy_ms / 4);
      stashed_tensor map = made();
      if (host_waits) modelled_device::host_waits();
      all.push_back(swaps.swap_out(std::move(map), {}, context_));
    }
    EXPECT_LE(modelled_device::pool_bytes(), 3 * (map_bytes + 4096));
    if (host_waits) return;
    EXPECT_GT(now(), (maps - 3) * copy_ms);
    EXPECT_LT(now(), maps * copy_ms);
  });
}

// As in a training step: what leaves and what comes back, one after the other, and again.
TEST_F(swap_order, steps_stay_within_both_limits) {
  for_all_pools([&](bool host_waits, bool same_stream) {
    swapper swaps(two_maps_at_a_time());
    for (int round = 0; round < 3; ++round) {
      std::vector<swapped> all;
      for (int k = 0; k < maps; ++k) {
        modelled_device::work(compute_, copy_ms / 4);
        stashed_tensor map = made();
        if (host_waits) modelled_device::host_waits();
        all.push_back(swaps.swap_out(std::move(map), {.needed_at = maps - 1 - k}, context_));
      }
      // The loss is read. Streams of such a pool get nothing from each other without that.
      if (same_stream) modelled_device::synchronise();
      for (int k = maps; k-- > 0;) {
        swaps.reached(maps - 1 - k);
        all.back().wait_in(context_);
        modelled_device::work(compute_, copy_ms / 4);
        all.back().leave(context_);
        all.pop_back();
      }
      modelled_device::synchronise();
    }
    EXPECT_LE(modelled_device::pool_bytes(), 5 * (map_bytes + 4096));
  });
}

TEST_F(swap_order, without_a_limit_nobody_waits) {
  swapper_options o = two_maps_at_a_time();
  o.leaving_limit_bytes = SIZE_MAX;
  swapper swaps(o);
  std::vector<swapped> all;
  for (int k = 0; k < maps; ++k) {
    modelled_device::work(compute_, copy_ms / 4);
    all.push_back(swaps.swap_out(made(), {}, context_));
  }
  EXPECT_DOUBLE_EQ(now(), maps * copy_ms / 4);
}

}  // namespace
}  // namespace stash
