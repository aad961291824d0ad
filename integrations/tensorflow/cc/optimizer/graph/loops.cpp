// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/loops.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "optimizer/graph/constants.hpp"
#include "optimizer/graph/list_sources.hpp"

namespace stash_tf {

namespace {

using number = std::optional<std::int64_t>;

constexpr int most_steps = 64;                              // between a limit and what gives it
constexpr int most_depth = 8;                               // of counters that begin where others have ended
constexpr std::int64_t most_trips = std::int64_t{1} << 24;  // more stand for "no limit"

// A variable that grows by a constant from one iteration to the next.
struct counter {
  std::int64_t start = 0;
  std::int64_t step = 0;
};

// Reads constants out of the conditions of loops.
class condition_reader {
 public:
  condition_reader(const graph_view& graph, const loops& all) : graph_(graph), all_(all) {}

  // How often a loop with this condition runs; -1: that is not known.
  std::int64_t trips(const source& condition, int loop_number, int depth = 0) const {
    const std::string& op = graph_.op(condition.node);
    const std::vector<source>& inputs = graph_.inputs(condition.node);
    if (depth > most_steps || inputs.empty()) return -1;
    if (op == "Identity" || op == "LoopCond") return trips(inputs[0], loop_number, depth + 1);
    if (inputs.size() < 2) return -1;
    if (op == "LogicalAnd") {
      const std::int64_t a = trips(inputs[0], loop_number, depth + 1);
      const std::int64_t b = trips(inputs[1], loop_number, depth + 1);
      return std::min(a, b);  // what only one side limits may end long before
    }
    const bool less = op == "Less" || op == "LessEqual";
    if (!less && op != "Greater" && op != "GreaterEqual") return -1;
    const std::optional<counter> counting = counter_of(inputs[less ? 0 : 1], loop_number);
    const number limit = value_of(inputs[less ? 1 : 0]);
    if (!counting || !limit) return -1;
    if (*limit > most_trips || counting->start < -most_trips || counting->step > most_trips) return -1;
    const std::int64_t end = *limit + (absl::EndsWith(op, "Equal") ? 1 : 0);
    return std::max<std::int64_t>(0, (end - counting->start + counting->step - 1) / counting->step);
  }

 private:
  source past_identities(source s) const {
    for (int k = 0; k < most_steps && graph_.op(s.node) == "Identity"; ++k)
      s = graph_.inputs(s.node)[0];
    return s;
  }

  // What a loop begins with in this variable, and what its body makes of it.
  std::optional<std::pair<source, source>> variable(const source& merge) const {
    if (!is_merge(graph_.op(merge.node))) return std::nullopt;
    std::optional<source> first, next;
    for (const source& s : graph_.inputs(merge.node)) {
      if (is_next_iteration(graph_.op(s.node))) {
        next = graph_.inputs(s.node)[0];
      } else if (is_enter(graph_.op(s.node))) {
        first = graph_.inputs(s.node)[0];
      }
    }
    if (!first || !next) return std::nullopt;
    return std::make_pair(*first, *next);
  }

  bool is_switch_of(const source& s, int merge) const {
    const source from = past_identities(s);
    return is_switch(graph_.op(from.node)) && graph_.inputs(from.node)[0].node == merge;
  }

  std::optional<counter> counter_of(const source& s, int loop_number, int depth = 0) const {
    const source merge = past_identities(s);
    const auto found = variable(merge);
    if (!found || all_.loop_of(merge.node) != loop_number) return std::nullopt;
    const number start = value_of(found->first, depth);
    const source sum = past_identities(found->second);
    const std::string& op = graph_.op(sum.node);
    if (!start || (op != "AddV2" && op != "Add")) return std::nullopt;
    for (const int k : {0, 1}) {
      if (!is_switch_of(graph_.inputs(sum.node)[at(k)], merge.node)) continue;
      const number step = value_of(graph_.inputs(sum.node)[at(1 - k)], depth);
      if (step && *step > 0) return counter{*start, *step};
    }
    return std::nullopt;
  }

