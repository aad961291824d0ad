// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_promote.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner::placing {
namespace {

/// Passes without a lower layout after which another walk has its turn.
constexpr int most_vain_passes = 10;
constexpr std::int64_t no_pass = std::numeric_limits<std::int64_t>::max();

}  // namespace

promotion::promotion(const instance& problem, const std::vector<order>& seeds, incumbent& best,
                     work_budget& budget)
    : problem_(problem),
      best_(best),
      budget_(budget),
      placer_(problem, budget),
      position_(problem.items.size()) {
  for (order sequence : seeds) {
    std::erase_if(sequence, [&](std::uint32_t i) { return problem.items[i].fixed >= 0; });
    for (const fit how : {fit::best, fit::first})
      walks_.push_back({sequence, how, no_pass});
  }
  start_stretch();
}

void promotion::run(std::int64_t work) {
  const std::int64_t until = budget_.used() + work;
  while (!best_.done() && budget_.used() < until && !budget_.over()) {
    if (!pass()) return;
    promote();
    if (vain_passes_ >= most_vain_passes) start_stretch();
  }
}

/// Each walk once; then every other stretch is of the lowest one.
void promotion::start_stretch() {
  if (stretches_ < walks_.size()) {
    walk_ = stretches_;
  } else if (random_.below(2) == 0) {
    walk_ = random_.below(walks_.size());
  } else {
    const auto lowest = std::min_element(walks_.begin(), walks_.end(),
                                         [](const walk& a, const walk& b) { return a.lowest < b.lowest; });
    walk_ = static_cast<std::size_t>(lowest - walks_.begin());
  }
  ++stretches_;
  vain_passes_ = 0;
  sequence_ = walks_[walk_].sequence;
}

/// Places all items; false if the budget is over before.
bool promotion::pass() {
  walk& own = walks_[walk_];
  placer_.clear();
  for (const std::uint32_t index : sequence_) {
    const auto offset = placer_.gap_for(index, own.how, std::numeric_limits<std::int64_t>::max());
    placer_.place(index, *offset);
    if (budget_.over()) return false;
  }
  best_.offer(placer_);
  if (placer_.height() < own.lowest) {
    own.lowest = placer_.height();
    own.sequence = sequence_;
    vain_passes_ = 0;
  } else {
    ++vain_passes_;
  }
  return true;
}

/// What ends in the upper half between goal and height moves forward, mostly, by a random part of its way.
void promotion::promote() {
  const std::int64_t ceiling = best_.goal + (walks_[walk_].lowest - best_.goal) / 2;
  for (std::size_t i = 0; i < sequence_.size(); ++i) {
    const std::uint32_t index = sequence_[i];
    position_[index] = static_cast<double>(i);
    if (placer_.offsets()[index] + problem_.items[index].size <= ceiling) continue;
    const double part = 0.4 + static_cast<double>(random_.below(1000)) / 1250.0;
    position_[index] = static_cast<double>(i) * part - 1.0;
  }
  budget_.spend(16 * static_cast<std::int64_t>(sequence_.size()));
  std::stable_sort(sequence_.begin(), sequence_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return position_[a] < position_[b]; });
}

}  // namespace stash::planner::placing
