// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The steps of a plan as a program of the swap engine.

#include <span>

#include "planner/plan.hpp"
#include "runtime/swap/swap_program.hpp"
#include "stash/status.hpp"

namespace stash::executor {

/// Task i is step i of the plan and block b is buffer b, edges included. Steps that wait touch nothing: where
/// anybody has to wait follows from the bytes. `reports` (one per storage) must outlive the program: of a
/// sparse form what it holds is copied, not its slot.
runtime::swap_program swap_of_plan(const planner::plan& p, std::span<const encode_report> reports);

}  // namespace stash::executor
