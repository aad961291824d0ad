// SPDX-License-Identifier: Apache-2.0
// The table of Gist: footprints of maps, and what its own rule gives.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "planner/budget_planner.hpp"
#include "reproduce/reproduce_rows.hpp"

namespace stash::tools {

using planner::policy;

namespace {

constexpr std::int64_t no_limit = std::int64_t{1} << 60;

bool sees_the_whole_batch(const planner::graph& g) {
  return std::any_of(g.ops.begin(), g.ops.end(),
                     [](const planner::op& o) { return o.kind == planner::op_kind::batch_norm; });
}

planner::plan smallest(const reproduction& r, const std::string& network, std::int64_t batch, policy p) {
  planner::plan_options o;
  o.chosen_policy = p;
  o.threads = r.threads;
  planner::plan made = planner::make_plan(network_graph(network, {batch, 0, 0}, r.threads), o);
  check(made);
  return made;
}

constexpr std::int64_t batch = 64;
constexpr std::string_view memory_model = "memory; density 0.5 after ReLU";

struct version {
  policy p;
  const char* published;
  double mean_target;
};

std::vector<std::string> five_networks() {
  return {"alexnet", "nin", "overfeat", "vgg16", "inception_v1"};
}

std::string name_of_mean(const version& v) {
  return fmt::format("mean of five, {}", planner::to_string(v.p));
}

// The row of one network, and its figure.
double footprint_row(const reproduction& r, const version& v, const std::string& network, table_row row) {
  const stopwatch clock;
  const planner::plan p = smallest(r, network, batch, v.p);
  row.figure = ratio(p.sizes.baseline_peak, p.sizes.planned_peak);
  row.published = v.published;
  row.ours = fmt::format(
      "{:.2f}x maps ({:.1f} MB of {:.1f} MB), {:.2f}x with weights and workspace, {:.3f} x "
      "the bound",
      row.figure, mb(p.sizes.planned_peak), mb(p.sizes.baseline_peak),
      ratio(p.sizes.baseline_peak_total, p.sizes.planned_peak_total),
      ratio(p.sizes.planned_peak, p.sizes.bound));
  if (!sees_the_whole_batch(p.network)) {
    const planner::plan half = smallest(r, network, batch / 2, v.p);
    row.ours += fmt::format("; in two halves of the batch {:.2f}x",
                            ratio(p.sizes.baseline_peak, half.sizes.planned_peak));
  }
  row.simulated = memory_model;
  row.limit = fmt::format("W of {} is 1/{:.2f} of the baseline", p.network.op_at(p.sizes.wall_op).name,
                          ratio(p.sizes.baseline_peak, p.sizes.wall));
  row.verified = "yes";
  row.seconds = clock.seconds();
  if (network == "resnet50" && v.p == policy::fp8) {
    row.target = 4.8;
    row.published = "-";
  }
  r.add(row);
  table_row tight = row;
  tight.what = fmt::format("{}, {}: planned peak over bound", network, planner::to_string(v.p));
  tight.published = "-";
  tight.figure = ratio(p.sizes.planned_peak, p.sizes.bound);
  tight.ours = fmt::format("{:.3f}", tight.figure);
  tight.target = 1.05;
  tight.at_most = true;
  tight.limit = "layout";
  tight.seconds = 0.0;
  r.add(tight);
  return row.figure;
}

void mean_row(const reproduction& r, const version& v, double mean, double seconds) {
  table_row row;
  row.what = name_of_mean(v) + ": footprint of maps";
  row.published = v.p == policy::lossless ? "1.4x, 1.5x at most (from notes)" : "1.8x (2x at most)";
  row.figure = mean;
  row.ours = fmt::format("{:.2f}x", row.figure);
  row.target = v.mean_target;
  row.simulated = memory_model;
  row.limit = "W of each network";
  row.verified = "yes";
  row.seconds = seconds;
  r.add(row);
}

// The paper's own rule through our schedule and layout, and what it costs.
void rule_row(const reproduction& r, const planner::machine& m, const std::string& network, table_row row) {
  const stopwatch clock;
  planner::budget_planner sweep(network_graph(network, {batch, 0, 0}, r.threads),
                                options_for(r, policy::gist, m));
  const planner::plan p = sweep.make(no_limit);
  check(p);
  row.figure = ratio(p.sizes.baseline_peak, p.sizes.planned_peak);
  row.published = "1.8x mean with narrower values, +4 % time";
  row.ours = fmt::format("{:.2f}x maps, {:+.1f} % time", row.figure,
                         100 * (p.times.simulated_ms / p.times.unplanned_ms - 1));
  row.simulated = "memory and time on " + m.name;
  row.limit = "the rule: one form per pair of layers";
  row.verified = "yes";
  row.seconds = clock.seconds();
  r.add(row);
}

}  // namespace

void gist_table(const reproduction& r) {
  const std::vector<std::string> five = five_networks();
  std::vector<std::string> all = five;
  all.insert(all.end(), {"alexnet_lrn", "resnet50"});
  for (const version& v :
       {version{policy::lossless, "1.4x mean (from notes)", 1.9}, version{policy::fp8, "1.8x mean", 2.7}}) {
    double sum = 0.0;
    std::size_t count = 0;
    const stopwatch whole;
    for (const std::string& network : all) {
      table_row row;
      row.what = fmt::format("{}, batch {}, {}: footprint of maps", network, batch, planner::to_string(v.p));
      if (!r.wants(row.what) && !r.wants(name_of_mean(v))) continue;
      if (r.stopped()) return;
      r.progress(row.what);
      const double figure = footprint_row(r, v, network, row);
      if (std::find(five.begin(), five.end(), network) == five.end()) continue;
      sum += figure;
      ++count;
    }
    if (count == five.size()) mean_row(r, v, sum / static_cast<double>(count), whole.seconds());
  }
  const planner::machine m = planner::find_machine("m40_12gb");
  for (const std::string& network : all) {
    table_row row;
    row.what = fmt::format("{}, batch {}, rule of Gist (fp16): footprint of maps and time", network, batch);
    if (!r.wants(row.what)) continue;
    if (r.stopped()) return;
    r.progress(row.what);
    rule_row(r, m, network, row);
  }
}

}  // namespace stash::tools
