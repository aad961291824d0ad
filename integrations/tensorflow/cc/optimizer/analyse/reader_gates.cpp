// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/reader_gates.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "optimizer/analyse/backward.hpp"

namespace stash_tf {

namespace {

// Control flow that is one node: its end is the end of all that it does.
bool is_call(const std::string& op) {
  return absl::EndsWith(op, "PartitionedCall") || absl::EndsWith(op, "If") || absl::EndsWith(op, "While") ||
         absl::EndsWith(op, "Case");
}

}  // namespace

reader_gates::reader_gates(const graph_view& graph, const std::vector<int>& order,
                           const std::vector<bool>& backward, const std::vector<bool>& late,
                           const control_flow& flow)
    : graph_(graph),
      backward_(backward),
      late_(late),
      flow_(flow),
      rank_(graph.positions(order)),
      edges_(graph, order),
      is_simple_(order.size() == at(graph.size())),
      follows_(at(graph.size()), false) {
  for (int i = 0; i < graph.size(); ++i)
    is_simple_ = is_simple_ && !is_next_iteration(graph.op(i));
}

int reader_gates::gate_of(int node, int input) {
  int gate = -1;
  const auto consider = [&](const source& s) {
    if (!late_[at(s.node)]) return;
    const std::string& op = graph_.op(s.node);
    if (is_control_flow(op) && op != "Merge" && op != "Exit" && !is_call(op)) return;
    if (gate < 0 || rank_[at(s.node)] > rank_[at(gate)]) gate = s.node;
  };
  for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k) {
    const source& s = graph_.inputs(node)[k];
    if (static_cast<int>(k) != input && backward_[at(s.node)] && !s.is_control()) consider(s);
  }
  if (gate >= 0) return gate;
  for (const source& s : graph_.inputs(node))
    if (backward_[at(s.node)]) consider(s);
  if (gate >= 0) return gate;
  // An op that stands in backward passes only, fed by a gradient that nobody recognised as one.
  const int dy = gradient_input(graph_.op(node));
  if (dy >= 0 && dy != input) {
    const source& s = graph_.inputs(node)[at(dy)];
    if (!is_control_flow(graph_.op(s.node)) || is_call(graph_.op(s.node))) return s.node;
  }
  return late_[at(node)] ? -1 : lent_gate(node);
}

// The derivative of an activation may be computed from the forward pass alone. Its turn comes when what it
// is multiplied with is there: the earliest such gradient, by an edge that makes no cycle with those lent
// before.
int reader_gates::lent_gate(int node) {
  const auto found = lent_.find(node);
  if (found != lent_.end()) return found->second;
  const std::vector<int> near = met_after(node, false);
  int gate = earliest(node, near, [&](int i) { return !edges_.leads_to(node, i); });
  // By way of derivatives that have been lent a gate the node may meet earlier gradients, which these met.
  const bool far = gate < 0 ? !lent_to_.empty() : earliest_met_ < rank_[at(gate)];
  if (far || !is_simple_) {
    const std::vector<int> all = met_after(node, true);
    gate = earliest(node, all, [&](int i) { return !follows_[at(i)]; });
  }
  lent_[node] = gate;
  if (gate < 0) return gate;
  lent_to_[gate].push_back(node);
  if (is_simple_) edges_.add(gate, node);
  for (const int i : near)
    earliest_met_ = std::min(earliest_met_, rank_[at(i)]);
  return gate;
}

template <class Allowed>
int reader_gates::earliest(int node, const std::vector<int>& met, const Allowed& allowed) const {
  int gate = -1;
  for (const int i : met)
    if ((gate < 0 || rank_[at(i)] < rank_[at(gate)]) && flow_.may_wait(node, i) && allowed(i)) gate = i;
  return gate;
}

// Gradients that meet what follows from a node, up to these, or, with `all`, whatever follows by the graph
// and the gates lent. follows_ says what was found to follow.
std::vector<int> reader_gates::met_after(int node, bool all) {
  std::vector<int> queue = {node}, marked = {node};
  for (const int i : found_)
    follows_[at(i)] = false;
  follows_[at(node)] = true;
  const auto add = [&](int i) {
    if (follows_[at(i)] || (!all && late_[at(i)])) return;
    follows_[at(i)] = true;
    marked.push_back(i);
    queue.push_back(i);
  };
  std::vector<int> meeting;
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    for (const int next : graph_.after(i))
      add(next);
    if (is_next_iteration(graph_.op(i))) continue;
    for (const reader& r : graph_.readers(i)) {
      if (late_[at(i)] || !late_[at(r.node)]) continue;
      for (const source& s : graph_.inputs(r.node))
        if (!s.is_control() && late_[at(s.node)]) meeting.push_back(s.node);
    }
    const auto lent = all ? lent_to_.find(i) : lent_to_.end();
    if (lent != lent_to_.end())
      for (const int waiting : lent->second)
        add(waiting);
  }
  found_ = std::move(marked);
  return meeting;
}

}  // namespace stash_tf
