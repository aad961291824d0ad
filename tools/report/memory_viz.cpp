// SPDX-License-Identifier: Apache-2.0
#include "report/memory_viz.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "files/source.hpp"
#include "report/plan_view.hpp"

namespace stash::tools {
namespace {

using json = nlohmann::ordered_json;
using planner::buffer;
using planner::buffer_form;
using planner::plan;

// Where real arenas lie, far below 2^53: the viewer computes with doubles.
constexpr std::int64_t arena_address = std::int64_t{0x7f} << 40, host_address = std::int64_t{0x10} << 40;

class snapshot_writer {
 public:
  explicit snapshot_writer(const plan& p) : p_(p), starts_(p.steps.size()), ends_(p.steps.size()) {
    for (const planner::buffer_id i : p.buffers.ids()) {
      if (p.buffers[i].bytes == 0) continue;  // shares its address with another one
      starts_[p.buffers[i].first_step].push_back(i);
      ends_[p.buffers[i].last_step].push_back(i);
    }
  }

  json run() {
    json segments = json::array({arena()});
    json traces = json::array({std::exchange(events_, json::array())});
    if (p_.sizes.host_bytes > 0) {
      segments.push_back(segment(1, host_address, p_.sizes.host_bytes,
                                 json::array({inactive(host_address, p_.sizes.host_bytes)})));
      begin_segment(host_address, p_.sizes.host_bytes, "the host arena");
      buffers(host_address, true);
      traces.push_back(std::move(events_));
    }
    return {{"segments", std::move(segments)}, {"device_traces", std::move(traces)}};
  }

 private:
  // What viewers show where a stack of calls would be.
  json frames(std::int64_t step, const std::string& what) const {
    return json::array({{{"filename", p_.network.name}, {"line", step}, {"name", what}}});
  }
  json step_frames(std::size_t i, const std::string& metadata) const {
    const std::string at = fmt::format("step {} ({})", i, title_of(p_, p_.steps[i]));
    json list = frames(static_cast<std::int64_t>(i), metadata);
    list.push_back({{"filename", p_.network.name}, {"line", i}, {"name", at}});
    return list;
  }

  static json inactive(std::int64_t address, std::int64_t bytes) {
    return {{"address", address},
            {"size", bytes},
            {"requested_size", bytes},
            {"state", "inactive"},
            {"frames", json::array()}};
  }
  static json segment(int device, std::int64_t address, std::int64_t bytes, json blocks) {
    return {{"device", device},        {"address", address},         {"total_size", bytes},
            {"allocated_size", 0},     {"active_size", 0},           {"stream", 0},
            {"segment_type", "large"}, {"segment_pool_id", {0, 0}},  {"is_expandable", false},
            {"frames", json::array()}, {"blocks", std::move(blocks)}};
  }

  void event(const char* action, std::int64_t address, std::int64_t bytes, json frames,
             const std::string& metadata) {
    events_.push_back({{"action", action},
                       {"addr", address},
                       {"size", bytes},
                       {"stream", 0},
                       {"frames", std::move(frames)},
                       {"user_metadata", metadata}});
  }

  void begin_segment(std::int64_t address, std::int64_t bytes, const std::string& what) {
    event("segment_alloc", address, bytes, frames(0, what), what);
  }

  // Parameters and workspace at the bottom, there from the first step to the last, and the maps above them.
  json arena() {
    const std::int64_t bytes = p_.sizes.planned_peak + static_bytes_of(p_);
    begin_segment(arena_address, bytes, "the arena of the plan");
    json blocks = json::array();
    std::int64_t at = arena_address, active = 0;
    const auto stays = [&](std::int64_t size, const std::string& metadata) {
      if (size == 0) return;
      event("alloc", at, size, frames(0, metadata), metadata);
      blocks.push_back({{"address", at},
                        {"size", size},
                        {"requested_size", size},
                        {"state", "active_allocated"},
                        {"frames", frames(0, metadata)},
                        {"user_metadata", metadata}});
      at += size;
      active += size;
    };
    for (const planner::storage& s : p_.network.storages) {
      if (s.batch_proportional()) continue;
      const std::int64_t unit = planner::buffer_alignment;
      stays((s.fixed_bytes + unit - 1) / unit * unit,
            fmt::format("{} ({})", s.name, planner::to_string(s.role)));
    }
    stays(p_.sizes.workspace_bytes, "workspace of the ops");
    if (p_.sizes.planned_peak > 0) blocks.push_back(inactive(at, p_.sizes.planned_peak));
    buffers(at, false);
    json s = segment(0, arena_address, bytes, std::move(blocks));
    s["allocated_size"] = s["active_size"] = active;
    return s;
  }

  void buffers(std::int64_t address, bool host) {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      for (const planner::buffer_id b : starts_[i])
        if (is(b, host)) touch("alloc", i, b, address);
      for (const planner::buffer_id b : ends_[i]) {
        if (!is(b, host)) continue;
        // Next to each other, so that viewers join them.
        touch("free_requested", i, b, address);
        touch("free_completed", i, b, address);
      }
    }
  }

  bool is(planner::buffer_id id, bool host) const {
    return (p_.buffers[id].form == buffer_form::host) == host;
  }

  void touch(const char* action, std::size_t step, planner::buffer_id id, std::int64_t address) {
    const buffer& b = p_.buffers[id];
    const std::string metadata = description(b);
    event(action, address + b.offset, b.bytes, step_frames(step, metadata), metadata);
  }

  std::string description(const buffer& b) const {
    if (!b.storage.valid()) return "overflow arena of sparse maps";
    const planner::storage& s = p_.network.at(b.storage);
    const planner::stash_choice& c = p_.choices[b.storage];
    return fmt::format("{} ({}), {}; kept as {}", s.name, planner::to_string(s.role),
                       planner::to_string(b.form), form_name(c));
  }

  const plan& p_;
  planner::id_vector<planner::step_number, std::vector<planner::buffer_id>> starts_, ends_;
  json events_ = json::array();
};

}  // namespace

json memory_viz(const plan& p) {
  return snapshot_writer(p).run();
}

}  // namespace stash::tools
