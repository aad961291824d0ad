// SPDX-License-Identifier: Apache-2.0
#include "report/chrome_trace.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "files/source.hpp"
#include "report/plan_view.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using json = nlohmann::ordered_json;
using planner::plan;
using planner::step;
using planner::step_kind;

// The viewers count in microseconds and keep nanoseconds. Whole ones, so that what follows without a gap does
// not overlap by a rounding.
std::int64_t nanoseconds(double ms) {
  return std::llround(ms * 1e6);
}

double microseconds(std::int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

constexpr const char* track_names[] = {"compute", "copy out (device to host)", "copy in (host to device)"};

std::string dump(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

json about(const plan& p, const char* note) {
  return {{"graph", p.network.name},
          {"batch", p.network.batch},
          {"policy", planner::to_string(p.chosen_policy)},
          {"machine model", p.times.model},
          {"unplanned_ms", p.times.unplanned_ms},
          {"simulated_ms", p.times.simulated_ms},
          {"bound_ms", p.times.bound_ms},
          {"planned_peak_bytes", p.sizes.planned_peak_total},
          {"note", note}};
}

/// One process of the trace: the steps of a plan at given times.
class trace_writer {
 public:
  /// Flows are numbered from `first_flow`: viewers join equal numbers of different processes.
  trace_writer(const plan& p, const std::vector<planner::step_time>& timeline, double end_ms,
               double update_ms, int process, std::int64_t first_flow)
      : p_(p),
        timeline_(timeline),
        end_ms_(end_ms),
        update_ms_(update_ms),
        process_(process),
        flows_(first_flow) {}

  void write(const char* what) {
    names(what);
    for (std::size_t i = 0; i < p_.steps.size(); ++i)
      slice(i);
    update();
  }

  // A value holds until the next one.
  void counter(const char* name, const std::vector<std::int64_t>& values, const std::vector<double>& clock) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0 && values[i] == values[i - 1] && i + 1 < values.size()) continue;
      events_.push_back({{"ph", "C"},
                         {"name", name},
                         {"pid", process_},
                         {"ts", microseconds(nanoseconds(clock[i]))},
                         {"args", {{"bytes", values[i]}}}});
    }
  }

  std::int64_t last_flow() const { return flows_; }
  const std::vector<json>& events() const { return events_; }

 private:
  static int thread(track t) { return static_cast<int>(t) + 1; }

  void names(const char* what) {
    const auto add = [&](const char* key, json value, int tid) {
      events_.push_back(
          {{"ph", "M"}, {"name", key}, {"pid", process_}, {"tid", tid}, {"args", std::move(value)}});
    };
    add("process_name", {{"name", p_.network.name + ", " + what}}, 0);
    add("process_sort_index", {{"sort_index", process_}}, 0);
    for (const track t : {track::compute, track::copy_out, track::copy_in}) {
      add("thread_name", {{"name", track_names[static_cast<int>(t)]}}, thread(t));
      add("thread_sort_index", {{"sort_index", thread(t)}}, thread(t));
    }
  }

  void slice(std::size_t i) {
    const step& s = p_.steps[i];
    const std::int64_t begin = nanoseconds(timeline_[i].begin_ms), end = nanoseconds(timeline_[i].end_ms);
    const activity what = activity_of(p_, s);
    if (what == activity::wait && begin == end) return;  // nothing was waited for
    json args{{"step", i}};
    if (s.op.valid()) args["op"] = p_.network.op_at(s.op).name;
    if (s.storage.valid()) {
      args["tensor"] = p_.network.at(s.storage).name;
      args["kept as"] = form_name(p_.choices[s.storage]);
    }
    if (!s.inputs.empty() && s.inputs[0].valid()) args["bytes in"] = bytes_of(s.inputs);
    if (!s.outputs.empty() && s.outputs[0].valid()) args["bytes out"] = bytes_of(s.outputs);
    const int tid = thread(track_of(s.kind));
    events_.push_back({{"ph", "X"},
                       {"name", title_of(p_, s)},
                       {"cat", to_string(what)},
                       {"pid", process_},
                       {"tid", tid},
                       {"ts", microseconds(begin)},
                       {"dur", microseconds(end - begin)},
                       {"args", std::move(args)}});
    flows(s, tid, begin, end);
  }

  std::int64_t bytes_of(const std::vector<planner::buffer_id>& list) const {
    std::int64_t sum = 0;
    for (const planner::buffer_id b : list)
      sum += b.valid() ? p_.buffers[b].bytes : 0;
    return sum;
  }

  struct anchor {
    int tid;
    std::int64_t ns;  // inside its slice, where viewers look for it
  };

  // From an encoder to each reader of what it wrote, from a copy out to the copy back.
  void flows(const step& s, int tid, std::int64_t begin, std::int64_t end) {
    const anchor here{tid, begin + (end - begin) / 2};
    if (s.kind == step_kind::encode) encoded_[s.storage] = here;
    if (s.kind == step_kind::copy_out) copied_[s.storage] = here;
    if (s.kind == step_kind::decode || s.kind == step_kind::recompute)
      flow(encoded_, s.storage, "encoded form", here);
    if (s.kind == step_kind::copy_in) flow(copied_, s.storage, "on the host", here);
  }

  void flow(const std::map<planner::storage_id, anchor>& from, planner::storage_id s, const char* name,
            anchor to) {
    const auto found = from.find(s);
    if (found == from.end()) return;
    ++flows_;
    const auto end_of = [&](const char* phase, anchor at) {
      return json{{"ph", phase},
                  {"name", name},
                  {"cat", "flow"},
                  {"id", flows_},
                  {"pid", process_},
                  {"tid", at.tid},
                  {"ts", microseconds(at.ns)}};
    };
    events_.push_back(end_of("s", found->second));
    json finish = end_of("f", to);
    finish["bp"] = "e";
    events_.push_back(std::move(finish));
  }

  void update() {
    const std::int64_t begin = nanoseconds(end_ms_ - update_ms_), end = nanoseconds(end_ms_);
    if (end <= begin) return;
    std::int64_t after = begin;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if (track_of(p_.steps[i].kind) == track::compute)
        after = std::max(after, nanoseconds(timeline_[i].end_ms));
    }
    if (end <= after) return;
    events_.push_back({{"ph", "X"},
                       {"name", "update"},
                       {"cat", to_string(activity::update)},
                       {"pid", process_},
                       {"tid", thread(track::compute)},
                       {"ts", microseconds(after)},
                       {"dur", microseconds(end - after)}});
  }

  const plan& p_;
  const std::vector<planner::step_time>& timeline_;
  double end_ms_, update_ms_;
  int process_;
  std::vector<json> events_;
  std::map<planner::storage_id, anchor> encoded_, copied_;
  std::int64_t flows_;
};

