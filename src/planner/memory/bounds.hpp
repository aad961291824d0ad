// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Lower bounds on the batch-proportional peak of any plan for a fixed order of ops.

#include "planner/memory/schedule.hpp"

namespace stash::planner {

struct wall {
  std::int64_t bytes = 0;
  op_id op = no_id;
};

/// W: the largest sum of dense, batch-proportional storages that one op needs at once.
wall working_set_wall(const graph& g);

/// No plan of this order of ops gets below: the largest, over all moments (ops, and the encode and decode
/// steps between them), of the dense bytes that the order forces to be live plus, for every other component,
/// the smallest bytes that any of its configurations keeps at that moment. A component's own encode and
/// decode steps count under the configuration for which the result is smallest. Sizes are those of `options`
/// (made without slot margin for a bound that holds for every plan).
std::int64_t peak_bound(const scheduler& facts, const option_set& options);

}  // namespace stash::planner
