// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From the ticks of a simulation to the times of a plan's steps (plan::timeline).

#include <vector>

#include "planner/graph/ticks.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

/// When the simulation had the copies of a storage run, in ms.
struct swap_times {
  storage_id storage = no_id;
  double out_begin = 0, out_end = 0, in_begin = 0, in_end = 0;
};

/// A simulation told in ticks (problem.hpp) and storages.
struct tick_times {
  id_vector<tick_number, double> begin, end;  ///< per tick, of the compute stream
  std::vector<swap_times> swaps;
};

/// Fills p.timeline and p.times.update_ms. The work between two ops is shared among the encoders, decoders
/// and recomputed ops that the plan has there, in proportion to what they cost on `m`, so that the ends are
/// those of the simulation.
void set_timeline(plan& p, const machine& m, const tick_times& simulated);

}  // namespace stash::planner
