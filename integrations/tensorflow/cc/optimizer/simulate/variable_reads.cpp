// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/variable_reads.hpp"

#include <algorithm>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

int variable_reads::read(int node, int readers, std::int64_t bytes) {
  const source variable = root_of(graph_, graph_.inputs(node)[0]);
  if (!is_held_elsewhere(graph_.op(variable.node))) return buffers::none;
  const int b = buffers_->add(0, readers);
  read_of_[variable].emplace_back(b, bytes);
  return b;
}

void variable_reads::update(int node) {
  if (!writes_variable(graph_.op(node))) return;
  for (const source& s : graph_.inputs(node)) {
    const auto read = s.is_control() ? read_of_.end() : read_of_.find(root_of(graph_, s));
    if (read == read_of_.end()) continue;
    // One buffer, however many have read it.
    const std::vector<value>& values = read->second;
    const auto found = std::find_if(values.rbegin(), values.rend(),
                                    [&](const value& v) { return buffers_->holders(v.first) > 0; });
    if (found != values.rend()) buffers_->give_bytes(found->first, found->second);
    read_of_.erase(read);
  }
}

}  // namespace stash_tf
