// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Orders of the ops of a step that need less memory at once.

#include <functional>

#include "planner/plan.hpp"

namespace stash::planner {

/// A legal order of the ops of `p.network` (graph/op_order.hpp) for which the steps of `p`, with every
/// storage kept as there, have a smaller sum of live bytes at their peak; the order as it is if none was
/// found. `p` moves nothing to the host.
///
/// Starts from the order of `p` and from one that always runs what lets most bytes go. From both a local
/// search looks at the first peak: what is live there without being used either dies before it (its last user
/// runs earlier, with what that depends on) or is made after it. Deterministic but for `stop`, which is asked
/// now and then: true ends the search.
id_vector<op_id, op_id> lower_peak_order(const plan& p, const std::function<bool()>& stop = {});

}  // namespace stash::planner
