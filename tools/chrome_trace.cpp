#include "chrome_trace.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "plan_view.hpp"
#include "source.hpp"
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

class trace_writer {
 public:
  explicit trace_writer(const plan& p) : p_(p) {}

  std::string run() {
    names();
    for (std::size_t i = 0; i < p_.steps.size(); ++i)
      slice(i);
    update();
    counters();
    std::string text =
        "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + dump(about()) + ",\n\"traceEvents\":[\n";
    for (std::size_t i = 0; i < events_.size(); ++i)
      text += dump(events_[i]) + (i + 1 < events_.size() ? ",\n" : "\n");
    return text + "]}\n";
  }

 private:
  static std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }
  static int thread(track t) { return static_cast<int>(t) + 1; }

  json about() const {
    return {{"graph", p_.network.name},
            {"batch", p_.network.batch},
            {"policy", planner::to_string(p_.chosen_policy)},
            {"machine model", p_.times.model},
            {"unplanned_ms", p_.times.unplanned_ms},
            {"simulated_ms", p_.times.simulated_ms},
            {"bound_ms", p_.times.bound_ms},
            {"planned_peak_bytes", p_.sizes.planned_peak_total},
            {"note", "times are predicted by the machine model, not measured"}};
  }

  void names() {
    const auto add = [&](const char* what, json about, int tid) {
      events_.push_back({{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", tid}, {"args", std::move(about)}});
    };
    add("process_name", {{"name", p_.network.name + ", plan"}}, 0);
    for (const track t : {track::compute, track::copy_out, track::copy_in}) {
      add("thread_name", {{"name", track_names[static_cast<int>(t)]}}, thread(t));
      add("thread_sort_index", {{"sort_index", thread(t)}}, thread(t));
    }
  }

  void slice(std::size_t i) {
    const step& s = p_.steps[i];
    const std::int64_t begin = nanoseconds(p_.timeline[i].begin_ms), end = nanoseconds(p_.timeline[i].end_ms);
    const activity what = activity_of(p_, s);
    if (what == activity::wait && begin == end) return;  // nothing was waited for
    json args{{"step", i}};
    if (s.op >= 0) args["op"] = p_.network.op_at(s.op).name;
    if (s.storage >= 0) {
      args["tensor"] = p_.network.at(s.storage).name;
      args["kept as"] = form_name(p_.choices[static_cast<std::size_t>(s.storage)]);
    }
    if (!s.inputs.empty() && s.inputs[0] >= 0) args["bytes in"] = bytes_of(s.inputs);
    if (!s.outputs.empty() && s.outputs[0] >= 0) args["bytes out"] = bytes_of(s.outputs);
    const int tid = thread(track_of(s.kind));
    events_.push_back({{"ph", "X"},
                       {"name", title_of(p_, s)},
                       {"cat", to_string(what)},
                       {"pid", 1},
                       {"tid", tid},
                       {"ts", microseconds(begin)},
                       {"dur", microseconds(end - begin)},
                       {"args", std::move(args)}});
    flows(s, tid, begin, end);
  }

  std::int64_t bytes_of(const std::vector<planner::buffer_id>& list) const {
    std::int64_t sum = 0;
    for (const planner::buffer_id b : list)
      sum += b >= 0 ? p_.buffers[static_cast<std::size_t>(b)].bytes : 0;
    return sum;
  }

  struct place {
    int tid;
    std::int64_t ns;  // inside its slice, where viewers look for it
  };

  // From an encoder to each reader of what it wrote, from a copy out to the copy back.
  void flows(const step& s, int tid, std::int64_t begin, std::int64_t end) {
    const place here{tid, begin + (end - begin) / 2};
    if (s.kind == step_kind::encode) encoded_[s.storage] = here;
    if (s.kind == step_kind::copy_out) copied_[s.storage] = here;
    if (s.kind == step_kind::decode || s.kind == step_kind::recompute)
      flow(encoded_, s.storage, "encoded form", here);
    if (s.kind == step_kind::copy_in) flow(copied_, s.storage, "on the host", here);
  }

  void flow(const std::map<planner::storage_id, place>& from, planner::storage_id s, const char* name,
            place to) {
    const auto found = from.find(s);
    if (found == from.end()) return;
    ++flows_;
    const auto end_of = [&](const char* phase, place at) {
      return json{{"ph", phase},
                  {"name", name},
                  {"cat", "flow"},
                  {"id", flows_},
                  {"pid", 1},
                  {"tid", at.tid},
                  {"ts", microseconds(at.ns)}};
    };
    events_.push_back(end_of("s", found->second));
    json finish = end_of("f", to);
    finish["bp"] = "e";
    events_.push_back(std::move(finish));
  }

  void update() {
    const std::int64_t begin = nanoseconds(p_.times.simulated_ms - p_.times.update_ms);
    const std::int64_t end = nanoseconds(p_.times.simulated_ms);
    if (end <= begin) return;
    std::int64_t after = begin;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if (track_of(p_.steps[i].kind) == track::compute)
        after = std::max(after, nanoseconds(p_.timeline[i].end_ms));
    }
    if (end <= after) return;
    events_.push_back({{"ph", "X"},
                       {"name", "update"},
                       {"cat", to_string(activity::update)},
                       {"pid", 1},
                       {"tid", thread(track::compute)},
                       {"ts", microseconds(after)},
                       {"dur", microseconds(end - after)}});
  }

  // A value holds until the next one.
  void counter(const char* name, const std::vector<std::int64_t>& values, const std::vector<double>& clock) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0 && values[i] == values[i - 1] && i + 1 < values.size()) continue;
      events_.push_back({{"ph", "C"},
                         {"name", name},
                         {"pid", 1},
                         {"ts", microseconds(nanoseconds(clock[i]))},
                         {"args", {{"bytes", values[i]}}}});
    }
  }

  void counters() {
    const std::vector<double> clock = clock_of(p_);
    std::vector<std::int64_t> device = live_device_bytes(p_), host = live_host_bytes(p_);
    device.push_back(0);
    host.push_back(0);
    for (std::int64_t& bytes : device)
      bytes += bytes_beside_maps(p_);
    counter("device memory", device, clock);
    counter("host memory", host, clock);
    if (p_.budget_bytes > 0) counter("budget", {p_.budget_bytes, p_.budget_bytes}, {0.0, clock.back()});
  }

  const plan& p_;
  std::vector<json> events_;
  std::map<planner::storage_id, place> encoded_, copied_;
  std::int64_t flows_ = 0;
};

}  // namespace

std::string chrome_trace(const plan& p) {
  if (p.timeline.empty()) {
    throw error(errc::invalid_argument,
                "--chrome-trace: expected a plan with times (made with --machine), got one without");
  }
  return trace_writer(p).run();
}

}  // namespace stash::tools
