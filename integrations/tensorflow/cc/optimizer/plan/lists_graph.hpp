// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The lists of loops as a training graph of the planner (docs/graph.md).

#include <string>

#include "optimizer/analyse/step.hpp"

namespace stash_tf {

/// The lists of loops alone, each a storage of all iterations that one op writes and another one reads;
/// storages are numbered as step::lists.
std::string make_lists_graph(const step& analysis);

}  // namespace stash_tf
