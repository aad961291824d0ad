// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A graph by numbers: who reads what, in both directions. It keeps pointers into the GraphDef, which must
/// outlive it.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// Nodes, ports and inputs are numbered with int, with -1 for none; where a container is indexed they are
/// never negative.
constexpr std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// An output of a node; port -1 is its end, which control edges wait for.
struct source {
  int node = -1;
  int port = 0;

  bool is_control() const { return port < 0; }
  friend bool operator==(const source& a, const source& b) { return a.node == b.node && a.port == b.port; }
  friend bool operator<(const source& a, const source& b) {
    return a.node != b.node ? a.node < b.node : a.port < b.port;
  }
};

/// Somebody who reads an output, or waits for the node (port -1): input `input` of node `node`.
struct reader {
  int node = -1;
  int input = 0;
  int port = 0;
};

/// "a/b:1" -> {"a/b", 1}, "^a/b" -> {"a/b", -1}.
std::pair<std::string_view, int> parse_input(std::string_view text);

class graph_view {
 public:
  /// Throws std::runtime_error if a name is not unique or an input is missing.
  explicit graph_view(const tensorflow::GraphDef& graph);

  int size() const { return static_cast<int>(nodes_.size()); }
  const tensorflow::NodeDef& node(int i) const { return *nodes_[at(i)]; }
  const std::string& op(int i) const { return node(i).op(); }
  const std::string& name(int i) const { return node(i).name(); }
  /// -1 if there is none.
  int find(std::string_view name) const;
  const std::vector<source>& inputs(int i) const { return inputs_[at(i)]; }
  const std::vector<reader>& readers(int i) const { return readers_[at(i)]; }
  /// Outputs of `i` that somebody reads.
  std::set<int> ports_read(int i) const;
  /// "a/b", or "a/b:1".
  std::string tensor_name(const source& tensor) const;

  /// Nodes that have run when `i` does; one that `i` reads twice is there twice. What the iteration before
  /// hands on does not count, and an Exit runs when the last iteration has: after the NextIterations of its
  /// loop, though it may read none of them.
  std::vector<int> before(int i) const;
  /// The other way round: j is in before(i) as often as i is in after(j).
  std::vector<int> after(int i) const;

  /// Every node after those that it waits for; among those that are ready, the one that became ready first.
  /// Shorter than size() if there is a cycle. `more`: edges (first, then) besides those of the graph.
  std::vector<int> topological_order(const std::vector<std::pair<int, int>>& more = {}) const;
  /// By node: its position in an order; 0 if it is not there.
  std::vector<int> positions(const std::vector<int>& order) const;

 private:
  struct loop_ends {
    std::vector<int> next_iterations, exits;
  };

  void find_loop_ends();

  std::vector<const tensorflow::NodeDef*> nodes_;
  std::unordered_map<std::string_view, int> by_name_;
  std::vector<std::vector<source>> inputs_;
  std::vector<std::vector<reader>> readers_;
  std::unordered_map<int, loop_ends> loop_ends_;  // by LoopCond
  std::unordered_map<int, int> loop_of_end_;      // LoopCond, by NextIteration or Exit
};

bool is_next_iteration(std::string_view op);
/// Switch, Merge, Enter, Exit, NextIteration, LoopCond and their Ref forms.
bool is_control_flow(std::string_view op);

}  // namespace stash_tf
