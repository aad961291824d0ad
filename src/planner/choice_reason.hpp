// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Why a storage is kept as it is, in one sentence for people.

#include <string>
#include <vector>

#include "planner/memory/options.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

/// `choices`: per storage of the plan; `readers`: those of storage `id` under the plan's alternatives.
std::string reason_for(const id_vector<storage_id, stash_choice>& choices, const graph& g, storage_id id,
                       const plan_options& options, const std::vector<reader>& readers);

}  // namespace stash::planner
