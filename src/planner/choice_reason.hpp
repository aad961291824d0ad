// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Why a storage is kept as it is, in one sentence for people.

#include <string>
#include <vector>

#include "planner/memory/options.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

/// `readers`: those of storage `id` under the plan's alternatives.
std::string reason_for(const stash_choice& c, const graph& g, storage_id id, const plan_options& options,
                       const std::vector<reader>& readers);

}  // namespace stash::planner
