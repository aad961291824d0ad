// A swapper on a device whose work lies far behind the calls that enqueue it: the memory that is in use is
// what the order of the streams makes of it, not what the host has counted.

#include <gtest/gtest.h>

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

  float read_by_nobody_ = 0;
  void* compute_ = modelled_device::make_stream();
  execution_context context_{memory_space::device, nullptr, nullptr, compute_};
};

// Whether the swapper is told where the step is, is asked for the next map, or only for the one in use.
TEST_F(swap_order, what_comes_back_stays_within_the_limit_and_ahead_of_the_layers) {
  for (const int way : {0, 1, 2}) {
    SCOPED_TRACE(way);
    modelled_device::reset();
    compute_ = context_.stream = modelled_device::make_stream();
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
    }
    EXPECT_LE(modelled_device::pool_bytes(), one_map + 2 * map_bytes);
    EXPECT_LT(now() - begin, maps * 10 + 2 * copy_ms);
  }
}

TEST_F(swap_order, tensors_that_are_taken_and_destroyed_make_room) {
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

TEST_F(swap_order, what_leaves_stays_within_the_limit) {
  swapper swaps(two_maps_at_a_time());
  std::vector<swapped> all;
  for (int k = 0; k < maps; ++k) {
    modelled_device::work(compute_, 10);
    all.push_back(swaps.swap_out(made(), {}, context_));
  }
  // The layers do not wait for a link that is faster than they are.
  EXPECT_DOUBLE_EQ(now(), maps * 10);
  EXPECT_LE(modelled_device::pool_bytes(), 3 * (map_bytes + 4096));
}

TEST_F(swap_order, layers_that_are_faster_than_the_link_wait_for_it) {
  swapper swaps(two_maps_at_a_time());
  std::vector<swapped> all;
  for (int k = 0; k < maps; ++k) {
    modelled_device::work(compute_, copy_ms / 4);
    all.push_back(swaps.swap_out(made(), {}, context_));
  }
  EXPECT_LE(modelled_device::pool_bytes(), 3 * (map_bytes + 4096));
  EXPECT_GT(now(), (maps - 3) * copy_ms);
  EXPECT_LT(now(), maps * copy_ms);
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
