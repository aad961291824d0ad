// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the choice of the fastest plan works on: a fixed list of steps with durations and memory that is
/// there whatever is chosen, and items (components of stashed storages) of which each takes one of its
/// options. An option says which bytes it holds on the device during which steps, which work it adds, and
/// which transfers to and from the host. Relaxation, simulator, local search and policies see nothing else.
///
/// Time is counted in *ticks*: tick 2t is op t, tick 2t + 1 lies between op t and op t + 1; encoders and
/// decoders run there. compress() joins ticks between which nothing that can be chosen changes into *steps*.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/graph/ids.hpp"
#include "planner/graph/ticks.hpp"

namespace stash::planner {

/// A step of a step_problem.
using joined_step = std::int32_t;

/// Bytes on the device during [first, last], both included. `passing`: only for the moment in which an
/// encoded and a dense form are both there, which the relaxation may count for one item at a time only.
struct held_bytes {
  std::int32_t first = 0, last = 0;
  std::int64_t bytes = 0;
  bool passing = false;
};

/// Work of the compute stream that an option adds to a tick.
struct added_work {
  std::int32_t tick = 0;
  double ms = 0.0;
};

/// Bytes that leave for the host after tick `released` and are back when tick `needed` begins. Held bytes of
/// the option cover [.., released] and [needed, ..]; between them the transfer itself is what occupies the
/// device.
struct transfer {
  std::int32_t released = 0, needed = 0;
  std::int64_t bytes = 0;
  std::int32_t form = 0;  ///< which storage of the component
  /// The copy back begins in this tick at the earliest: what a policy prefetches by. Bounds do not know it.
  std::int32_t earliest = 0;
};

struct item_option {
  std::vector<held_bytes> held;
  std::vector<added_work> work;
  std::vector<transfer> transfers;
  std::int32_t configuration = 0;  ///< of the item's component
  std::uint32_t swapped = 0;       ///< bit k: the component's storage k is swapped
};

struct item {
  id_vector<std::int32_t, item_option> options;  ///< at least one
  /// Too little to matter: makes no steps of its own (held bytes count for the whole steps they lie in), has
  /// no transfers, and all its held bytes are `passing`.
  bool small = false;
};

/// Copies between device and host. Rates in bytes per ms; 0: there is no link, nothing can be swapped.
struct link_model {
  double out_rate = 0.0, in_rate = 0.0;
  double latency_ms = 0.0;  ///< before every transfer
  double contention = 1.0;  ///< rate of each direction while both are busy, as a share; above 0.5
  std::int64_t host_bytes = INT64_MAX;
};

struct problem {
  id_vector<tick_number, double> tick_ms;
  id_vector<tick_number, std::int64_t> fixed_bytes;
  id_vector<component_number, item> items;
  link_model link;
  std::int64_t limit = 0;  ///< bytes on the device
};

/// The same over steps instead of ticks: spans, work and transfers name steps. Before a step at which
/// something can leave or must be back there is a *wait*: a step of no ticks and no time of its own, in which
/// compute may stand still while only what is there before and after it takes memory. The bound needs it: a
/// stall that is part of no step could not be counted.
struct step_problem {
  id_vector<joined_step, double> ms;
  id_vector<joined_step, std::int64_t> fixed;        ///< largest of its ticks
  id_vector<joined_step, std::int64_t> fixed_first;  ///< of its first tick
  id_vector<joined_step, std::int64_t> fixed_last;   ///< of its last tick
  id_vector<joined_step, tick_number> first_tick;    ///< of every step; one more entry: the number of ticks
  id_vector<component_number, item> items;
  link_model link;
  std::int64_t limit = 0;
};

/// Joins ticks between which no option's held bytes, work or transfers begin or end.
step_problem compress(const problem& p);

/// Option of every item.
using option_choice = id_vector<component_number, std::int32_t>;

}  // namespace stash::planner
