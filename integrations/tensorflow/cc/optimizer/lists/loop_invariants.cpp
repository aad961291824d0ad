// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lists/loop_invariants.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/recipes.hpp"
#include "tensorflow/core/framework/op.h"

namespace stash_tf {

namespace {

constexpr std::size_t most_nodes = 16;

bool cuts(const std::string& op) {
  static const std::set<std::string> ops = {"StridedSlice", "Slice", "Split", "SplitV", "Unpack"};
  return ops.count(op) != 0;
}

bool is_constant_enter(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  const auto constant = attr.find("is_constant");
  return is_enter(graph.op(node)) && constant != attr.end() && constant->second.b();
}

// Finds what one element is made of.
class invariant_finder {
 public:
  invariant_finder(const graph_view& graph, const loops& all, int loop)
      : graph_(graph), loops_(all), loop_(loop) {}

  // Adds what has to be copied for this tensor.
  bool is_invariant(const source& s) {
    if (s.is_control() || std::find(nodes_.begin(), nodes_.end(), s.node) != nodes_.end()) return true;
    if (is_constant_enter(graph_, s.node)) return loops_.loop_of(s.node) == loop_;
    const std::string& op = graph_.op(s.node);
    const bool reads = op == "ReadVariableOp";
    if (!reads && op != "Const" && !is_alias(op) && !is_cheap(op) && !cuts(op)) return false;
    if (loops_.loop_of(s.node) != loop_) return false;
    const std::vector<source>& inputs = graph_.inputs(s.node);
    for (const source& in : inputs)
      if (!is_invariant(in)) return false;
    nodes_.push_back(s.node);
    return nodes_.size() <= most_nodes;
  }

  std::vector<int> take() { return std::move(nodes_); }

 private:
  const graph_view& graph_;
  const loops& loops_;
  const int loop_;
  std::vector<int> nodes_;
};

// Whether an op may write a variable: all that has state may, but for these. A call may hide anything.
bool may_write(const std::string& op) {
  static const std::set<std::string> reads = {"ReadVariableOp",
                                              "VariableShape",
                                              "VarIsInitializedOp",
                                              "ResourceGather",
                                              "ResourceGatherNd",
                                              "Assert",
                                              "Print",
                                              "PrintV2",
                                              "RandomUniform",
                                              "RandomUniformInt",
                                              "RandomStandardNormal",
                                              "TruncatedNormal",
                                              "Multinomial"};
  const tensorflow::OpDef* def = nullptr;
  return reads.count(op) == 0 &&
         (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &def).ok() || def->is_stateful());
}

// Loops that may write variables themselves, or within a loop of theirs.
std::set<int> writing_loops(const graph_view& graph, const loops& all) {
  std::set<int> writing;
  for (int i = 0; i < graph.size(); ++i) {
    if (all.loop_of(i) == 0 || !may_write(graph.op(i))) continue;
    for (int k = all.loop_of(i); k > 0; k = all[k].parent)
      writing.insert(k);
  }
  return writing;
}

}  // namespace

std::vector<loop_invariant> loop_invariants(const graph_view& graph, const loops& all, const step& analysis) {
  std::vector<loop_invariant> found;
  const std::set<int> writing = writing_loops(graph, all);
  for (std::size_t k = 0; k < analysis.lists.size(); ++k) {
    const listed_block& b = analysis.lists[k];
    const int forward = all.loop_of(b.list.push), backward = all.loop_of(b.list.pop);
    const auto begins_outside = [&](int loop) { return loop > 0 && all[loop].parent == 0; };
    if (!b.element.raw_because.empty() || !begins_outside(forward) || !begins_outside(backward) ||
        writing.count(forward) != 0)
      continue;
    if (is_asked_for_shape(graph, b) && !b.element.size.is_fixed()) continue;
    invariant_finder finder(graph, all, forward);
    if (!finder.is_invariant(b.list.element)) continue;
    found.push_back({static_cast<int>(k), forward, finder.take()});
  }
  return found;
}

}  // namespace stash_tf
