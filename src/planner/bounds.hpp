#pragma once
/// \file
/// Lower bounds on the batch-proportional peak of any plan for a fixed order of ops.

#include "planner/schedule.hpp"

namespace stash::planner {

struct wall {
  std::int64_t bytes = 0;
  op_id op = -1;
};

/// W: the largest sum of dense, batch-proportional storages that one op needs at once.
wall working_set_wall(const graph& g);

/// The largest, over all ops, of the dense bytes that the order forces to be live while the op runs plus, for
/// every component, the smallest bytes that any of its configurations keeps at that moment. Sizes are those
/// of `options` (made without slot margin for a bound that holds for every plan).
std::int64_t peak_bound(const scheduler& facts, const option_set& options);

}  // namespace stash::planner
