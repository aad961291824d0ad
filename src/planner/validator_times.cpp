// The predicted timeline of a plan: three streams, what waits for what, and the total.

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/validator_internal.hpp"

namespace stash::planner::validation {
namespace {

enum stream : std::size_t { compute, out, in, streams };

stream stream_of(step_kind kind) {
  if (kind == step_kind::copy_out) return out;
  return kind == step_kind::copy_in ? in : compute;
}

class clock_checker {
 public:
  clock_checker(const plan& p, finding_list& found)
      : p_(p),
        found_(found),
        written_(p.buffers.size(), 0.0),
        copied_out_(p.network.storages.size(), 0.0),
        copied_in_(p.network.storages.size(), 0.0),
        tolerance_(1e-9 * std::max(1.0, p.times.simulated_ms)) {}

  void run() {
    double last = 0.0;
    for (std::size_t i = 0; i < p_.steps.size() && !found_.full(); ++i) {
      const step_time& t = p_.timeline[i];
      if (!(t.begin_ms >= 0.0) || !(t.end_ms >= t.begin_ms) || !std::isfinite(t.end_ms)) {
        found_.add(plan_fault::bad_times, "step {}: runs from {} to {} ms", i, t.begin_ms, t.end_ms);
        continue;
      }
      last = std::max(last, t.end_ms);
      check_stream(i);
      check_copy(i);
      note(i);
    }
    check_host();
    const double total = p_.times.simulated_ms, update = p_.times.update_ms;
    if (!(update >= 0.0) || !(std::abs(last + update - total) <= 1e-6 * std::max(total, 1e-9))) {
      found_.add(plan_fault::bad_times,
                 "simulated_ms: {}, but the steps end at {} and the update takes {} ms", total, last, update);
    }
  }

 private:
  void check_stream(std::size_t i) {
    double& free_from = free_from_[stream_of(p_.steps[i].kind)];
    if (p_.timeline[i].begin_ms < free_from - tolerance_) {
      found_.add(plan_fault::bad_times, "step {}: begins at {} ms, but its stream is busy until {} ms", i,
                 p_.timeline[i].begin_ms, free_from);
    }
    free_from = std::max(free_from, p_.timeline[i].end_ms);
  }

  // What a copy needs is there, and a wait lasts until the copy has ended.
  void check_copy(std::size_t i) {
    const step& s = p_.steps[i];
    if (!in_range(s.storage, p_.network.storages)) return;
    const auto storage = static_cast<std::size_t>(s.storage);
    const step_time& t = p_.timeline[i];
    switch (s.kind) {
      case step_kind::copy_out:
      case step_kind::copy_in:
        for (const buffer_id b : s.inputs) {
          if (in_range(b, p_.buffers))
            expect(i, t.begin_ms, at(written_, b), "begins", "its source is there");
        }
        (s.kind == step_kind::copy_out ? copied_out_ : copied_in_)[storage] = t.end_ms;
        count_on_host(s, t);
        return;
      case step_kind::wait_out:
        return expect(i, t.end_ms, copied_out_[storage], "ends", "the copy has ended");
      case step_kind::wait_in:
        return expect(i, t.end_ms, copied_in_[storage], "ends", "the copy has ended");
      default:
        return;
    }
  }

  void expect(std::size_t i, double ms, double earliest, const char* what, const char* why) {
    if (ms >= earliest - tolerance_) return;
    found_.add(plan_fault::bad_times, "step {}: {} at {} ms, but {} only at {} ms", i, what, ms, why,
               earliest);
  }

  // From the begin of the copy out to the end of the copy in. What ends as another one begins makes room.
  void count_on_host(const step& s, const step_time& t) {
    const bool leaves = s.kind == step_kind::copy_out;
    for (const buffer_id b : leaves ? s.outputs : s.inputs) {
      if (!in_range(b, p_.buffers)) continue;
      const auto bytes = static_cast<double>(at(p_.buffers, b).bytes);
      on_host_.emplace_back(leaves ? t.begin_ms : t.end_ms - tolerance_, leaves ? bytes : -bytes);
    }
  }

  void check_host() {
    if (!p_.model || p_.model->host_bytes <= 0) return;
    std::sort(on_host_.begin(), on_host_.end());
    double now = 0.0, most = 0.0;
    for (const auto& [ms, bytes] : on_host_)
      most = std::max(most, now += bytes);
    if (most > static_cast<double>(p_.model->host_bytes)) {
      found_.add(plan_fault::over_budget, "{} bytes on the host at once with a limit of {}", most,
                 p_.model->host_bytes);
    }
  }

  // When the contents of buffers were last complete. Waits write nothing, and may end long after their copy.
  void note(std::size_t i) {
    const step& s = p_.steps[i];
    if (s.kind == step_kind::wait_out || s.kind == step_kind::wait_in) return;
    for (const auto* list : {&s.outputs, &s.optional_outputs}) {
      for (const buffer_id b : *list) {
        if (!in_range(b, p_.buffers)) continue;
        double& ms = written_[static_cast<std::size_t>(b)];
        ms = std::max(ms, p_.timeline[i].end_ms);
      }
    }
  }

  const plan& p_;
  finding_list& found_;
  std::vector<double> written_, copied_out_, copied_in_;
  std::vector<std::pair<double, double>> on_host_;  ///< ms, and bytes that come or go
  std::array<double, streams> free_from_{};
  double tolerance_;
};

}  // namespace

void check_times(const plan& p, finding_list& found) {
  if (p.timeline.empty()) return;
  if (p.timeline.size() != p.steps.size()) {
    found.add(plan_fault::bad_times, "timeline: {} entries for {} steps", p.timeline.size(), p.steps.size());
    return;
  }
  clock_checker(p, found).run();
}

}  // namespace stash::planner::validation
