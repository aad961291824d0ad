// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Ticks, the moments of a plan: tick 2t is while op t runs, tick 2t + 1 lies between op t and op t + 1.

#include "planner/graph/graph.hpp"

namespace stash::planner {

using tick_number = std::int32_t;
/// Of storages whose choices depend on each other (planner/memory/options.hpp).
using component_number = std::int32_t;

constexpr tick_number tick_of(op_id o) noexcept {
  return 2 * o.number();
}

/// The op that runs in a tick, or the one before it.
constexpr op_id op_of_tick(tick_number t) noexcept {
  return op_id(t / 2);
}

}  // namespace stash::planner
