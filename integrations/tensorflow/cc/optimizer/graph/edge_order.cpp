// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/edge_order.hpp"

#include <algorithm>

namespace stash_tf {

namespace {

// Between neighbours of the first order: a node that an edge moves after another mostly finds a free rank
// there, and moves no other node.
constexpr std::int64_t rank_gap = std::int64_t{1} << 20;

}  // namespace

edge_order::edge_order(const graph_view& graph, const std::vector<int>& order)
    : graph_(graph), rank_(at(graph.size()), 0), added_(at(graph.size())), seen_(at(graph.size()), 0) {
  std::int64_t next = 0;
  for (const int i : order)
    rank_[at(i)] = next += rank_gap;
}

bool edge_order::leads_to(int first, int second) const {
  ++search_;
  std::vector<int> queue = {first};
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    if (i == second) return true;
    if (seen_[at(i)] == search_ || rank_[at(i)] >= rank_[at(second)]) continue;
    seen_[at(i)] = search_;
    for (const int next : graph_.after(i))
      queue.push_back(next);
    for (const int next : added_[at(i)])
      queue.push_back(next);
  }
  return false;
}

void edge_order::add(int first, int second) {
  added_[at(first)].push_back(second);
  std::vector<int> queue = {first};
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    const auto push_after = [&](int next) {
      if (rank_[at(next)] > rank_[at(i)]) return;
      rank_[at(next)] = rank_[at(i)] + 1;
      queue.push_back(next);
    };
    // Of the first node only the new edge may be out of order.
    if (i == first) {
      push_after(second);
      continue;
    }
    for (const int next : graph_.after(i))
      push_after(next);
    for (const int next : added_[at(i)])
      push_after(next);
  }
}

}  // namespace stash_tf
