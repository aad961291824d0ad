// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Training under a plan that follows the data: measures densities before the first step, plans, and when a
/// sparse map outgrows slot and overflow arena, plans again with more capacity and runs the same step again.

#include <memory>
#include <optional>

#include "executor/executor.hpp"
#include "stash/events.hpp"

namespace stash::executor {

struct trainer_options {
  planner::plan_options plan;
  executor_options executor;
  std::uint64_t seed = 1;  ///< of the initial weights
  double growth = 1.10;    ///< factor on the measured density of a map that did not fit
};

class trainer {
 public:
  /// Plans `g` from densities measured on the given batch (its batch size is that of the graph) with the
  /// initial weights. Throws like make_plan and executor.
  trainer(planner::graph g, const trainer_options& options, std::span<const std::uint8_t> images,
          std::span<const std::int32_t> labels);

  /// Runs a finished plan as it is, until something does not fit.
  trainer(planner::plan p, const trainer_options& options);

  /// One committed step. On overflow the step is discarded, planned again and rerun; parameters, statistics
  /// and random numbers are those of a step that fitted at once. Throws error(infeasible_budget) if the
  /// budget is too small for the grown map; parameters are then those of the last committed step.
  step_result step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                   const sgd_settings& sgd);

  std::int64_t steps() const noexcept { return steps_; }
  std::int64_t reruns() const noexcept { return reruns_; }
  executor& current() noexcept { return *executor_; }

  /// Over all plans so far.
  std::int64_t planned_peak() const noexcept { return planned_peak_; }
  std::int64_t planned_peak_total() const noexcept { return planned_peak_total_; }
  std::int64_t touched_peak() const;
  std::int64_t touched_peak_total() const;

  /// Hears of every map that did not fit (overflow, with the bytes that its density asks for), of every step
  /// that runs again (rerun, with the network's name), and of maps that took part of the overflow arena in a
  /// committed step (fallback, with the bytes in the slot and in the arena).
  event_sink events;
  /// Applied to every executor that this trainer makes (the first exists already when the trainer is made).
  void set_after_step(std::function<void(std::size_t)> f);

 private:
  void adopt(planner::plan p);
  void plan_again();
  void report_fallbacks() const;

  trainer_options options_;
  planner::graph graph_;
  std::unique_ptr<executor> executor_;
  std::function<void(std::size_t)> after_step_;
  std::int64_t steps_ = 0, reruns_ = 0;
  std::int64_t planned_peak_ = 0, planned_peak_total_ = 0;
  std::int64_t touched_peak_ = 0, touched_peak_total_ = 0;  // of executors that are gone
};

}  // namespace stash::executor
