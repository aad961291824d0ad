// SPDX-License-Identifier: Apache-2.0
#include "executor/trainer.hpp"

#include <algorithm>

#include "planner/baselines/policies.hpp"
#include "stash/error.hpp"

namespace stash::executor {

namespace {
/// Any plan does for looking at one forward pass, but it must fit where the run will: within the budget, or
/// if assumed densities do not let it, with the smallest peak.
planner::plan plan_for_densities(const planner::graph& g, planner::plan_options options) {
  options.force.clear();
  if (options.budget_bytes > 0) {
    try {
      return planner::make_plan(g, options);
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
    }
  }
  options.budget_bytes = 0;
  options.model.reset();
  options.swap = false;
  // A policy that only moves maps has no plan without a machine, and stores none of them in a sparse form.
  if (planner::has_rule(options.chosen_policy) && options.chosen_policy != planner::policy::gist)
    options.chosen_policy = planner::policy::none;
  return planner::make_plan(g, options);
}

}  // namespace

trainer::trainer(planner::graph g, const trainer_options& options, std::span<const std::uint8_t> images,
                 std::span<const std::int32_t> labels)
    : options_(options), graph_(std::move(g)) {
  if (options_.plan.chosen_policy != planner::policy::none) {
    executor measuring(plan_for_densities(graph_, options_.plan), options_.executor);
    measuring.initialise(options_.seed);
    for (const stash_observation& o : measuring.measure_densities(images, labels)) {
      graph_.storages[o.storage].density = o.density;
    }
  }
  adopt(planner::make_plan(graph_, options_.plan));
  executor_->initialise(options_.seed);
}

trainer::trainer(planner::plan p, const trainer_options& options) : options_(options), graph_(p.network) {
  options_.plan.chosen_policy = p.chosen_policy;
  options_.plan.budget_bytes = p.budget_bytes;
  options_.plan.slot_margin = p.slot_margin;
  options_.plan.threads = p.threads;
  options_.plan.machine = p.machine;
  adopt(std::move(p));
  executor_->initialise(options_.seed);
}

void trainer::set_after_step(std::function<void(std::size_t)> f) {
  after_step_ = std::move(f);
  executor_->after_step = after_step_;
}

void trainer::adopt(planner::plan p) {
  auto next = std::make_unique<executor>(std::move(p), options_.executor);
  if (executor_ != nullptr) {
    next->copy_parameters_from(*executor_);
    touched_peak_ = touched_peak();
    touched_peak_total_ = touched_peak_total();
  }
  executor_ = std::move(next);
  executor_->after_step = after_step_;
  planned_peak_ = std::max(planned_peak_, executor_->current_plan().sizes.planned_peak);
  planned_peak_total_ = std::max(planned_peak_total_, executor_->current_plan().sizes.planned_peak_total);
}

void trainer::plan_again() {
  for (const stash_observation& o : executor_->observations()) {
    if (o.stored) continue;
    planner::storage& s = graph_.storages[o.storage];
    const planner::stash_choice& choice = executor_->current_plan().choices[o.storage];
    const std::int64_t elements = s.bytes(graph_.batch) / static_cast<std::int64_t>(size_of(s.type));
    events({event_kind::overflow, s.name,
            encoded_bytes_at_density(choice.stored, s.type, elements, o.density),
            static_cast<std::uint64_t>(choice.bytes_after), steps_});
    s.density = std::min(1.0, std::max(s.density, o.density) * options_.growth);
  }
  events({event_kind::rerun, graph_.name, 0, 0, steps_});
  adopt(planner::make_plan(graph_, options_.plan));
}

step_result trainer::step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                          const sgd_settings& sgd) {
  for (;;) {
    const step_result result = executor_->train_step(images, labels, steps_, sgd);
    if (result.committed) {
      if (events.notify != nullptr) report_fallbacks();
      ++steps_;
      return result;
    }
    ++reruns_;
    plan_again();
  }
}

void trainer::report_fallbacks() const {
  for (const stash_observation& o : executor_->observations()) {
    if (o.overflow_bytes == 0) continue;
    const std::uint64_t bytes = o.slot_bytes + o.overflow_bytes;
    events({event_kind::fallback, graph_.storages[o.storage].name, bytes, bytes, steps_});
  }
}

std::int64_t trainer::touched_peak() const {
  return std::max(touched_peak_, executor_->touched_peak());
}

std::int64_t trainer::touched_peak_total() const {
  return std::max(touched_peak_total_, executor_->touched_peak_total());
}

}  // namespace stash::executor
