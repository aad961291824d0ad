#include "optimizer/control_flow.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/strings/match.h"

namespace stash_tf {

namespace {

bool is_switch(const std::string& op) {
  return absl::EndsWith(op, "Switch") || op == "_SwitchN";
}
bool is_enter(const std::string& op) {
  return op == "Enter" || op == "RefEnter";
}
bool is_exit(const std::string& op) {
  return op == "Exit" || op == "RefExit";
}
bool is_merge(const std::string& op) {
  return op == "Merge" || op == "RefMerge";
}

// Arguments and results are not part of a function's body: no control edge may touch them.
bool is_outside(const std::string& op) {
  return op == "_Arg" || op == "_DeviceArg" || op == "_Retval" || op == "_DeviceRetval";
}

}  // namespace

control_flow::control_flow(const graph_view& graph, const std::vector<int>& order) : graph_(graph) {
  constexpr int most_outputs = 4;
  frame_.assign(at(graph.size()), 0);
  conditions_.resize(at(graph.size()));
  std::map<std::pair<int, std::string>, int> frames;
  std::vector<int> parent = {0};
  for (const int i : order) {
    const std::string& op = graph.op(i);
    int frame = 0;
    std::vector<int> conditions;
    bool first = true;
    for (const source& s : graph.inputs(i)) {
      if (is_next_iteration(graph.op(s.node))) continue;
      frame = std::max(frame, frame_[at(s.node)]);
      std::vector<int> of_input = conditions_[at(s.node)];
      if (is_switch(graph.op(s.node)) && !s.is_control()) {
        const int condition = most_outputs * s.node + std::min(s.port, most_outputs - 1);
        of_input.insert(std::lower_bound(of_input.begin(), of_input.end(), condition), condition);
      }
      std::vector<int> joined;
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
    if (is_enter(op)) {
      const auto name = graph.node(i).attr().find("frame_name");
      const std::string text = name == graph.node(i).attr().end() ? "" : name->second.s();
      const auto [it, is_new] = frames.emplace(std::make_pair(frame, text), static_cast<int>(parent.size()));
      if (is_new) parent.push_back(frame);
      frame = it->second;
    } else if (is_exit(op)) {
      frame = parent[at(frame)];
    }
    frame_[at(i)] = frame;
    conditions_[at(i)] = std::move(conditions);
  }
}

bool control_flow::may_wait(int second, int first) const {
  if (frame_[at(second)] != frame_[at(first)] || graph_.node(second).device() != graph_.node(first).device())
    return false;
  for (const std::string& op : {graph_.op(first), graph_.op(second)})
    if (is_control_flow(op) || is_outside(op)) return false;
  const std::vector<int>& c = conditions_[at(second)];
  return std::includes(c.begin(), c.end(), conditions_[at(first)].begin(), conditions_[at(first)].end());
}

}  // namespace stash_tf
