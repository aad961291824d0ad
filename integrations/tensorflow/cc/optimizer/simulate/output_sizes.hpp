// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How many bytes the outputs of a step's nodes take, also of those that rewrite() added.

#include <cstdint>
#include <map>
#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/choices.hpp"

namespace stash_tf {

/// Copies between the device and the host.
bool is_move(const std::string& op);

class output_sizes {
 public:
  /// As for simulated_footprint().
  output_sizes(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
               const step& analysis, const choices& chosen);

  /// 0 where it is not known.
  std::int64_t bytes(const source& tensor) const;

 private:
  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  std::map<std::string, std::int64_t> dense_, stored_;  // by name in the counters
};

}  // namespace stash_tf
