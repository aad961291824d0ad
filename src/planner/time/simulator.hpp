// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The one simulator that every plan's time comes from: one compute stream, a copy engine per direction,
/// whole tensors, memory that a transfer occupies from its start (in) or until its end (out).
///
/// Out: first released, first sent. In: earliest deadline first, as soon as the bytes are on the host, the
/// step transfer::earliest has come and no step before the deadline lacks the memory. Compute waits for what
/// a step needs and for memory; while it waits, what the step before held still counts. Bytes on the host are
/// free again when the step that needs them begins: then all know that the copy back is done.

#include <optional>

#include "planner/time/problem.hpp"

namespace stash::planner {

/// When a transfer of the choice ran. `index`: of the option's transfers.
struct simulated_transfer {
  std::int32_t item = 0, index = 0;
  double out_begin = 0, out_end = 0, in_begin = 0, in_end = 0;
  /// Steps of the compute stream: the device bytes are free after `freed`, and occupied again from `taken`.
  std::int32_t freed = 0, taken = 0;
};

struct simulated {
  bool feasible = false;
  double ms = 0.0;  ///< of the whole step; meaningless if not feasible
  /// Not feasible: bytes above the limit where the need is largest, or above what the host has.
  std::int64_t missing = 0;
  std::int32_t missing_step = -1;
  bool host_is_full = false;   ///< not feasible since what is to leave does not fit on the host
  std::int64_t peak = 0;       ///< largest use of the device, transfers included
  std::int64_t host_peak = 0;  ///< largest use of host memory
};

/// Timeline of one simulation, for plans and reports.
struct timeline_record {
  id_vector<joined_step, double> begin, end;  ///< per step, of the compute stream
  id_vector<std::int32_t, simulated_transfer> transfers;
};

class simulator {
 public:
  /// Refers to p, of which limit and fixed bytes may change between runs. A run after one of a similar choice
  /// is quicker.
  explicit simulator(const step_problem& p);

  /// Feasible only if it ends by `give_up_ms` too (a search needs no more than that). No allocation after the
  /// first few calls.
  simulated run(const option_choice& choice, double give_up_ms = 1e300, timeline_record* record = nullptr);

  /// The same, but whatever comes back begins as late as link and deadlines of the first run allow: it takes
  /// as long and holds less. Falls back to the first run where being late costs time after all.
  simulated run_late(const option_choice& choice, timeline_record& record);

 private:
  struct moving {
    std::int32_t item, index, released, needed, earliest;
    std::int64_t bytes;
    double out_done;  // -1: still on the device
    double in_done;   // -1: not fetched
    std::int32_t record;
  };

  simulated run(const option_choice& choice, double give_up_ms, timeline_record* record,
                const id_vector<std::int32_t, double>* not_before);
  class clock;

  bool fits_alone(simulated& result);
  void list_transfers(timeline_record& record);
  void load(const option_choice& choice);
  void put(std::int32_t transfer);
  void take(std::int32_t transfer);
  bool released_before(std::int32_t a, std::int32_t b) const;
  bool needed_before(std::int32_t a, std::int32_t b) const;
  void build_tree();
  void find_least();
  std::int64_t largest(std::int32_t first, std::int32_t last) const;  // of base + prefetched, over steps
  void add(std::int32_t first, std::int32_t last, std::int64_t bytes);

  /// What an option adds, in lists that all options share: a search loads thousands of choices.
  struct loaded {
    std::size_t held, work, transfers;  ///< where its part of each list begins
  };
  struct work_of_option {
    std::int32_t item, option;
    double ms;
  };

  const step_problem& p_;
  std::vector<std::size_t> first_option_;  ///< per item
  std::vector<loaded> options_;            ///< of all items, and one more
  std::vector<held_bytes> held_;
  std::vector<std::int32_t> work_steps_;  ///< to which an option adds
  id_vector<std::int32_t, moving> transfers_;
  id_vector<joined_step, std::size_t> first_work_;  ///< per step, and one more
  std::vector<work_of_option> added_;               ///< per step, in the order of items

  // What is loaded.
  id_vector<joined_step, std::int64_t> held_now_;  ///< per step, by options
  id_vector<joined_step, double> work_;            ///< per step
  std::vector<std::int32_t> by_release_, by_need_;
  option_choice loaded_;  ///< -1: nothing yet
  id_vector<joined_step, std::int64_t> change_;
  std::vector<std::int32_t> touched_;

  // Of a run.
  std::size_t leaves_ = 1;
  id_vector<joined_step, std::int64_t> base_;  ///< per step, held by options and others
  /// What is still to do takes at least: the work of a step and of all later ones; and, for each form that is
  /// still to come back, all copies up to its own and the work from the step that needs it on.
  id_vector<joined_step, double> work_left_;
  std::vector<double> copies_before_;  ///< per transfer in order of need, ms of those before it
  std::vector<double> copies_end_;     ///< from the begin of the first copy on, for this and all later ones
  std::vector<std::int64_t> tree_, lazy_;
};

}  // namespace stash::planner