  // A constant, also one that a loop was given and leaves as it is, or what another loop has counted up to.
  number value_of(source s, int depth = 0) const {
    for (int k = 0; k < most_steps && depth < most_depth; ++k) {
      s = past_identities(s);
      if (const number value = constant_integer(graph_, s.node)) return value;
      const std::string& op = graph_.op(s.node);
      if (is_enter(op)) {
        s = graph_.inputs(s.node)[0];
      } else if (op == "TensorListPopBack" && s.port == 1) {
        // What an inner loop has counted up to in every iteration of the outer one.
        const list_sources from = sources_of_list(graph_, graph_.inputs(s.node)[0]);
        if (from.elements.size() != 1 || !from.wholes.empty()) return std::nullopt;
        s = from.elements[0];
      } else if (is_exit(op)) {
        const source merge = merge_of(graph_.inputs(s.node)[0]);
        if (merge.node < 0) return std::nullopt;
        const int inner = all_.loop_of(merge.node);
        if (const auto counting = counter_of(merge, inner, depth + 1); counting && all_[inner].trips >= 0)
          return counting->start + counting->step * all_[inner].trips;
        s = merge;
      } else if (const source merge = is_merge(op) ? s : merge_of(s); merge.node >= 0) {
        const auto found = variable(merge);
        if (!found || !is_switch_of(found->second, merge.node)) return std::nullopt;
        s = found->first;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  source merge_of(const source& from_switch) const {
    if (!is_switch(graph_.op(from_switch.node))) return {};
    const source merge = graph_.inputs(from_switch.node)[0];
    return is_merge(graph_.op(merge.node)) ? merge : source{};
  }

  const graph_view& graph_;
  const loops& all_;
};

}  // namespace

bool is_switch(const std::string& op) {
  return absl::EndsWith(op, "Switch") || op == "_SwitchN";
}

bool is_merge(const std::string& op) {
  return op == "Merge" || op == "RefMerge";
}

bool is_enter(const std::string& op) {
  return op == "Enter" || op == "RefEnter";
}

bool is_exit(const std::string& op) {
  return op == "Exit" || op == "RefExit";
}

loops::loops(const graph_view& graph, const std::vector<int>& order) : graph_(graph) {
  of_node_.assign(at(graph.size()), 0);
  std::map<std::pair<int, std::string>, int> numbers;
  for (const int i : order) {
    const std::string& op = graph.op(i);
    int loop = 0;
    for (const source& s : graph.inputs(i))
      if (!is_next_iteration(graph.op(s.node))) loop = std::max(loop, of_node_[at(s.node)]);
    if (is_enter(op)) {
      const auto& attr = graph.node(i).attr();
      const auto name = attr.find("frame_name");
      const std::string text = name == attr.end() ? "" : name->second.s();
      const auto [it, is_new] = numbers.emplace(std::make_pair(loop, text), size());
      if (is_new) {
        const auto parallel = attr.find("parallel_iterations");
        const std::int64_t width = parallel == attr.end() ? 1 : parallel->second.i();
        all_.push_back({loop, static_cast<int>(std::clamp<std::int64_t>(width, 1, 1 << 20))});
      }
      loop = it->second;
      all_[at(loop)].enters.push_back(i);
    } else if (is_exit(op)) {
      loop = all_[at(loop)].parent;
    }
    of_node_[at(i)] = loop;
  }
  count_trips(order);
}

// Loops that others take their limit from come before these.
void loops::count_trips(const std::vector<int>& order) {
  const condition_reader reader(graph_, *this);
  for (const int i : order)
    if (graph_.op(i) == "LoopCond") all_[at(loop_of(i))].trips = reader.trips({i, 0}, loop_of(i));
}

}  // namespace stash_tf
