// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_lanes.hpp"
#include "runtime/swap/swap_orders.hpp"

namespace stash::runtime {

bool run_in_order(swap_work& work, const std::vector<std::vector<std::int32_t>>& conflicts,
                  const std::function<bool(std::int32_t)>& compute) {
  swap_schedule& schedule = *work.settings.schedule;
  schedule.begin();
  std::vector<char> ended(work.program.tasks.size(), 0);
  struct position {
    std::size_t next = 0;
    std::int64_t total = -1;  // of the copy that has begun, or -1
  };
  std::array<position, swap_lanes> lanes;
  const auto is_ready = [&](std::int32_t task) {
    for (const std::int32_t before : work.waits[static_cast<std::size_t>(task)]) {
      if (ended[static_cast<std::size_t>(before)] == 0) return false;
    }
    return true;
  };
  for (;;) {
    std::vector<swap_candidate> candidates;
    for (std::size_t l = 0; l < swap_lanes; ++l) {
      if (lanes[l].next == work.order[l].size()) continue;
      const std::int32_t task = work.order[l][lanes[l].next];
      if (is_ready(task)) candidates.push_back({static_cast<swap_lane>(l), task});
    }
    if (candidates.empty()) return true;  // edges lead forward, so that nothing can be stuck
    const swap_candidate chosen = candidates[schedule.choose(candidates)];
    const auto t = static_cast<std::size_t>(chosen.task);
    position& at = lanes[index(chosen.lane)];
    if (at.total < 0) {
      work.announce(swap_action::wait, chosen.task, work.waits[t].size());
      for (const std::int32_t before : conflicts[t]) {
        if (ended[static_cast<std::size_t>(before)] == 0) schedule.violated({before, chosen.task});
      }
      work.times[t].begin = work.seconds();
    }
    if (chosen.lane == swap_lane::compute) {
      if (!compute(chosen.task)) return false;
    } else {
      if (at.total < 0) at.total = work.bytes_to_copy(chosen.task);
      if (work.copied[t] < at.total) work.copy_chunk(chosen.task, at.total);
      if (work.copied[t] < at.total) continue;
      at.total = -1;
    }
    work.end_of(chosen.task);
    if (work.signals[t] != 0) work.announce(swap_action::signal, chosen.task);
    ended[t] = 1;
    ++at.next;
  }
}

}  // namespace stash::runtime
