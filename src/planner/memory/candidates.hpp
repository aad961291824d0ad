// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forms that a storage could be kept in: by role, type, policy and the user's rules.

#include <vector>

#include "planner/memory/options.hpp"

namespace stash::planner {

bool has(const std::vector<reader>& readers, need what);

/// Refers to all of them.
class candidate_forms {
 public:
  candidate_forms(const graph& g, const plan_options& options, double margin,
                  const id_vector<storage_id, std::vector<recipe_id>>& recipes_of)
      : g_(g), options_(options), margin_(margin), recipes_of_(recipes_of) {}

  /// Those that could serve the readers, whatever happens to the sources of its recipes; raw first, where it
  /// is one of them.
  std::vector<stash_choice> of(storage_id id, const std::vector<reader>& readers) const;

 private:
  class list;

  bool allowed(const storage& s, stash_kind kind, const encoding& e) const;
  std::int64_t kept_bytes(const storage& s, const stash_choice& c) const;

  const graph& g_;
  const plan_options& options_;
  const double margin_;
  const id_vector<storage_id, std::vector<recipe_id>>& recipes_of_;
};

}  // namespace stash::planner
