// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which feature maps a few forward ops can compute again, and from what.

#include <span>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::planner {

/// What an op list needs to know of a graph to be a recipe; computed once. Refers to the graph.
class recipe_facts {
 public:
  explicit recipe_facts(const graph& g);

  struct inputs {
    std::vector<storage_id> sources;  ///< read and not written by the ops, by first use
    storage_id overwritten = no_id;   ///< first input whose value is gone after the forward stage; -1: none
  };
  /// `ops` are valid, and ascend.
  inputs inputs_of(std::span<const op_id> ops) const;
  /// Whether the op makes whole maps of whole maps, and is a generic one or a batch norm with its ReLU.
  bool can_run_again(op_id o) const;
  /// Last forward op that writes the storage, -1 if none does.
  op_id last_writer(storage_id s) const;
  /// Last forward op before `reader` that writes the storage, -1 if none does.
  op_id writer_before(storage_id s, op_id reader) const;
  /// Whether a parameter of the op is written before an op that reads the target has run: computed again,
  /// the target would be another one.
  bool is_computed_with_others(op_id o, storage_id target) const;
  /// Whether an op of the backward stage may read it.
  bool is_read(storage_id s) const { return last_reader_[s].valid(); }

 private:
  const graph& g_;
  id_vector<storage_id, std::vector<op_id>> writers_;  ///< per storage: forward ops, ascending
  id_vector<storage_id, op_id> last_reader_;           ///< per storage: of all alternatives
  id_vector<storage_id, op_id>
      first_update_;  ///< per storage: first op after the forward stage that writes it
};

inline constexpr std::size_t most_recipes = 4;
/// Adds recipes made of the ops `cheap` and `sums`, chains of them included: for every map that the backward
/// stage reads, up to `most_recipes` recipes whose sources it reads, too, those of fewest ops first. Those
/// with one of `sums` have one source. `g` is complete, and has no recipes yet.
void add_recipes(graph& g, std::span<const op_id> cheap, std::span<const op_id> sums = {});

}  // namespace stash::planner
