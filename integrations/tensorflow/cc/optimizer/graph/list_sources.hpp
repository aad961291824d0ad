// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where the elements of a list of tensors come from, through loops and from op to op.

#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Whether an op makes, reads or changes lists of tensors.
bool is_list_op(const std::string& op);

struct list_sources {
  std::vector<source> elements;  ///< tensors that were put into it one by one
  std::vector<source> wholes;    ///< tensors whose slices it was made of
};

list_sources sources_of_list(const graph_view& graph, const source& list);

}  // namespace stash_tf
