// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a selection to steps and buffers with lifetimes: encode right after the last forward use, decode or
/// recompute right before each backward use, nothing lives longer than it must.

#include <memory>
#include <tuple>
#include <vector>

#include "planner/graph/ticks.hpp"
#include "planner/layout/layout.hpp"
#include "planner/memory/options.hpp"

namespace stash::planner {

/// A step of a swapped storage's way to the host and back. Tick 2t: right before op t, after what is decoded
/// for it; tick 2t + 1: right after op t, before what is encoded after it.
struct copy_event {
  tick_number at = -1;
  step_kind kind = step_kind::copy_out;
  storage_id storage = no_id;
};

/// A decision for every storage and every op with alternatives.
struct selection {
  id_vector<storage_id, stash_choice> choices;  ///< per storage
  id_vector<op_id, std::int32_t> alternative;   ///< per op; -1 where the op has none
  std::vector<copy_event> copies;               ///< four per swapped storage, in order
};

struct schedule {
  id_vector<step_number, step> steps;
  id_vector<buffer_id, buffer> buffers;  ///< offsets not yet set
  std::int64_t overflow_bytes = 0;
};

/// Where a step stands among those of its op, whatever else is done there: steps come in the order of
/// their numbers.
struct step_order {
  static constexpr std::int32_t before = 0;  ///< decodes or computes again what the op reads
  static constexpr std::int32_t itself = 1;
  static constexpr std::int32_t after = 2;  ///< encodes what the op was the last to touch

  op_id op = no_id;  ///< none: where the step of training begins
  std::int32_t phase = before;
  std::int64_t first = 0;   ///< before: the number of the read; after: the bytes that are kept
  std::int32_t second = 0;  ///< before: how many came earlier; after: the number of the operand

  friend bool operator<(const step_order& a, const step_order& b) {
    return std::tie(a.op, a.phase, a.first, a.second) < std::tie(b.op, b.phase, b.first, b.second);
  }
};

/// What a part of a selection does to a schedule: the same whatever the other parts are.
struct schedule_part {
  struct life {
    std::int64_t bytes = 0;
    step_order first, last;
  };
  std::vector<life> buffers;
  std::vector<step_order> added;  ///< steps besides those of ops
};

/// Calls body(storage) for whatever an op may touch, some storages more than once: its operands, optional
/// outputs and what its alternatives read.
template <class Body>
void for_each_storage(const op& o, const Body& body) {
  for (const auto* refs : {&o.inputs, &o.outputs})
    for (const tensor_ref& r : *refs)
      body(r.storage);
  for (const storage_id s : o.optional_outputs)
    body(s);
  for (const stash_alternative& a : o.alternatives)
    for (const stash_read& r : a.reads)
      body(r.storage);
}

/// Facts of a graph that every schedule needs; computed once.
class scheduler {
 public:
  explicit scheduler(const graph& g);

  schedule build(const selection& s, const plan_options& options) const;

  /// The last forward op that touches the storage, if one does.
  op_id last_forward_use(storage_id s) const { return last_forward_use_[s]; }
  /// First op that touches it, or the forward op that can write an auxiliary storage.
  op_id first_use(storage_id s) const { return first_use_[s]; }
  op_id last_use(storage_id s) const { return last_use_[s]; }
  const graph& network() const noexcept { return g_; }

 private:
  const graph& g_;
  id_vector<storage_id, op_id> first_use_, last_forward_use_, last_use_;  ///< as dense operands
};

class part_builder {
 public:
  explicit part_builder(const scheduler& facts);
  ~part_builder();

  /// Buffers and steps of the storages of `c` in its configuration `f`; `ops` are those that touch any of
  /// them, in their order. Takes as long as these are many.
  schedule_part build(const std::vector<op_id>& ops, const component& c, const configuration& f);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Of the arena that sparse forms of so many bytes overflow into; 0: none is needed.
std::int64_t overflow_arena(std::int64_t sparse_bytes, double share);

/// Buffers as layout blocks, in order.
std::vector<layout_block> blocks_of(const std::vector<buffer>& buffers);

/// Bytes live at each step, host buffers left out.
id_vector<step_number, std::int64_t> live_bytes(const schedule& s);

}  // namespace stash::planner
