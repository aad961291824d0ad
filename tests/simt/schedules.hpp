// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which schedules random tensors go through.

#include <cstdint>
#include <string>
#include <vector>

#include "simt/simt.hpp"

namespace stash::test {

/// One schedule for each number, all kinds in turn.
inline simt::schedule schedule_of(int k) {
  constexpr simt::order orders[] = {simt::order::forward, simt::order::reverse, simt::order::random};
  return {orders[k % 3], static_cast<std::uint32_t>(k) + 1, static_cast<std::uint32_t>(k % 4) + 1};
}

/// Tensor number `tensor` under one schedule.
struct scheduled_run {
  int tensor;
  simt::schedule schedule;
};

/// Every tensor under one schedule, all kinds in turn, and every seventh one under all kinds; of the choices
/// that tests make by a tensor's number, none repeats with a seven. What a run gives is held to a result that
/// knows no schedule, so that the runs of one tensor agree with each other, too.
inline std::vector<scheduled_run> scheduled_runs(int tensors) {
  std::vector<scheduled_run> runs;
  for (int k = 0; k < tensors; ++k) {
    for (int turn = 0; turn < (k % 7 == 0 ? 3 : 1); ++turn)
      runs.push_back({k, schedule_of(k + turn)});
  }
  return runs;
}

/// "3, threads random, 2 blocks at once".
inline std::string text_of(const scheduled_run& run) {
  constexpr const char* names[] = {"forward", "reverse", "random"};
  return std::to_string(run.tensor) + ", threads " + names[static_cast<int>(run.schedule.threads)] + ", " +
         std::to_string(run.schedule.resident_blocks) + " blocks at once";
}

}  // namespace stash::test
