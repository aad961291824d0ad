// SPDX-License-Identifier: Apache-2.0
// Where lanes share groups of f32 (common/elements.hpp): every half is moved once, and what an instruction of
// a warp moves lies in a row.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

#include "common/elements.hpp"

namespace stash::kernels {
namespace {

constexpr unsigned half = group_elements / 2;
constexpr unsigned threads = 96;

device_tensor dense(std::uint64_t elements) {
  return {nullptr, elements, 1, 1, true};
}

TEST(halves, a_warp_moves_512_bytes_in_a_row) {
  const device_tensor t = dense(threads * group_elements);
  for (unsigned warp = 0; warp < threads; warp += warp_lanes) {
    for (unsigned i = 0; i < 2; ++i) {
      for (unsigned lane = 0; lane < warp_lanes; ++lane) {
        const std::uint64_t index = group_of_thread<true>(warp + lane);
        EXPECT_EQ((offset_of_half<half_warps>(t, index, i)),
                  warp * group_elements + (i * warp_lanes + lane) * half);
      }
    }
  }
}

TEST(halves, neighbours_move_whole_sectors) {
  const device_tensor t = dense(warp_lanes * group_elements);
  for (unsigned i = 0; i < 2; ++i) {
    for (unsigned lane = 0; lane < warp_lanes; lane += 2) {
      const std::uint64_t first = offset_of_half<neighbours>(t, lane, i);
      EXPECT_EQ(first, (lane + i) * group_elements);
      EXPECT_EQ((offset_of_half<neighbours>(t, lane + 1, i)), first + half);
    }
  }
}

TEST(halves, every_thread_has_a_group_of_its_own) {
  std::set<unsigned> groups;
  for (unsigned rank = 0; rank < threads; ++rank) {
    const unsigned group = group_of_thread<true>(rank);
    EXPECT_EQ(group / warp_lanes, rank / warp_lanes);
    EXPECT_TRUE(groups.insert(group).second);
    EXPECT_EQ(group_of_thread<false>(rank), rank);
  }
}

/// Lanes of the four groups that share a scale.
TEST(halves, groups_that_follow_each_other_are_in_lanes_at_a_step) {
  std::array<unsigned, warp_lanes> lane_of{};
  for (unsigned lane = 0; lane < warp_lanes; ++lane)
    lane_of[group_of_thread<true>(lane)] = lane;
  for (unsigned group = 0; group < warp_lanes; group += 4) {
    for (unsigned i = 1; i < 4; ++i)
      EXPECT_EQ(lane_of[group + i], lane_of[group] + i * lanes_between_groups<true>);
    EXPECT_EQ(lane_of[group] & (3 * lanes_between_groups<true>), 0U);  // so shuffles stay among the four
  }
}

}  // namespace
}  // namespace stash::kernels
