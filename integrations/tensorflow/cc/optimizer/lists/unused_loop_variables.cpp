// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lists/unused_loop_variables.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/marks.hpp"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;

// A node that others have to be on the same device with is named in their attributes.
std::set<std::string> colocated_with(const GraphDef& graph) {
  std::set<std::string> names;
  for (const NodeDef& n : graph.node())
    if (const auto found = n.attr().find("_class"); found != n.attr().end())
      for (const std::string& where : found->second.list().s())
        names.emplace(absl::StripPrefix(where, "loc:@"));
  return names;
}

class unused_finder {
 public:
  explicit unused_finder(const GraphDef& graph) : graph_(graph), unused_(at(graph_.size()), false) {
    const std::set<std::string> named = colocated_with(graph);
    for (int i = 0; i < graph_.size(); ++i)
      unused_[at(i)] = passes_on(i) && named.count(graph_.name(i)) == 0;
  }

  std::vector<bool> run() {
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < graph_.size(); ++i) {
        if (!unused_[at(i)] || !is_used(i)) continue;
        unused_[at(i)] = false;
        changed = true;
      }
      changed = keep_an_end() || changed;
    }
    return unused_;
  }

 private:
  bool passes_on(int i) const {
    const std::string& op = graph_.op(i);
    return is_enter(op) || is_merge(op) || is_switch(op) || is_exit(op) || is_next_iteration(op) ||
           (op == "Identity" && is_marked(graph_, i));
  }

  // What waits for the end of a loop needs no variable for it, as long as there is another one.
  bool awaits_end(int i, int exit) const { return is_exit(graph_.op(exit)) && graph_.op(i) == "NoOp"; }

  // The end of a variable that stays is waited for: an iteration may do what nothing else tells.
  bool is_used(int i) const {
    if (is_exit(graph_.op(i)) && !unused_[at(graph_.inputs(i)[0].node)]) return true;
    const auto& readers = graph_.readers(i);
    return std::any_of(readers.begin(), readers.end(),
                       [&](const reader& r) { return !unused_[at(r.node)] && !awaits_end(r.node, i); });
  }

  // The LoopCond that decides when a variable leaves its loop.
  int condition_of(int exit) const { return graph_.inputs(graph_.inputs(exit)[0].node)[1].node; }

  // Exits stay where no other one would tell that their loop has ended.
  bool keep_an_end() {
    bool changed = false;
    for (int i = 0; i < graph_.size(); ++i) {
      if (graph_.op(i) != "NoOp") continue;
      std::set<int> told;
      std::vector<int> gone;
      for (const source& s : graph_.inputs(i)) {
        if (!is_exit(graph_.op(s.node))) continue;
        if (unused_[at(s.node)]) {
          gone.push_back(s.node);
        } else {
          told.insert(condition_of(s.node));
        }
      }
      for (const int exit : gone) {
        if (told.count(condition_of(exit)) != 0) continue;
        unused_[at(exit)] = false;
        changed = true;
      }
    }
    return changed;
  }

  const graph_view graph_;
  std::vector<bool> unused_;
};

}  // namespace

int remove_unused_loop_variables(GraphDef* graph) {
  const std::vector<bool> unused = unused_finder(*graph).run();
  const auto count = static_cast<int>(std::count(unused.begin(), unused.end(), true));
  if (count == 0) return 0;
  std::set<std::string> gone;
  GraphDef kept;
  for (int i = 0; i < graph->node_size(); ++i)
    if (unused[at(i)]) gone.insert("^" + graph->node(i).name());
  for (int i = 0; i < graph->node_size(); ++i) {
    if (unused[at(i)]) continue;
    NodeDef* n = graph->mutable_node(i);
    auto* inputs = n->mutable_input();
    inputs->erase(std::remove_if(inputs->begin(), inputs->end(),
                                 [&](const std::string& name) { return gone.count(name) != 0; }),
                  inputs->end());
    kept.add_node()->Swap(n);
  }
  graph->mutable_node()->Swap(kept.mutable_node());
  return count;
}

}  // namespace stash_tf
