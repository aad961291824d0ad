// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How much memory a step leaves free, at which time.

#include <cstdint>
#include <vector>

namespace stash_tf {

class headroom {
 public:
  /// Nodes in the order in which they run, and how many bytes are free while each of them does.
  headroom(const std::vector<int>& order, std::vector<std::int64_t> free_bytes);

  /// Whether it runs. Loops count by their first iteration.
  bool knows(int node) const { return position(node) >= 0; }
  /// The later one of two nodes; -1 comes before all.
  int later(int node, int other) const { return position(node) > position(other) ? node : other; }
  /// Takes so many bytes after the run of `first` until that of `last`. False, and nothing is taken, if they
  /// are not free all the time. True where `last` does not come later.
  bool take(int first, int last, std::int64_t bytes);

 private:
  int position(int node) const;

  std::vector<int> position_;       // by node
  std::vector<std::int64_t> free_;  // by position
};

}  // namespace stash_tf
