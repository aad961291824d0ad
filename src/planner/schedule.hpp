#pragma once
/// \file
/// From a selection to steps and buffers with lifetimes: encode right after the last forward use, decode or
/// recompute right before each backward use, nothing lives longer than it must.

#include <vector>

#include "planner/layout.hpp"
#include "planner/options.hpp"

namespace stash::planner {

/// A step of a swapped storage's way to the host and back. Tick 2t: right before op t, behind what is decoded
/// for it; tick 2t + 1: right behind op t, before what is encoded after it.
struct copy_event {
  std::int32_t tick = -1;
  step_kind kind = step_kind::copy_out;
  storage_id storage = -1;
};

/// A decision for every storage and every op with alternatives.
struct selection {
  std::vector<stash_choice> choices;      ///< per storage
  std::vector<std::int32_t> alternative;  ///< per op; -1 where the op has none
  std::vector<copy_event> copies;         ///< four per swapped storage, in order
};

struct schedule {
  std::vector<step> steps;
  std::vector<buffer> buffers;  ///< offsets not yet set
  std::int64_t overflow_bytes = 0;
};

/// Facts of a graph that every schedule needs; computed once.
class scheduler {
 public:
  explicit scheduler(const graph& g);

  schedule build(const selection& s, const plan_options& options) const;

  /// Index of the last forward op that touches the storage; -1 if none does.
  op_id last_forward_use(storage_id s) const { return last_forward_use_[static_cast<std::size_t>(s)]; }
  /// First op that touches it, or the forward op that can write an auxiliary storage.
  op_id first_use(storage_id s) const { return first_use_[static_cast<std::size_t>(s)]; }
  op_id last_use(storage_id s) const { return last_use_[static_cast<std::size_t>(s)]; }
  const graph& network() const noexcept { return g_; }

 private:
  const graph& g_;
  std::vector<op_id> first_use_, last_forward_use_, last_use_;  ///< as dense operands
  std::vector<std::int32_t> recompute_rule_;                    ///< per storage, -1 if none
};

/// Buffers as layout blocks, in order.
std::vector<layout_block> blocks_of(const std::vector<buffer>& buffers);

/// Bytes live at each step, host buffers left out.
std::vector<std::int64_t> live_bytes(const schedule& s);

}  // namespace stash::planner
