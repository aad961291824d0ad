// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_orders.hpp"

#include <algorithm>
#include <utility>

namespace stash::runtime {

std::size_t list_order::choose(std::span<const swap_candidate> candidates) {
  const auto first = std::ranges::min_element(candidates, {}, &swap_candidate::task);
  return static_cast<std::size_t>(first - candidates.begin());
}

std::size_t laggard_order::choose(std::span<const swap_candidate> candidates) {
  const auto rank = [&](const swap_candidate& c) { return std::pair(c.task == task_, c.task); };
  const auto first = std::ranges::min_element(candidates, {}, rank);
  return static_cast<std::size_t>(first - candidates.begin());
}

std::size_t random_order::choose(std::span<const swap_candidate> candidates) {
  return static_cast<std::size_t>(random_() % candidates.size());
}

std::size_t every_order::choose(std::span<const swap_candidate> candidates) {
  if (at_ == path_.size()) path_.push_back({0, candidates.size()});
  return path_[at_++].chosen;
}

bool every_order::next() {
  while (!path_.empty() && path_.back().chosen + 1 == path_.back().count)
    path_.pop_back();
  if (path_.empty()) return false;
  ++path_.back().chosen;
  return true;
}

}  // namespace stash::runtime
