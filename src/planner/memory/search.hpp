// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The search over configurations: minimise the peak, or meet a budget with as little codec work as a greedy
/// choice by bytes saved times gap manages.

#include "planner/memory/running_peak.hpp"
#include "planner/memory/schedule.hpp"

namespace stash::planner {

class search {
 public:
  search(const scheduler& facts, const option_set& options, const plan_options& plan);

  /// Per component the configuration with the least codec work (raw wherever that is legal).
  picks least_work() const;

  /// Starts from the smallest kept bytes and changes components that are live at the peak while the peak
  /// falls. Without `sparse`, bitmap and csr are used only where nothing else is legal: where maps are small,
  /// the arena for their overflow is larger than what they save.
  picks smallest_peak(bool sparse = true) const;

  /// From least_work(), encodes until max-live is at most `limit` or nothing helps any more.
  picks meet(std::int64_t limit) const;

  selection select(const picks& p) const;
  schedule build(const picks& p) const { return facts_.build(select(p), plan_); }
  bool lays_out() const noexcept { return plan_.lay_out; }

 private:
  const scheduler& facts_;
  const option_set& options_;
  const plan_options& plan_;
};

}  // namespace stash::planner
