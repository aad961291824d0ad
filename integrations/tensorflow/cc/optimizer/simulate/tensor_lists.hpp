// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Lists of tensors in a simulated step: what the ops on them keep alive. Loops hand such lists from one
/// iteration to the next and from a forward to its backward pass. So do branches with optionals, which here
/// are lists of their components.

#include <cstdint>
#include <vector>

#include "optimizer/graph/buffers.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/simulate/executor_iterations.hpp"

namespace stash_tf {

/// How often each loop is simulated. Where that is less often than it runs, iterations in the middle stand
/// for several each, and so do what they put into lists.
class loop_plan {
 public:
  loop_plan(const graph_view& graph, const loops& all);

  std::vector<std::int64_t> simulated() const;
  /// For how many of `count` iterations or elements the one at `position` of those simulated stands.
  double weight(std::int64_t position, std::int64_t count) const;
  std::int64_t simulated(std::int64_t count) const { return count <= most_ ? count : most_; }
  /// Loops with lists, of which nothing says how often they run or which have branches, or that are not
  /// lowered.
  bool is_unknown() const { return unknown_; }

 private:
  std::int64_t middle() const { return most_ / 4; }

  const loops& loops_;
  std::vector<std::int64_t> trips_;
  std::int64_t most_ = 1024;
  bool unknown_ = false;
};

class list_ops {
 public:
  list_ops(const graph_view& graph, const tensor_sizes& sizes, const loops& all, const loop_plan& plan,
           executor_iterations* running, buffers* memory);

  /// Does what the task does with lists; false: it is another op.
  bool run(task t);
  /// Whether a list got something whose size is not known.
  bool is_unknown() const { return unknown_; }

 private:
  enum class kind { none, begin, from_tensor, push, pop, get, set, join, like, wrap, unwrap };

  static kind kind_of(const std::string& op);
  int input(task t, std::size_t k) const;
  void set_output(task t, int port, int value);
  int writable(task t, int list);
  void share(int from, int to);
  void join(task t, int list);
  bool copy(task t, int list);
  void from_tensor(task t);
  void write(task t, int list);
  void pop(task t, int list);
  void get(task t, int list);
  void wrap(task t);
  bool unwrap(task t, int optional);
  std::size_t position(task t) const;

  const graph_view& graph_;
  const tensor_sizes& sizes_;
  const loops& loops_;
  const loop_plan& plan_;
  executor_iterations* running_;
  buffers* memory_;
  std::vector<kind> kind_;
  bool unknown_ = false;
};

}  // namespace stash_tf
