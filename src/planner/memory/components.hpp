// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which storages have to be decided together: those that are connected through the alternatives of an op or
/// through recipes.

#include <vector>

#include "planner/memory/options.hpp"

namespace stash::planner {

struct grouped_storages {
  option_set set;  ///< components without configurations
  /// Per storage: recipes that compute it again from storages that are read.
  id_vector<storage_id, std::vector<recipe_id>> recipes_of;
};

grouped_storages group_storages(const graph& g);

}  // namespace stash::planner
