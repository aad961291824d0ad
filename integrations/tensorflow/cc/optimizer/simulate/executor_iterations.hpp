// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which nodes of a graph with loops are ready: every iteration of a loop runs its nodes anew, and several
/// iterations may be under way at a time, as TensorFlow's executor has it. Branches are taken to run both.

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "optimizer/graph/buffers.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"

namespace stash_tf {

/// A node in one iteration.
struct task {
  int node = -1;
  int run = 0;
};

class executor_iterations {
 public:
  /// `trips`: how often each loop runs, by its number.
  executor_iterations(const graph_view& graph, const loops& all, std::vector<std::int64_t> trips);

  /// What is ready at the beginning.
  std::vector<task> first();
  /// What is ready now that a task has ended, in the order in which the executor finds it.
  std::vector<task> end(task t);
  /// Whether a task waits for one more node only.
  bool waits_for_one(task t) const { return waiting(t) == 1; }

  /// Number of the iteration.
  std::int64_t number(int run) const { return all_[at(run)].number; }
  /// Whether it is the first iteration of its loop, within first iterations of all loops around it.
  bool is_first(int run) const;
  std::int64_t trips(int run) const { return trips_[at(all_[at(run)].loop)]; }

  /// What was set for an input that a task reads; `none` where nothing was.
  int value(task t, const source& input) const;
  int output(task t, int port) const { return all_[at(t.run)].values[at(slot_[at(t.node)] + port)]; }
  void set_value(task t, int port, int value);
  /// How many tasks will read an output. What a loop was given once and for all it holds itself to its end.
  int readers(task t, int port) const;
  /// Whether a loop holds this output itself.
  bool holds(const source& s) const { return role_[at(s.node)] == role::constant; }
  /// Whether everything outside of loops has run, and every loop that was entered has ended.
  bool is_complete() const;
  /// Buffers that loops which have ended since the last call held themselves.
  std::vector<int> left() { return std::exchange(left_, {}); }

 private:
  enum class role { plain, enter, constant, exit, merge, switches, next };

  struct iteration {
    int loop = 0;
    int activation = -1;
    std::int64_t number = 0;
    int under_way = 0;  ///< tasks that are ready or run, and loops within
    std::vector<int> waiting = {};
    std::vector<int> values = {};
  };

  /// A loop that has been entered.
  struct activation {
    int loop = 0;
    int parent = 0;  ///< the iteration around it
    int enters_to_come = 0;
    std::size_t oldest = 0;  ///< of the iterations that are under way
    std::vector<int> iterations = {};
    std::vector<task> arrived = {};    ///< Enters whose values are for all iterations
    std::vector<task> postponed = {};  ///< NextIterations that lead into an iteration which may not begin yet
    bool is_over = false;
  };

  static role role_of(const graph_view& graph, const loops& all, int node);
  int waiting(task t) const { return all_[at(t.run)].waiting[at(index_[at(t.node)])]; }
  int parent_of(int run) const;
  int run_of_value(task t, const source& input) const;
  int run_of_reader(task t, const reader& r, std::vector<task>* ready);
  bool is_chosen(task t, int port) const;
  int enter(int loop, int parent, std::vector<task>* ready);
  int begin_iteration(int activation, std::vector<task>* ready);
  void hand_on(task next, std::vector<task>* ready);
  void bring(task t, std::vector<task>* ready);
  void arrive(task t, std::vector<task>* ready);
  void finish(int run, std::vector<task>* ready);

  const graph_view& graph_;
  const loops& loops_;
  const std::vector<std::int64_t> trips_;
  std::vector<role> role_;
  std::vector<int> index_, slot_;  // of a node within its loop; of its first output
  std::vector<std::vector<int>> waiting_first_, waiting_later_;  // by loop and index
  std::vector<int> slots_;                                       // by loop
  std::vector<iteration> all_;
  std::deque<activation> activations_;          // references stay valid when another loop is entered
  std::map<std::pair<int, int>, int> entered_;  // activation by iteration and loop
  std::map<std::pair<int, int>, int> leaving_;  // iteration from which a value comes, by iteration and Exit
  std::vector<int> left_;
  int to_come_ = 0;  ///< nodes outside of loops that have not run
};

}  // namespace stash_tf
