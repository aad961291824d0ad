// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The loops of a graph whose control flow has been lowered to Switch, Merge, Enter and Exit: which nodes run
/// in which, and how often.

#include <cstdint>
#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

bool is_switch(const std::string& op);
bool is_merge(const std::string& op);
bool is_enter(const std::string& op);
bool is_exit(const std::string& op);

/// One loop; number 0 is the graph outside of all loops.
struct loop {
  int parent = 0;
  int parallel_iterations = 1;
  std::int64_t trips = -1;       ///< how often its body runs; -1: not known
  std::vector<int> enters = {};  ///< what brings values in
};

class loops {
 public:
  /// `order` is topological (graph_view).
  loops(const graph_view& graph, const std::vector<int>& order);

  /// The loop in which a node runs. An Enter belongs to the loop that it leads into, an Exit to the one that
  /// it leads out to.
  int loop_of(int node) const { return of_node_[at(node)]; }
  int size() const { return static_cast<int>(all_.size()); }
  const loop& operator[](int number) const { return all_[at(number)]; }

 private:
  void count_trips(const std::vector<int>& order);

  const graph_view& graph_;
  std::vector<int> of_node_;
  std::vector<loop> all_ = {loop{}};
};

}  // namespace stash_tf
