// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/carried_lists.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "optimizer/graph/loops.hpp"

namespace stash_tf {

namespace {

// Ops that hand a list on as it is, by their first input (a Merge by any).
bool hands_on(const std::string& op) {
  return op == "Identity" || is_merge(op) || is_switch(op) || is_enter(op) || is_exit(op) ||
         is_next_iteration(op);
}

// Follows one list from op to op.
class follower {
 public:
  explicit follower(const graph_view& graph) : graph_(graph) {}

  std::optional<carried_list> run(int begin, const reader& first) {
    found_.begin = begin;
    found_.first = first;
    lists_.insert({begin, 0});
    read(first);
    while (!queue_.empty() && is_plain_) {
      const source list = queue_.back();
      queue_.pop_back();
      for (const reader& r : graph_.readers(list.node))
        if (r.port == list.port) read(r);
    }
    if (!is_plain_ || found_.push < 0 || found_.pop < 0 || !is_alone()) return std::nullopt;
    found_.element = graph_.inputs(found_.push)[1];
    return found_;
  }

 private:
  void follow(const source& list) {
    if (lists_.insert(list).second) queue_.push_back(list);
  }

  void read(const reader& r) {
    const std::string& op = graph_.op(r.node);
    if (op == "TensorListPushBack" && r.input == 0) return take(r.node, &found_.push);
    if (op == "TensorListPopBack" && r.input == 0) return take(r.node, &found_.pop);
    if (!hands_on(op) || (r.input != 0 && !is_merge(op))) {
      is_plain_ = false;
      return;
    }
    for (const int port : graph_.ports_read(r.node))
      if (port == 0 || is_switch(op)) follow({r.node, port});
  }

  // Of each kind there may be one.
  void take(int node, int* op) {
    is_plain_ = is_plain_ && (*op < 0 || *op == node);
    *op = node;
    follow({node, 0});
  }

  // What a Merge joins with the list must be the same list.
  bool is_alone() const {
    return std::all_of(lists_.begin(), lists_.end(), [&](const source& list) {
      if (!is_merge(graph_.op(list.node))) return true;
      const std::vector<source>& inputs = graph_.inputs(list.node);
      return std::all_of(inputs.begin(), inputs.end(),
                         [&](const source& s) { return s.is_control() || lists_.count(s) != 0; });
    });
  }

  const graph_view& graph_;
  carried_list found_;
  std::set<source> lists_;
  std::vector<source> queue_;
  bool is_plain_ = true;
};

}  // namespace

std::vector<carried_list> carried_lists(const graph_view& graph) {
  std::vector<carried_list> lists;
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.op(i) != "EmptyTensorList") continue;
    for (const reader& first : graph.readers(i)) {
      if (first.port != 0) continue;
      if (const std::optional<carried_list> list = follower(graph).run(i, first)) lists.push_back(*list);
    }
  }
  return lists;
}

}  // namespace stash_tf
