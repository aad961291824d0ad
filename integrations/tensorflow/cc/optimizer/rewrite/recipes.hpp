// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which maps the backward pass computes again, and of what.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/headroom.hpp"
#include "optimizer/plan/kept_bits.hpp"

namespace stash_tf {

/// Which ops may run again: cheap ones, up to 8 for a map, or all that are deterministic and without state,
/// up to 24.
enum class copyable { cheap, all };

/// Deterministic, without state, with one output, one pass over the elements each, which they compute or
/// move.
bool is_cheap(const std::string& op);
/// Deterministic, without state, and takes a step's time: convolutions, products, norms, reductions.
bool is_costly(const std::string& op);

class recipes {
 public:
  /// What is given must outlive it. Of `request`: what may be rounded, and the smallest tensor that matters.
  recipes(const graph_view& graph, const step& analysis, const control_flow& flow, const settings& request,
          copyable which, const tensor_sizes& sizes);

  /// Lets maps stay that have enough headroom from the forward pass on, those first that spare the most work
  /// for a byte. Work is what ops read and write. Returns them.
  std::set<source> keep_what_fits(headroom* spare);

  /// Blocks to compute again, in the order of first_reader(): each from blocks that are kept.
  std::vector<int> blocks() const;

  /// Whether a copy serves this reader of a map that is computed again. Where values may be rounded, those
  /// for whom one bit for each value is enough take that of the exact map.
  bool serves(const stash_reader& r) const;

  /// Nobody has to copy what makes this tensor: it stays for the backward pass.
  bool stays(const source& s, std::int64_t map_bytes) const;

  /// The reader that a copy serves first.
  const stash_reader& first_reader(const stashed_block& b) const;

 private:
  /// What a map would be made of: tensors that are kept, and how exact they have to be for it.
  struct recipe {
    int ops = 0;
    std::map<source, exactness> from;
  };

  void choose();
  void choose_among_paid();
  int position(int block) const { return rank_[at(step_.blocks[at(block)].root.node)]; }
  bool may_run(const std::string& op) const;
  bool has_values(const stashed_block& b) const;
  bool may_go(const stashed_block& b, recipe* r) const;
  bool can_copy(const source& s, std::int64_t map_bytes, int gate, exactness wanted, recipe* r) const;
  bool is_allowed(const recipe& r) const;
  double saved_by(const stashed_block& b) const;
  double added_for(const source& from) const;
  bool find_unpaid();
  exactness wanted_of(const stashed_block& b) const;
  exactness wanted_of_copy(const stashed_block& b) const;
  std::set<int> copied_for(int block) const;
  void add_copied(const source& s, std::int64_t map_bytes, std::set<int>* nodes) const;
  std::int64_t work_of(int node) const;
  std::int64_t work_for(int block) const;
  std::int64_t spared_by(int block);
  bool fits(int block, headroom* spare) const;

  const graph_view& graph_;
  const step& step_;
  const control_flow& flow_;
  const std::int64_t min_bytes_;
  const bool lossy_;
  const copyable which_;
  const kept_bits bits_;
  const tensor_sizes& sizes_;
  const std::vector<int> rank_;
  std::set<int> by_index_;  // backward ops that an index of each window or a code serves
  std::set<source> kept_;
  std::map<source, exactness> wanted_;  // of those that are kept, by their own readers
  std::map<int, recipe> made_of_;       // by chosen block
  std::set<source> unpaid_;             // kept as their own readers need them
  std::set<int> chosen_;
  std::map<int, std::vector<int>> users_;  // blocks, by node that is copied for them
};

}  // namespace stash_tf
