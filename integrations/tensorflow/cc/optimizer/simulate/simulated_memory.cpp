// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/simulated_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/plan/workspace.hpp"
#include "optimizer/simulate/folding.hpp"

namespace stash_tf {

namespace {

bool is_result(const std::string& op) {
  return op == "_Retval" || op == "_DeviceRetval";
}

bool may_take_input(const std::string& op) {
  return may_write_in_place(op) || op == "StashReluGrad" || op == "StashRelu6Grad" ||
         op == "StashLeakyReluGrad";
}

std::vector<std::vector<int>> views_of(const graph_view& graph, const tensor_sizes& sizes) {
  std::vector<std::vector<int>> views(at(graph.size()));
  for (int i = 0; i < graph.size(); ++i) {
    const bool hands_on = is_control_flow(graph.op(i));
    const std::set<int> read = graph.ports_read(i);
    if (read.empty()) continue;
    for (int port = 0; port <= *read.rbegin(); ++port)
      views[at(i)].push_back(hands_on ? (graph.inputs(i).empty() ? -1 : 0)
                                      : viewed_input(graph, sizes, {i, port}));
  }
  return views;
}

}  // namespace

simulated_memory::simulated_memory(const graph_view& graph, const graph_view& original,
                                   const tensor_sizes& sizes, const step& analysis, const choices& chosen)
    : graph_(graph),
      original_(original),
      sizes_(sizes),
      step_(analysis),
      outputs_(graph, original, sizes, analysis, chosen),
      views_(views_of(graph, sizes)),
      sorted_(graph.topological_order()),
      position_(graph.positions(sorted_)),
      folded_(folded_nodes(graph, sorted_, outputs_, analysis.on_device)),
      loops_(graph, sorted_),
      plan_(graph, loops_),
      iterations_(graph, loops_, plan_.simulated()),
      variables_(graph, &buffers_),
      lists_(graph, sizes, loops_, plan_, &iterations_, &buffers_) {}

simulated_op simulated_memory::begin(task t) {
  const std::int64_t workspace = workspace_of(t.node);
  const std::int64_t before = buffers_.live_bytes();
  simulated_op now{t.node, 0, largest_input(t), 0};
  if (!lists_.run(t)) now.takes = make_outputs(t);
  now.takes += workspace + buffers_.live_bytes() - before;
  now.holds = std::max(now.holds, now.takes);
  now.live = buffers_.live_bytes() + workspace;
  return now;
}

std::vector<task> simulated_memory::end(task t) {
  // Results stay until the caller has them, after the end.
  if (!is_result(graph_.op(t.node)))
    for (const source& s : graph_.inputs(t.node))
      if (!iterations_.holds(s)) buffers_.release(iterations_.value(t, s));
  std::vector<task> ready = iterations_.end(t);
  for (const int b : iterations_.left())
    buffers_.release(b);
  return ready;
}

bool simulated_memory::is_wanted(task t) const {
  const int b = iterations_.output(t, 0);
  return b >= 0 && buffers_.holders(b) > 0;
}

bool simulated_memory::has_unknown_lists() const {
  return plan_.is_unknown() || (loops_.size() > 1 && (lists_.is_unknown() || !iterations_.is_complete()));
}

// Returns how much more it would have taken if others still read what it writes over.
std::int64_t simulated_memory::make_outputs(task t) {
  const int i = t.node;
  const std::string& op = graph_.op(i);
  std::int64_t more = 0;
  variables_.update(i);
  const int readers = op == "ReadVariableOp" ? iterations_.readers(t, 0) : 0;
  if (readers > 0) iterations_.set_value(t, 0, variables_.read(i, readers, bytes({i, 0})));
  if (is_held_elsewhere(op) || folded_[at(i)]) return 0;
  for (const int port : graph_.ports_read(i)) {
    const int count = iterations_.readers(t, port);
    if (count == 0) continue;
    const int from = handed_on_from(i, port);
    if (from >= 0) {
      const int b = handed_on(t, from);
      buffers_.hold(b, count);
      iterations_.set_value(t, port, b);
      continue;
    }
    const std::int64_t bytes = outputs_.bytes({i, port});
    if (bytes == 0) continue;
    const int taken = port == 0 && may_take_input(op) ? dying_input(t, bytes) : buffers::none;
    if (taken >= 0) {
      // Earlier, while others still read that buffer, it would have taken one of its own.
      if (is_shared(i)) more += bytes;
      buffers_.hold(taken, count);
    }
    iterations_.set_value(t, port, taken >= 0 ? taken : buffers_.add(bytes, count, op == "StashSwapOut"));
  }
  return more;
}

// That input's buffer, or that of the one which the iteration begins with.
int simulated_memory::handed_on(task t, int from) const {
  const std::vector<source>& inputs = graph_.inputs(t.node);
  if (!is_merge(graph_.op(t.node))) return iterations_.value(t, inputs[at(from)]);
  for (const source& s : inputs)
    if (const int b = iterations_.value(t, s); b >= 0) return b;
  return buffers::none;
}

int simulated_memory::dying_input(task t, std::int64_t bytes) const {
  for (const source& s : graph_.inputs(t.node)) {
    if (s.is_control()) continue;
    const int b = iterations_.value(t, s);
    if (b >= 0 && buffers_.holders(b) == 1 && buffers_.bytes(b) == bytes) return b;
  }
  return buffers::none;
}

std::int64_t simulated_memory::workspace_of(int i) const {
  const bool known = !step_.on_device && i < original_.size() && graph_.op(i) == original_.op(i);
  return known ? workspace_bytes(original_, i, sizes_, step_.threads) : 0;
}

std::int64_t simulated_memory::largest_input(task t) const {
  std::int64_t largest = 0;
  for (const source& s : graph_.inputs(t.node))
    largest = std::max(largest, buffers_.bytes(iterations_.value(t, s)));
  return largest;
}

// Whether an input has other readers.
bool simulated_memory::is_shared(int i) const {
  for (const source& s : graph_.inputs(i)) {
    if (s.is_control()) continue;
    for (const reader& r : graph_.readers(s.node))
      if (r.port == s.port && r.node != i) return true;
  }
  return false;
}

std::int64_t simulated_memory::growth(task t) const {
  std::int64_t sum = own_growth(t);
  const std::int64_t result = bytes({t.node, 0});
  int next = only_reader(t);
  while (next >= 0 && is_alias(graph_.op(next)))
    next = only_reader({next, t.run});
  if (next >= 0) sum += std::min<std::int64_t>(0, own_growth({next, t.run}) - result);
  return sum;
}

// -1: there is none, or it waits for others, too.
int simulated_memory::only_reader(task t) const {
  const std::vector<reader>& readers = graph_.readers(t.node);
  if (readers.size() != 1 || readers[0].port < 0) return -1;
  const int next = readers[0].node;
  return loops_.loop_of(next) == loops_.loop_of(t.node) && iterations_.waits_for_one({next, t.run}) ? next
                                                                                                    : -1;
}

std::int64_t simulated_memory::own_growth(task t) const {
  if (is_control_flow(graph_.op(t.node))) return 0;
  std::int64_t sum = 0;
  for (const int port : graph_.ports_read(t.node)) {
    if (handed_on_from(t.node, port) >= 0) return 0;
    sum += bytes({t.node, port});
  }
  std::map<int, int> held;  // how often, by buffer
  for (const source& s : graph_.inputs(t.node))
    if (const int b = iterations_.value(t, s); b >= 0) ++held[b];
  for (const auto& [number, times] : held)
    if (buffers_.holders(number) == times) sum -= buffers_.bytes(number);
  return sum;
}

std::int64_t simulated_memory::needed(task t) const {
  std::int64_t sum = buffers_.live_bytes() + workspace_of(t.node);
  if (is_control_flow(graph_.op(t.node))) return sum;
  for (const int port : graph_.ports_read(t.node)) {
    if (handed_on_from(t.node, port) >= 0) continue;
    const std::int64_t bytes = outputs_.bytes({t.node, port});
    const bool in_place = port == 0 && may_take_input(graph_.op(t.node)) && dying_input(t, bytes) >= 0;
    if (!in_place) sum += bytes;
  }
  return sum;
}

}  // namespace stash_tf
