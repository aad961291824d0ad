// SPDX-License-Identifier: Apache-2.0
#include "report/plan_view.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/layout/layout_csv.hpp"

namespace stash::tools {
namespace {

using planner::buffer;
using planner::buffer_form;
using planner::plan;
using planner::step;
using planner::step_kind;

std::vector<std::int64_t> live_bytes(const plan& p, bool host) {
  std::vector<std::int64_t> change(p.steps.size() + 1, 0), live(p.steps.size());
  for (const buffer& b : p.buffers) {
    if ((b.form == buffer_form::host) != host) continue;
    change[static_cast<std::size_t>(b.first_step)] += b.bytes;
    change[static_cast<std::size_t>(b.last_step) + 1] -= b.bytes;
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < live.size(); ++i)
    live[i] = sum += change[i];
  return live;
}

}  // namespace

track track_of(step_kind kind) noexcept {
  if (kind == step_kind::copy_out) return track::copy_out;
  return kind == step_kind::copy_in ? track::copy_in : track::compute;
}

activity activity_of(const plan& p, const step& s) {
  switch (s.kind) {
    case step_kind::run:
      break;
    case step_kind::encode:
      return activity::encode;
    case step_kind::decode:
      return activity::decode;
    case step_kind::recompute:
      return activity::recompute;
    case step_kind::copy_out:
    case step_kind::copy_in:
      return activity::copy;
    case step_kind::wait_out:
    case step_kind::wait_in:
      return activity::wait;
  }
  return p.network.op_at(s.op).stage == planner::op_stage::forward ? activity::forward : activity::backward;
}

std::string_view to_string(activity a) noexcept {
  switch (a) {
    case activity::forward:
      return "forward";
    case activity::backward:
      return "backward";
    case activity::encode:
      return "encode";
    case activity::decode:
      return "decode";
    case activity::recompute:
      return "recompute";
    case activity::copy:
      return "copy";
    case activity::wait:
      return "wait";
    case activity::update:
      return "update";
  }
  return "";
}

std::string title_of(const plan& p, const step& s) {
  if (s.kind == step_kind::run) return p.network.op_at(s.op).name;
  const std::string& name = p.network.at(s.storage).name;
  switch (s.kind) {
    case step_kind::copy_out:
      return fmt::format("copy {} out", name);
    case step_kind::copy_in:
      return fmt::format("copy {} in", name);
    case step_kind::wait_out:
      return fmt::format("wait for {} to be out", name);
    case step_kind::wait_in:
      return fmt::format("wait for {} to be in", name);
    default:
      return fmt::format("{} {}", planner::to_string(s.kind), name);
  }
}

std::vector<double> clock_of(const plan& p) {
  std::vector<double> clock;
  double now = 0.0;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const bool computes = track_of(p.steps[i].kind) == track::compute;
    clock.push_back(computes ? std::max(now, p.timeline[i].begin_ms) : now);
    if (computes) now = std::max(now, p.timeline[i].end_ms);
  }
  clock.push_back(std::max(now, p.times.simulated_ms));
  return clock;
}

std::vector<std::int64_t> live_device_bytes(const plan& p) {
  return live_bytes(p, false);
}

std::vector<std::int64_t> live_host_bytes(const plan& p) {
  return live_bytes(p, true);
}

std::int64_t static_bytes_of(const plan& p) noexcept {
  return p.sizes.parameter_bytes + p.sizes.workspace_bytes;
}

std::string layout_csv(const plan& p) {
  planner::layout_table table;
  for (const planner::buffer_id i : p.buffers.ids()) {
    const buffer& b = p.buffers[i];
    if (b.form == buffer_form::host || b.bytes == 0) continue;
    const std::string name = !b.storage.valid() ? "arena" : p.network.at(b.storage).name;
    table.ids.push_back(fmt::format("{}: {} {}", i.number(), name, planner::to_string(b.form)));
    table.blocks.push_back({b.first_step, b.last_step + 1, b.bytes});
    table.offsets.push_back(b.offset);
  }
  return planner::write_layout_csv(table);
}

}  // namespace stash::tools
