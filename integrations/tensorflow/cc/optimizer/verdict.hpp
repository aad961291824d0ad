// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What becomes of a step that has been planned.

#include <cstdint>
#include <string>

#include "optimizer/candidate.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/simulate/footprint.hpp"

namespace stash_tf {

enum class fate {
  changed,  ///< it runs as planned
  watched,  ///< it runs as it is, and tells its samples: then it is planned again
  refused,  ///< it fails and says why: no plan keeps the budget
  left      ///< there is nothing to do
};

struct verdict {
  fate becomes = fate::changed;
  std::string reason;         ///< why it is refused or left
  std::string over_accepted;  ///< that the data need more than an accepted budget; empty where they do not
  std::int64_t smallest_budget_bytes = 0;  ///< that would do, where the budget does not
  bool lower = false;                      ///< the peak is, by as much as counts
  bool higher = false;                     ///< the peak would be, and nothing asks for the plan
};

/// `untouched`: the step as TensorFlow would run it.
verdict decide(const candidate& best, const footprint& untouched, const settings& request);

}  // namespace stash_tf
