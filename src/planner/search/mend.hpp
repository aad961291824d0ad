// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One step of the way from a choice that lacks memory to one that fits.

#include <optional>

#include "planner/search/dice.hpp"
#include "planner/search/option_facts.hpp"
#include "planner/time/simulator.hpp"

namespace stash::planner {

struct mend_rule {
  /// Only changes that take no more of device and host together count: for a host that was full.
  bool spare_host = false;
  /// Rates are multiplied by e to the power of a random number in +- noise / 2, by these dice.
  double noise = 0.0;
  dice* random = nullptr;  ///< not null where there is noise
};

struct option_change {
  std::size_t item = 0;
  std::int32_t option = 0;
};

/// The change that costs least for a byte that it gains at `s.missing_step` (on device and host together if
/// the host is full), where `s` is the simulation of `choice` that ended there. More than what is missing
/// counts as no gain, and a tiny gain needs many changes. None if no option gains anything.
std::optional<option_change> cheapest_mend(const step_problem& p, const option_costs& costs,
                                           const option_choice& choice, const simulated& s,
                                           const mend_rule& rule = {});

}  // namespace stash::planner