void add_counters(trace_writer& to, const plan& p) {
  const std::vector<double> clock = clock_of(p);
  std::vector<std::int64_t> device = live_device_bytes(p), host = live_host_bytes(p);
  device.push_back(0);
  host.push_back(0);
  for (std::int64_t& bytes : device)
    bytes += static_bytes_of(p);
  to.counter("device memory", device, clock);
  to.counter("host memory", host, clock);
  if (p.budget_bytes > 0) to.counter("budget", {p.budget_bytes, p.budget_bytes}, {0.0, clock.back()});
}

std::string file_of(const json& about, const std::vector<const trace_writer*>& writers) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + dump(about) + ",\n\"traceEvents\":[\n";
  bool first = true;
  for (const trace_writer* const w : writers) {
    for (const json& event : w->events()) {
      if (!first) text += ",\n";
      first = false;
      text += dump(event);
    }
  }
  return text + "\n]}\n";
}

constexpr int predicted_process = 1, measured_process = 2;

}  // namespace

std::string chrome_trace(const plan& p) {
  if (p.timeline.empty()) {
    throw error(errc::invalid_argument,
                "--chrome-trace: expected a plan with times (made with --machine), got one without");
  }
  trace_writer predicted(p, p.timeline.list(), p.times.simulated_ms, p.times.update_ms, predicted_process, 0);
  predicted.write("plan");
  add_counters(predicted, p);
  return file_of(about(p, "times are predicted by the machine model, not measured"), {&predicted});
}

std::string chrome_trace(const plan& p, const measured_step& measured) {
  trace_writer predicted(p, p.timeline.list(), p.times.simulated_ms, p.times.update_ms, predicted_process, 0);
  if (!p.timeline.empty()) {
    predicted.write("predicted");
    add_counters(predicted, p);
  }
  trace_writer real(p, measured.timeline, measured.end_ms, measured.update_ms, measured_process,
                    predicted.last_flow());
  real.write("measured");
  json says = about(p,
                    "the process 'measured' is the last training step; 'predicted', if it is there, is the "
                    "machine model's");
  says["measured_ms"] = measured.end_ms;
  return file_of(says, {&predicted, &real});
}

}  // namespace stash::tools
