// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_climb.hpp"

#include <algorithm>

namespace stash::planner::placing {

void incumbent::offer(const placer& candidate) {
  const std::int64_t candidate_height = candidate.height();
  if (candidate_height >= height) return;
  height = candidate_height;
  offsets = candidate.offsets();
}

climb::climb(const instance& problem, const std::vector<order>& seeds, incumbent& best, work_budget& budget,
             fit how)
    : problem_(problem), seeds_(seeds), best_(best), budget_(budget), how_(how), placer_(problem, budget) {}

bool climb::over() {
  return best_.done() || budget_.used() >= until_ || budget_.over();
}

void climb::run(std::int64_t work) {
  until_ = budget_.used() + work;
  while (!over()) {
    if (moves_left_ == 0) start_walk();
    step();
  }
}

/// Fractions of the distance between goal and best height, in quarters: an ambitious aim teaches the order
/// more, a modest one is met sooner.
std::int64_t climb::aim() const {
  const std::int64_t distance = best_.height - best_.goal;
  return std::min(best_.goal + distance / 4 * quarters_, best_.height - problem_.grain);
}

void climb::start_walk() {
  sequence_ = seeds_[walk_ % seeds_.size()];
  std::erase_if(sequence_, [&](std::uint32_t i) { return problem_.items[i].fixed >= 0; });
  quarters_ = static_cast<std::int64_t>(walk_ / seeds_.size() % 4);
  ++walk_;
  moves_left_ = sequence_.size() / 2 + 64;
  placed_ = 0;
  placer_.clear();
  ceiling_ = aim();
}

void climb::step() {
  while (placed_ < sequence_.size()) {
    const std::uint32_t index = sequence_[placed_];
    const auto offset = placer_.gap_for(index, how_, ceiling_);
    if (!offset) break;
    placer_.place(index, *offset);
    ++placed_;
    if (over()) return;
  }
  --moves_left_;
  if (placed_ == sequence_.size()) {
    best_.offer(placer_);
    ceiling_ = aim();
    placed_ = 0;
    placer_.clear();
  } else {
    placed_ = move_forward(placed_);
  }
}

/// Moves the item at `position`, which did not fit, before an item that it conflicts with; returns the first
/// position that has to be placed again.
std::size_t climb::move_forward(std::size_t position) {
  const item& it = problem_.items[sequence_[position]];
  std::size_t target = 0;
  if (position > 0) {
    // Mostly a short step back, sometimes a long one.
    const std::size_t reach = random_.below(4) == 0 ? position : std::min<std::size_t>(position, 16);
    target = position - 1 - random_.below(reach);
  }
  while (target > 0 && !problem_.conflict(it, problem_.items[sequence_[target]]))
    --target;
  placer_.remove(sequence_.data() + target, sequence_.data() + position);
  const auto first = sequence_.begin() + static_cast<std::ptrdiff_t>(target);
  const auto last = sequence_.begin() + static_cast<std::ptrdiff_t>(position);
  std::rotate(first, last, last + 1);
  return target;
}

}  // namespace stash::planner::placing
