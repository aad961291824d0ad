// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// About how many bits a policy keeps for a value, before the planner is asked.

#include <string>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"

namespace stash_tf {

/// How exact the values of a tensor have to be, in the order of what they take.
enum class exactness { none, value, fine, exact };

/// Of the needs of one reader (docs/needs.md). A sign, a range or a mask alone needs no values.
exactness exactness_of(const std::vector<std::string>& needs);

class kept_bits {
 public:
  explicit kept_bits(const settings& request);

  /// Bits for each value of the block, in its smallest form of that exactness. Policies that round nothing
  /// keep all values exactly.
  double of(const graph_view& graph, const stashed_block& b, exactness wanted) const;

 private:
  bool lossy_;
  double narrowest_;  ///< bits of the narrowest format that the policy allows
};

}  // namespace stash_tf
