// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/control_flow.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "optimizer/graph/views.hpp"

namespace stash_tf {

bool is_outside(const std::string& op) {
  return op == "_Arg" || op == "_DeviceArg" || op == "_Retval" || op == "_DeviceRetval";
}

control_flow::control_flow(const graph_view& graph, const std::vector<int>& order)
    : graph_(graph), loops_(graph, order) {
  conditions_.resize(at(graph.size()));
  for (const int i : order) {
    const std::string& op = graph.op(i);
    std::vector<condition> conditions;
    bool first = true;
    for (const source& s : graph.inputs(i)) {
      if (is_next_iteration(graph.op(s.node))) continue;
      std::vector<condition> of_input = conditions_[at(s.node)];
      if (is_switch(graph.op(s.node)) && !s.is_control()) {
        const condition decided = {root_of(graph, graph.inputs(s.node)[1]), s.port};
        const auto position = std::lower_bound(of_input.begin(), of_input.end(), decided);
        if (position == of_input.end() || *position != decided) of_input.insert(position, decided);
      }
      std::vector<condition> joined;
      if (first) {
        joined = std::move(of_input);
      } else if (is_merge(op)) {
        std::set_intersection(conditions.begin(), conditions.end(), of_input.begin(), of_input.end(),
                              std::back_inserter(joined));
      } else {
        std::set_union(conditions.begin(), conditions.end(), of_input.begin(), of_input.end(),
                       std::back_inserter(joined));
      }
      conditions = std::move(joined);
      first = false;
    }
    if (is_exit(op)) {
      // Every loop that begins comes to its end.
      const int outside = frame(i);
      conditions.erase(std::remove_if(conditions.begin(), conditions.end(),
                                      [&](const condition& c) { return frame(c.first.node) > outside; }),
                       conditions.end());
    }
    conditions_[at(i)] = std::move(conditions);
  }
}

bool control_flow::may_wait(int second, int first) const {
  if (frame(second) != frame(first) || graph_.node(second).device() != graph_.node(first).device())
    return false;
  for (const std::string& op : {graph_.op(first), graph_.op(second)})
    if (is_control_flow(op) || is_outside(op)) return false;
  const std::vector<condition>& c = conditions_[at(second)];
  return std::includes(c.begin(), c.end(), conditions_[at(first)].begin(), conditions_[at(first)].end());
}

bool control_flow::may_hold_back(int next, int first) const {
  if (frame(next) != frame(first) || frame(first) == 0 || is_control_flow(graph_.op(first)) ||
      graph_.node(next).device() != graph_.node(first).device())
    return false;
  const auto of_loop = [&](const condition& decided) {
    const auto& [predicate, output] = decided;
    return output == 1 && graph_.op(predicate.node) == "LoopCond" && frame(predicate.node) == frame(first);
  };
  const std::vector<condition>& c = conditions_[at(next)];
  return std::all_of(conditions_[at(first)].begin(), conditions_[at(first)].end(),
                     [&](const condition& decided) {
                       return of_loop(decided) || std::binary_search(c.begin(), c.end(), decided);
                     });
}

int control_flow::deciding_variable(int condition) const {
  std::vector<int> queue = {condition};
  std::set<int> seen = {condition};
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    for (const source& s : graph_.inputs(i)) {
      if (is_next_iteration(graph_.op(s.node))) {
        const source& value = graph_.inputs(s.node)[0];
        if (!is_control_flow(graph_.op(value.node))) return s.node;
      } else if (frame(s.node) == frame(condition) && seen.insert(s.node).second) {
        queue.push_back(s.node);
      }
    }
  }
  return -1;
}

}  // namespace stash_tf
