// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How long the ops of a graph take on this machine, so that plans can be made for it
/// (planner/graph/cost.hpp).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/executor.hpp"

namespace stash::executor {

/// How long to measure: both are reached.
struct measuring_time {
  int steps = 3;
  double seconds = 0.0;
};

/// Runs training steps of `g` on one batch with nothing encoded or moved, and sets op::seconds of every op to
/// the median over them, two that warm up left out; what the update takes is shared among its ops by the
/// bytes of their weights. `threads` is that of the plans to come, `machine` their plan::machine. Weights are
/// fresh ones. Throws as make_plan() and executor; `g` is then as before.
void measure_ops(planner::graph& g, int threads, const std::string& machine, const executor_options& options,
                 std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                 const measuring_time& time);

/// One run of several whose steps are measured in turn, so that a slow moment of the machine meets all.
class measured_run {
 public:
  explicit measured_run(executor& e);
  /// Records the last training step of the executor.
  void record();
  int recorded() const noexcept { return static_cast<int>(whole_.size()); }
  /// Median seconds of a step of the plan, and of the update after them.
  double step_seconds(std::size_t step) const;
  double update_seconds() const;
  /// Median of whole training steps, update included.
  double seconds() const;
  /// All of them, in the order in which they were recorded.
  const std::vector<double>& all_seconds() const noexcept { return whole_; }

 private:
  executor& executor_;
  std::vector<std::vector<double>> steps_;
  std::vector<double> update_, whole_;
};

/// Sets op::seconds from a run under a plan without encodings.
void set_seconds(planner::graph& g, const planner::plan& p, const measured_run& run);

}  // namespace stash::executor
