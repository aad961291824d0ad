// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The values of variables that a simulated step has read.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "optimizer/graph/buffers.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// What is read of a variable is its own buffer, and takes nothing. An update copies a variable whose old
/// value is still wanted, and leaves that to those who have read it: from then on it takes what the variable
/// takes.
class variable_reads {
 public:
  variable_reads(const graph_view& graph, buffers* all) : graph_(graph), buffers_(all) {}

  /// A ReadVariableOp whose result so many read. Returns that, a buffer; none: it is not known of which
  /// variable.
  int read(int node, int readers, std::int64_t bytes);
  /// Any op that begins.
  void update(int node);

 private:
  using value = std::pair<int, std::int64_t>;  // a buffer, and what it would take

  const graph_view& graph_;
  buffers* buffers_;
  std::map<source, std::vector<value>> read_of_;  // by variable
};

}  // namespace stash_tf
