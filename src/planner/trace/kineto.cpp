// SPDX-License-Identifier: Apache-2.0
// Profiles: what a call launched is found through the runtime's calls, which lie inside it on its thread and
// have the correlation number of the work on the device. The numbers that profiles give directly changed
// their meaning.

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "planner/json/lenient_json.hpp"
#include "planner/json/text_kind.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_ops.hpp"

namespace stash::planner {
namespace {

using kind = lenient_json::kind;

constexpr double seconds_per_unit = 1e-6;
/// Thirty years. What lasts longer is damage, and sums of it might not be finite.
constexpr double longest_duration = 1e15;

struct profile_event {
  std::string_view category;
  std::string_view name;  ///< with escapes
  std::string_view thread;
  double start = 0.0;
  double duration = 0.0;
  std::int64_t record_function = -1;
  std::int64_t external = -1;
  std::int64_t correlation = -1;
};

/// A call of an operator or of the runtime, on the thread that makes it.
struct call {
  std::string_view name;
  std::string_view thread;
  double start = 0.0;
  double duration = 0.0;
  std::int64_t number = -1;  ///< record function of an operator, correlation of a runtime call
  bool runtime = false;
  bool external = false;  ///< the number is an external id
  double launched = 0.0;
};

profile_event read_event(lenient_json& in) {
  profile_event e;
  in.object([&](std::string_view key) {
    const bool text = in.peek() == kind::string;
    if (key == "cat" && text) {
      e.category = in.raw_string();
    } else if (key == "name" && text) {
      e.name = in.raw_string();
    } else if (key == "tid") {
      e.thread = in.skip();
    } else if (key == "ts") {
      e.start = in.number().value_or(0.0);
    } else if (key == "dur") {
      e.duration = in.number().value_or(0.0);
    } else if (key == "args" && in.peek() == kind::object) {
      in.object([&](std::string_view argument) {
        if (argument == "External id") {
          e.external = in.integer().value_or(-1);
        } else if (argument == "Record function id") {
          e.record_function = in.integer().value_or(-1);
        } else if (argument == "correlation") {
          e.correlation = in.integer().value_or(-1);
        } else {
          in.skip();
        }
      });
    } else {
      in.skip();
    }
  });
  if (!std::isfinite(e.start)) e.start = 0.0;
  if (!(e.duration >= 0.0 && e.duration <= longest_duration)) e.duration = 0.0;
  return e;
}

/// Adds what every call launched to itself and to all calls around it.
void add_up(std::vector<call>& calls, const std::unordered_map<std::int64_t, double>& work) {
  std::sort(calls.begin(), calls.end(), [](const call& a, const call& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.start != b.start) return a.start < b.start;
    return a.duration > b.duration;
  });
  std::vector<std::size_t> around;
  const auto leave = [&] {
    const double launched = calls[around.back()].launched;
    around.pop_back();
    if (!around.empty()) calls[around.back()].launched += launched;
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    call& c = calls[i];
    while (!around.empty() && (calls[around.back()].thread != c.thread ||
                               calls[around.back()].start + calls[around.back()].duration <= c.start)) {
      leave();
    }
    if (c.runtime) {
      const auto at = work.find(c.number);
      if (at != work.end()) c.launched = at->second;
    }
    around.push_back(i);
  }
  while (!around.empty())
    leave();
}

std::vector<kernel_time> read_profile(std::string_view text) {
  lenient_json in("read_kineto", text);
  std::vector<call> calls;
  std::unordered_map<std::int64_t, double> work;  // by correlation
  const auto take = [&] {
    const profile_event e = read_event(in);
    if (e.category == "cpu_op" || e.category == "Operator") {
      const bool external = e.record_function < 0;
      calls.push_back({e.name, e.thread, e.start, e.duration, external ? e.external : e.record_function,
                       false, external, 0.0});
    } else if (e.category == "cuda_runtime" || e.category == "cuda_driver" || e.category == "Runtime") {
      calls.push_back({e.name, e.thread, e.start, e.duration, e.correlation, true, false, 0.0});
    } else if (e.category == "kernel" || e.category == "gpu_memcpy" || e.category == "gpu_memset" ||
               e.category == "Kernel" || e.category == "Memcpy" || e.category == "Memset") {
      if (e.correlation >= 0) work[e.correlation] += e.duration;
    }
  };
  if (in.peek() == kind::array) {
    in.array(take);
  } else {
    bool any = false;
    in.object([&](std::string_view key) {
      if (key == "traceEvents") {
        any = true;
        in.array(take);
      } else {
        in.skip();
      }
    });
    if (!any) in.fail("a list 'traceEvents' before this position");
  }
  in.finish();
  add_up(calls, work);
  std::vector<kernel_time> times;
  for (const call& c : calls) {
    if (c.runtime) continue;
    times.push_back({std::string(c.name), c.number,
                     (work.empty() ? c.duration : c.launched) * seconds_per_unit, c.external});
  }
  return times;
}

/// Why fewer than half of the operators agree. Kineto writes 0 where nothing asked PyTorch for numbers, which
/// the observer of an execution trace does.
std::string why_separate(const joined_times& j, bool trace_has_numbers, const std::vector<kernel_time>& times,
                         std::int64_t iteration) {
  if (times.empty())
    return "expected a profile with calls of operators (events of category cpu_op), got one without any";
  if (!trace_has_numbers) return "expected the trace to have the 'rf_id' of its calls, got one without any";
  const auto any = [&](auto says) { return std::any_of(times.begin(), times.end(), says); };
  const std::string share =
      fmt::format("{} of {} operators of iteration {}", j.joined, j.operators, iteration);
  if (any([](const kernel_time& k) { return !k.external && k.record_function > 0; })) {
    return fmt::format(
        "expected a profile that was recorded together with the trace, got one in which {} have the same "
        "number and name",
        share);
  }
  if (any([](const kernel_time& k) { return !k.external; })) {
    return "expected a profile that was recorded while the observer of the trace was active "
           "(profile(execution_trace_observer=...)), got one in which every 'Record function id' is 0";
  }
  return fmt::format(
      "expected a profile with the 'Record function id' of its calls (PyTorch 2.4 and newer write it), got "
      "one without any, and {} have the same 'External id' and name",
      share);
}

}  // namespace

