// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/source.hpp"
#include "planner/explain_names.hpp"

namespace stash::tools {
namespace {

double ratio(std::int64_t before, std::int64_t after) {
  return after > 0 ? static_cast<double>(before) / static_cast<double>(after) : 0.0;
}

double mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

double gap(const planner::plan_times& t) {
  return t.bound_ms > 0.0 ? t.simulated_ms / t.bound_ms - 1.0 : 0.0;
}

}  // namespace

namespace {

std::ptrdiff_t moved_ops(const planner::plan& p) {
  const auto ids = p.planned_op.ids();
  return std::count_if(ids.begin(), ids.end(), [&](planner::op_id o) { return p.planned_op[o] != o; });
}

}  // namespace

nlohmann::ordered_json plan_report(const planner::plan& p) {
  const planner::plan_sizes& z = p.sizes;
  nlohmann::ordered_json j;
  j["network"] = p.network.name;
  j["batch"] = p.network.batch;
  j["policy"] = planner::to_string(p.chosen_policy);
  j["threads"] = p.threads;
  j["machine"] = p.machine;
  j["budget_bytes"] = p.budget_bytes;
  j["baseline_peak_bytes"] = z.baseline_peak;
  j["planned_peak_bytes"] = z.planned_peak;
  j["wall_bytes"] = z.wall;
  j["wall_op"] = z.wall_op.valid() ? p.network.op_at(z.wall_op).name : "";
  j["boundary_bytes"] = z.boundary;
  j["bound_bytes"] = z.bound;
  j["footprint_ratio"] = ratio(z.baseline_peak, z.planned_peak);
  j["baseline_peak_bytes_total"] = z.baseline_peak_total;
  j["planned_peak_bytes_total"] = z.planned_peak_total;
  j["footprint_ratio_total"] = ratio(z.baseline_peak_total, z.planned_peak_total);
  j["parameter_bytes"] = z.parameter_bytes;
  j["workspace_bytes"] = z.workspace_bytes;
  if (p.model) {
    j["model"] = p.times.model;
    j["unplanned_ms"] = p.times.unplanned_ms;
    j["simulated_ms"] = p.times.simulated_ms;
    j["bound_ms"] = p.times.bound_ms;
    j["gap"] = gap(p.times);
    j["host_bytes"] = p.sizes.host_bytes;
  }
  if (!p.laid_out) j["laid_out"] = false;
  j["slot_margin"] = p.slot_margin;
  j["overflow_bytes"] = p.overflow_bytes;
  if (!p.planned_op.empty()) j["moved_ops"] = moved_ops(p);
  auto& encodings = j["encodings"] = nlohmann::ordered_json::array();
  for (const planner::storage_id s : p.choices.ids()) {
    const planner::stash_choice& c = p.choices[s];
    if (c.kind == planner::stash_kind::none) continue;
    encodings.push_back({{"name", p.network.storages[s].name},
                         {"encoding", form_name(c)},
                         {"bytes_before", c.bytes_before},
                         {"bytes_after", c.bytes_after},
                         {"density", c.density},
                         {"reason", c.reason}});
  }
  return j;
}

std::string plan_summary(const planner::plan& p) {
  const planner::plan_sizes& z = p.sizes;
  const auto line = [](const char* what, std::int64_t maps, std::int64_t total) {
    return fmt::format("  {:<22}{:>14.3f} MB{:>14.3f} MB\n", what, mb(maps), mb(total));
  };
  std::string text =
      fmt::format("{}, batch {}, policy {}\n  {:<22}{:>17}{:>17}\n", planner::printable(p.network.name),
                  p.network.batch, planner::to_string(p.chosen_policy), "", "maps", "everything");
  text += line("baseline peak", z.baseline_peak, z.baseline_peak_total);
  text += line("planned peak", z.planned_peak, z.planned_peak_total);
  if (!p.laid_out) text += "  (without a layout: peaks are the largest sums of live bytes)\n";
  text += fmt::format("  {:<22}{:>14.2f} x {:>14.2f} x\n", "ratio", ratio(z.baseline_peak, z.planned_peak),
                      ratio(z.baseline_peak_total, z.planned_peak_total));
  if (!p.planned_op.empty())
    text += fmt::format("  ({} of {} ops run in another place than in the graph)\n", moved_ops(p),
                        p.network.ops.size());
  // What moves to the host is not bound by what encodings alone can do.
  const bool moves = std::any_of(p.choices.begin(), p.choices.end(),
                                 [](const planner::stash_choice& c) { return c.swapped; });
  text +=
      fmt::format("  {:<22}{:>14.3f} MB  (plan is {:.3f} x)\n", moves ? "bound without swap" : "lower bound",
                  mb(z.bound), ratio(z.planned_peak, z.bound));
  if (p.cut_groups > 0) {
    text += fmt::format("  ({} groups of maps have too many combinations: some of them were tried)\n",
                        p.cut_groups);
  }
  text += fmt::format("  {:<22}{:>14.3f} MB  ({})\n", "largest op (W)", mb(z.wall),
                      z.wall_op.valid() ? planner::printable(p.network.op_at(z.wall_op).name) : "none");
  text += fmt::format("  {:<22}{:>14.3f} MB\n", "forward/backward sum", mb(z.boundary));
  if (p.model) {
    text +=
        fmt::format("  {:<22}{:>14.3f} ms  (unplanned {:.3f} ms, no plan below {:.3f} ms: gap {:.2f} %)\n",
                    "step on " + planner::printable(p.times.model), p.times.simulated_ms,
                    p.times.unplanned_ms, p.times.bound_ms, 100.0 * gap(p.times));
    if (moves) text += fmt::format("  {:<22}{:>14.3f} MB\n", "on the host", mb(z.host_bytes));
  }
  return text;
}

}  // namespace stash::tools
