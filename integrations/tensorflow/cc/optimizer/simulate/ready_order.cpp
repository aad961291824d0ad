// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/ready_order.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace stash_tf {

namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();

}  // namespace

bool ready_order::is_backward(int i) const {
  return i < originals_ ? step_.backward[at(i)] : graph_.op(i) == "StashDecode";
}

// The forward pass stays before the backward pass, and loops run as TensorFlow runs them.
std::int64_t ready_order::rank(task t) const {
  constexpr std::int64_t few = 8;
  if (memory_.iterations().trips(t.run) > few) return lowest;
  if (!is_backward(t.node)) return rank_in_forward_pass(t);
  if (order_.backward == backward_order::as_executor) return 0;
  if (order_.backward != backward_order::below_bound) return memory_.growth(t);
  const std::int64_t sum = memory_.needed(t);
  return sum <= order_.bound ? lowest : sum;
}

std::int64_t ready_order::rank_in_forward_pass(task t) const {
  switch (order_.forward) {
    case forward_order::as_executor:
      return lowest;
    case forward_order::least_growth:
      return lowest / 2 + memory_.growth(t);
    case forward_order::least_growth_with_backward:
      return memory_.growth(t);
    case forward_order::least_growth_kept_last:
      return (is_kept(t.node) ? lowest / 4 : lowest / 2) + memory_.growth(t);
    case forward_order::most_growth:
      return lowest / 2 - memory_.growth(t);
  }
  return lowest;
}

// Whether the backward pass reads what a node makes, in any form.
bool ready_order::is_kept(int i) const {
  const std::vector<reader>& readers = graph_.readers(i);
  return std::any_of(readers.begin(), readers.end(), [&](const reader& r) {
    return r.port >= 0 && (is_backward(r.node) || graph_.op(r.node) == "StashEncode");
  });
}

// Among ready nodes of equal rank the smallest one goes first.
int ready_order::rank_by_reader(int i) const {
  const bool read_first = order_.backward == backward_order::least_growth;
  if (!is_backward(i) || !(read_first || order_.backward == backward_order::least_growth_read_last)) return 0;
  int first = graph_.size();
  for (const reader& r : graph_.readers(i))
    if (r.port >= 0) first = std::min(first, memory_.positions()[at(r.node)]);
  return read_first ? first : -first;
}

// Thousands may be ready in an unrolled loop.
std::size_t ready_order::best(const std::deque<task>& queue) const {
  constexpr std::size_t most = 64;
  std::size_t best = 0;
  std::int64_t least = rank(queue.front());
  int least_of_reader = rank_by_reader(queue.front().node);
  for (std::size_t k = 1; k < std::min(queue.size(), most) && least > lowest; ++k) {
    const std::int64_t now = rank(queue[k]);
    if (now > least || (now > 0 && order_.backward == backward_order::frees_first)) continue;
    const int of_reader = rank_by_reader(queue[k].node);
    if (now == least && of_reader >= least_of_reader) continue;
    best = k;
    least = now;
    least_of_reader = of_reader;
  }
  return best;
}

}  // namespace stash_tf