std::vector<kernel_time> read_kineto(std::string_view text) {
  return read_as(text_kind::profile, "read_kineto", text, [text] { return read_profile(text); });
}

joined_times join_times(trace& t, const std::vector<kernel_time>& times, const trace_options& options) {
  const trace_iteration& iteration = traces::iteration_of(t, options);
  const std::int32_t device = traces::device_of(t, iteration, options);
  std::unordered_map<std::int64_t, const kernel_time*> by_number;
  for (const kernel_time& k : times) {
    if (k.record_function >= 0) by_number.emplace(k.record_function, &k);
  }
  joined_times result;
  bool trace_has_numbers = false;
  std::vector<std::pair<std::size_t, double>> found;
  for (const traces::trace_event& e : traces::events_of(t, iteration, device)) {
    if (e.kind != traces::event_kind::work) continue;
    ++result.operators;
    const trace_node& n = t.nodes[e.node];
    trace_has_numbers = trace_has_numbers || n.record_function > 0;
    const auto at = by_number.find(n.record_function);
    if (at != by_number.end() && at->second->name == n.name) found.emplace_back(e.node, at->second->seconds);
  }
  result.joined = found.size();
  if (result.joined * 2 < result.operators) {
    result.why = why_separate(result, trace_has_numbers, times, iteration.number);
    return result;
  }
  for (const auto& [node, seconds] : found)
    t.nodes[node].seconds = seconds;
  return result;
}

}  // namespace stash::planner
