// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which of the nodes that are ready a simulated step runs first.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/simulate/simulated_memory.hpp"

namespace stash_tf {

/// Which node of the backward pass goes first where several could.
enum class backward_order {
  as_executor,  ///< as TensorFlow does it
  frees_first,  ///< what lets memory fall, the most first; else as it is
  /// What lets memory grow the least; of equal ones, what is read first. So terms of a sum come in the order
  /// of their additions: those of later ones would lie there until the earlier ones are done.
  least_growth,
  least_growth_read_last,  ///< the same, but what is read last: what it is read with may take more memory
  below_bound,  ///< what keeps memory below a bound while it runs, or else takes the least; else as it is
};

/// Which node of the forward pass does.
enum class forward_order {
  as_executor,   ///< as TensorFlow does it: of branches, one layer of each after the other
  least_growth,  ///< what lets memory grow the least: one branch after the other, where their maps are
                 ///< encoded
  least_growth_with_backward,  ///< the same, but what is ready of the backward pass need not wait
  /// As least_growth, but what the backward pass reads waits for what it does not: of a network that is
  /// trained and one that tells it what to say, the second one goes first, since little stays in memory after
  /// it.
  least_growth_kept_last,
  most_growth,  ///< the worst that threads, or the order in which TensorFlow finds who is ready, could make
                ///< of it
};

struct run_order {
  backward_order backward = backward_order::as_executor;
  forward_order forward = forward_order::as_executor;
  std::int64_t bound = 0;  ///< bytes, for backward_order::below_bound
};

class ready_order {
 public:
  /// `originals`: how many nodes of the graph are those of the step that was analysed. Refers to all others.
  ready_order(const graph_view& graph, int originals, const step& analysis, const simulated_memory& memory,
              run_order order)
      : graph_(graph), originals_(originals), step_(analysis), memory_(memory), order_(order) {}

  /// Whether it differs from the executor's.
  bool chooses() const {
    return order_.backward != backward_order::as_executor || order_.forward != forward_order::as_executor;
  }
  /// Position of the one that goes first.
  std::size_t best(const std::deque<task>& queue) const;

 private:
  bool is_backward(int node) const;
  bool is_kept(int node) const;
  std::int64_t rank(task t) const;
  std::int64_t rank_in_forward_pass(task t) const;
  int rank_by_reader(int node) const;

  const graph_view& graph_;
  const int originals_;
  const step& step_;
  const simulated_memory& memory_;
  const run_order order_;
};

}  // namespace stash_tf
