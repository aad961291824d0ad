// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/graph_view.hpp"

#include <charconv>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>

namespace stash_tf {

std::pair<std::string_view, int> parse_input(std::string_view text) {
  if (!text.empty() && text.front() == '^') return {text.substr(1), -1};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {text, 0};
  int port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return {text, 0};
  return {text.substr(0, colon), port};
}

graph_view::graph_view(const tensorflow::GraphDef& graph) {
  const auto count = at(graph.node_size());
  nodes_.reserve(count);
  inputs_.resize(count);
  readers_.resize(count);
  for (const tensorflow::NodeDef& n : graph.node()) {
    if (!by_name_.emplace(n.name(), static_cast<int>(nodes_.size())).second)
      throw std::runtime_error("two nodes are called '" + n.name() + "'");
    nodes_.push_back(&n);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const tensorflow::NodeDef& n = *nodes_[i];
    for (int k = 0; k < n.input_size(); ++k) {
      const auto [name, port] = parse_input(n.input(k));
      const int from = find(name);
      if (from < 0)
        throw std::runtime_error("'" + n.name() + "' reads '" + n.input(k) + "', which is not there");
      inputs_[i].push_back({from, port});
      readers_[at(from)].push_back({static_cast<int>(i), k, port});
    }
  }
  find_loop_ends();
}

// Each variable of a loop is a Merge, of which a Switch hands the value on as the LoopCond says.
void graph_view::find_loop_ends() {
  for (int i = 0; i < size(); ++i) {
    if (op(i) != "LoopCond") continue;
    loop_ends& ends = loop_ends_[i];
    for (const reader& decided : readers(i)) {
      if (decided.input != 1 || inputs(decided.node)[0].is_control()) continue;
      for (const source& s : inputs(inputs(decided.node)[0].node))
        if (is_next_iteration(op(s.node))) ends.next_iterations.push_back(s.node);
      for (const reader& r : readers(decided.node))
        if (r.port >= 0 && (op(r.node) == "Exit" || op(r.node) == "RefExit")) ends.exits.push_back(r.node);
    }
    for (const auto* nodes : {&ends.next_iterations, &ends.exits})
      for (const int end : *nodes)
        loop_of_end_[end] = i;
  }
}

std::vector<int> graph_view::before(int i) const {
  std::vector<int> nodes;
  for (const source& s : inputs(i))
    if (!is_next_iteration(op(s.node))) nodes.push_back(s.node);
  const auto loop = is_next_iteration(op(i)) ? loop_of_end_.end() : loop_of_end_.find(i);
  if (loop != loop_of_end_.end()) {
    const std::vector<int>& last = loop_ends_.at(loop->second).next_iterations;
    nodes.insert(nodes.end(), last.begin(), last.end());
  }
  return nodes;
}

std::vector<int> graph_view::after(int i) const {
  if (is_next_iteration(op(i))) {
    const auto loop = loop_of_end_.find(i);
    return loop == loop_of_end_.end() ? std::vector<int>() : loop_ends_.at(loop->second).exits;
  }
  std::vector<int> nodes;
  for (const reader& r : readers(i))
    nodes.push_back(r.node);
  return nodes;
}

int graph_view::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? -1 : it->second;
}

std::set<int> graph_view::ports_read(int i) const {
  std::set<int> ports;
  for (const reader& r : readers(i))
    if (r.port >= 0) ports.insert(r.port);
  return ports;
}

std::string graph_view::tensor_name(const source& tensor) const {
  if (tensor.is_control()) return "^" + name(tensor.node);
  return tensor.port == 0 ? name(tensor.node) : name(tensor.node) + ":" + std::to_string(tensor.port);
}

std::vector<int> graph_view::topological_order(const std::vector<std::pair<int, int>>& more) const {
  std::vector<int> waiting(nodes_.size(), 0);
  std::multimap<int, int> then;
  for (const auto& [first, second] : more) {
    then.emplace(first, second);
    ++waiting[at(second)];
  }
  std::deque<int> ready;
  for (int i = 0; i < size(); ++i) {
    waiting[at(i)] += static_cast<int>(before(i).size());
    if (waiting[at(i)] == 0) ready.push_back(i);
  }
  std::vector<int> order;
  order.reserve(nodes_.size());
  while (!ready.empty()) {
    const int i = ready.front();
    ready.pop_front();
    order.push_back(i);
    for (const int next : after(i))
      if (--waiting[at(next)] == 0) ready.push_back(next);
    const auto [begin, end] = then.equal_range(i);
    for (auto it = begin; it != end; ++it)
      if (--waiting[at(it->second)] == 0) ready.push_back(it->second);
  }
  return order;
}

std::vector<int> graph_view::positions(const std::vector<int>& order) const {
  std::vector<int> position(at(size()), 0);
  for (std::size_t k = 0; k < order.size(); ++k)
    position[at(order[k])] = static_cast<int>(k);
  return position;
}

bool is_next_iteration(std::string_view op) {
  return op == "NextIteration" || op == "RefNextIteration";
}

bool is_control_flow(std::string_view op) {
  static const std::set<std::string_view> ops = {"Switch",
                                                 "RefSwitch",
                                                 "_SwitchN",
                                                 "Merge",
                                                 "RefMerge",
                                                 "Enter",
                                                 "RefEnter",
                                                 "Exit",
                                                 "RefExit",
                                                 "NextIteration",
                                                 "RefNextIteration",
                                                 "LoopCond",
                                                 "If",
                                                 "StatelessIf",
                                                 "While",
                                                 "StatelessWhile",
                                                 "Case",
                                                 "StatelessCase",
                                                 "PartitionedCall",
                                                 "StatefulPartitionedCall"};
  return ops.count(op) != 0;
}

}  // namespace stash_tf
