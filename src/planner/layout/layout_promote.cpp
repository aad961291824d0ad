// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_promote.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner::placing {
namespace {

/// Passes without a lower layout after which a walk goes back to its lowest one, and is given up.
constexpr int most_vain_passes = 20, most_passes_of_walk = 60;

}  // namespace

promotion::promotion(const instance& problem, const std::vector<order>& seeds, incumbent& best,
                     work_budget& budget, fit how)
    : problem_(problem),
      seeds_(seeds),
      best_(best),
      budget_(budget),
      how_first_(how == fit::best ? fit::best : fit::first),
      placer_(problem, budget),
      position_(problem.items.size()) {
  start_walk();
}

void promotion::run(std::int64_t work) {
  const std::int64_t until = budget_.used() + work;
  while (!best_.done() && budget_.used() < until && !budget_.over()) {
    if (!pass()) return;
    if (vain_passes_ >= most_passes_of_walk) {
      start_walk();
    } else {
      promote();
    }
  }
}

void promotion::start_walk() {
  const bool first = walk_ % 2 == 0 || seeds_.size() == 1;
  sequence_ = seeds_[first ? 0 : 1 + walk_ / 2 % (seeds_.size() - 1)];
  how_ = first ? how_first_ : fit::best;
  std::erase_if(sequence_, [&](std::uint32_t i) { return problem_.items[i].fixed >= 0; });
  ++walk_;
  lowest_ = std::numeric_limits<std::int64_t>::max();
  vain_passes_ = 0;
}

/// Places all items; false if the budget is over before.
bool promotion::pass() {
  placer_.clear();
  for (const std::uint32_t index : sequence_) {
    const auto offset = placer_.gap_for(index, how_, std::numeric_limits<std::int64_t>::max());
    placer_.place(index, *offset);
    if (budget_.over()) return false;
  }
  best_.offer(placer_);
  if (placer_.height() < lowest_) {
    lowest_ = placer_.height();
    lowest_sequence_ = sequence_;
    vain_passes_ = 0;
  } else {
    ++vain_passes_;
  }
  return true;
}

/// What ends in the upper half between goal and best height moves forward by a random part of its way.
void promotion::promote() {
  if (vain_passes_ > 0 && vain_passes_ % most_vain_passes == 0) sequence_ = lowest_sequence_;
  const std::int64_t ceiling = best_.goal + (best_.height - best_.goal) / 2;
  for (std::size_t i = 0; i < sequence_.size(); ++i) {
    const std::uint32_t index = sequence_[i];
    const bool high = placer_.offsets()[index] + problem_.items[index].size > ceiling;
    const double kept = 0.4 + static_cast<double>(random_.below(1000)) / 1250.0;
    position_[index] = static_cast<double>(i) * (high ? kept : 1.0) - (high ? 1.0 : 0.0);
  }
  budget_.spend(16 * static_cast<std::int64_t>(sequence_.size()));
  std::stable_sort(sequence_.begin(), sequence_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return position_[a] < position_[b]; });
}

}  // namespace stash::planner::placing
