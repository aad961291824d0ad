// SPDX-License-Identifier: Apache-2.0
#include "executor/measured_ops.hpp"

#include <algorithm>

#include "planner/plan.hpp"

namespace stash::executor {

using planner::op_kind;
using planner::step_kind;

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

measured_run::measured_run(executor& e) : executor_(e), steps_(e.current_plan().steps.size()) {}

void measured_run::record() {
  const std::span<const runtime::swap_time> times = executor_.measured();
  for (std::size_t i = 0; i < steps_.size(); ++i)
    steps_[i].push_back(times[i].end - times[i].begin);
  update_.push_back(executor_.times().update);
  whole_.push_back(executor_.times().total + executor_.times().update);
}

double measured_run::step_seconds(std::size_t step) const {
  return median(steps_[step]);
}

double measured_run::update_seconds() const {
  return median(update_);
}

double measured_run::seconds() const {
  return median(whole_);
}

void set_seconds(planner::graph& g, const planner::plan& p, const measured_run& run) {
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].kind == step_kind::run) g.ops[p.steps[i].op].seconds = run.step_seconds(i);
  }
  double all = 0.0;
  const auto weight_bytes = [&](const planner::op& o) {
    double bytes = 0.0;
    for (const planner::storage_id s : o.parameters)
      bytes += static_cast<double>(g.at(s).bytes(g.batch));
    return bytes;
  };
  const auto updates = [](const planner::op& o) {
    return o.kind == op_kind::sgd_update && o.stage == planner::op_stage::update;
  };
  for (const planner::op& o : g.ops)
    all += updates(o) ? weight_bytes(o) : 0.0;
  for (planner::op& o : g.ops) {
    if (updates(o)) o.seconds = run.update_seconds() * weight_bytes(o) / all;
  }
}

void measure_ops(planner::graph& g, int threads, const std::string& machine, const executor_options& options,
                 std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                 const measuring_time& time) {
  planner::plan_options plain;
  plain.chosen_policy = planner::policy::none;
  plain.threads = threads;
  plain.machine = machine;
  executor e(planner::make_plan(g, plain), options);
  e.initialise(1);
  measured_run run(e);
  constexpr int warm_up = 2;
  for (int i = 0; i < warm_up; ++i)
    e.train_step(images, labels, i, {});
  double spent = 0.0;
  while (run.recorded() < time.steps || spent < time.seconds) {
    e.train_step(images, labels, warm_up + run.recorded(), {});
    run.record();
    spent += e.times().total + e.times().update;
  }
  set_seconds(g, e.current_plan(), run);
}

}  // namespace stash::executor
