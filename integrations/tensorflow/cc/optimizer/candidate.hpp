// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A graph that could run the step, what was changed in it so far, and the best that can be made of it.

#include <cstdint>
#include <memory>
#include <optional>

#include "optimizer/analyse/step.hpp"
#include "optimizer/budget.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/lists/encode_lists.hpp"
#include "optimizer/plan/headroom.hpp"
#include "optimizer/read_step.hpp"
#include "optimizer/rewrite/ordering.hpp"
#include "optimizer/rewrite/recompute.hpp"

namespace stash_tf {

/// A smaller part of a peak is not worth a change of the step.
inline constexpr std::int64_t parts_that_count = 64;

/// What candidates are made of and planned for.
struct candidate_terms {
  const read_step& read;
  const settings& request;
  std::int64_t device_bytes = 0;  ///< what TensorFlow may take of the device; 0: not known
};

/// Not copied: its parts refer to each other.
class candidate {
 public:
  /// Of a graph that outlives it.
  candidate(const tensorflow::GraphDef& existing, const graph_view& view, tensor_sizes known, step found);
  candidate(const candidate&) = delete;
  candidate& operator=(const candidate&) = delete;

  const tensorflow::GraphDef& original() const { return *original_; }
  const graph_view& graph() const { return *graph_; }
  std::int64_t peak() const { return result.simulated.peak_bytes; }
  step_context context(const candidate_terms& terms) const;
  /// What the step leaves free below a bound.
  headroom headroom_below(std::int64_t bound) const;

  /// Order, plan, rewritten graph and simulation, with as many plans as the budget asks for. Throws
  /// std::runtime_error if there is no order, or if the planner refuses the step.
  void plan(const candidate_terms& terms);

  /// The same graph, and what was changed in it; not planned.
  std::unique_ptr<candidate> same() const;
  /// The step in which sums of gradients that can save a part of `peak` are added up as they come.
  static std::unique_ptr<candidate> with_split_sums(const tensorflow::GraphDef& original,
                                                    const step& analysis, std::int64_t peak,
                                                    const candidate_terms& terms);
  /// The step of this one, which has been planned, in which loops keep less in lists, planned; null: no list
  /// would change.
  std::unique_ptr<candidate> with_encoded_lists(const candidate_terms& terms) const;
  /// Likewise, in which ops run again; null: none would. `spare` as for recompute().
  std::unique_ptr<candidate> with_copies(headroom* spare, copyable which, const candidate_terms& terms) const;

  tensor_sizes sizes;
  step analysis;
  int sums = 0;         ///< that are split
  encoded_lists lists;  ///< that were changed
  copied_ops copies;
  std::optional<control_flow> flow;
  ordering ordered;
  outcome result;

 private:
  void take_copied_graph(const candidate_terms& terms);

  tensorflow::GraphDef copied_;
  std::optional<graph_view> own_;
  const tensorflow::GraphDef* original_;
  const graph_view* graph_;
};

}  // namespace stash_tf
