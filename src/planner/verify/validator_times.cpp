// SPDX-License-Identifier: Apache-2.0
// The predicted timeline of a plan: three streams, what waits for what, the total, and that nothing is faster
// than the model of the machine.

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/verify/validator_bound.hpp"

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
        tolerance_(1e-9 * std::max(1.0, p.times.simulated_ms)),
        times_(p.model ? time_model_of(*p.model) : nullptr),
        priced_(times_ != nullptr && times_->is_sane()) {}

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
      if (priced_) check_work(i);
      note(i);
    }
    check_host();
    if (priced_) check_sums(last);
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
    if (!p_.network.storages.contains(s.storage)) return;
    const storage_id storage = s.storage;
    const step_time& t = p_.timeline[i];
    switch (s.kind) {
      case step_kind::copy_out:
      case step_kind::copy_in:
        for (const buffer_id b : s.inputs) {
          if (p_.buffers.contains(b)) expect(i, t.begin_ms, written_[b], "begins", "its source is there");
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

  // Steps of compute are as long as the model says, or longer: the planner shows the codecs of many small
  // maps with the last op among them, so that single codecs may be shorter.
  void check_work(std::size_t i) {
    const step& s = p_.steps[i];
    const double ms = p_.timeline[i].end_ms - p_.timeline[i].begin_ms;
    switch (s.kind) {
      case step_kind::run: {
        if (!p_.network.ops.contains(s.op)) return;
        const op& o = p_.network.ops[s.op];
        const double least = times_->op_time(p_.network, o);
        at_least(i, ms, least);
        const stash_alternative* const a = chosen_alternative(p_, s.op);
        work_ += least + (a != nullptr && o.alternatives.size() > 1 ? times_->alternative_time(*a) : 0.0);
        return;
      }
      case step_kind::encode:
        return add_codec(s, true);
      case step_kind::decode:
        return add_codec(s, false);
      case step_kind::recompute:
        if (p_.network.ops.contains(s.op)) work_ += times_->op_time(p_.network, p_.network.ops[s.op]);
        return;
      case step_kind::copy_out:
      case step_kind::copy_in: {
        // Whatever else the link does makes it longer.
        const machine& m = *p_.model;
        const double rate = s.kind == step_kind::copy_out ? m.out_bytes_per_second : m.in_bytes_per_second;
        if (rate > 0.0 && !s.inputs.empty() && p_.buffers.contains(s.inputs[0])) {
          at_least(
              i, ms,
              1e3 * (m.link_latency_seconds + static_cast<double>(p_.buffers[s.inputs[0]].bytes) / rate));
        }
        return;
      }
      case step_kind::wait_out:
      case step_kind::wait_in:
        waited_ += ms;
        return;
    }
  }

  void add_codec(const step& s, bool encodes) {
    if (!p_.choices.contains(s.storage) || s.inputs.size() != 1 || s.outputs.size() != 1) return;
    if (!p_.buffers.contains(s.inputs[0]) || !p_.buffers.contains(s.outputs[0])) return;
    const std::int64_t from = p_.buffers[s.inputs[0]].bytes, to = p_.buffers[s.outputs[0]].bytes;
    work_ += times_->codec_time(p_.choices[s.storage].stored.kind, encodes ? from : to, encodes ? to : from);
  }

  void at_least(std::size_t i, double ms, double least) {
    if (ms >= least * (1.0 - 1e-6) - tolerance_) return;
    found_.add(plan_fault::bad_times, "step {}: lasts {} ms, by the model {} ms", i, ms, least);
  }

  // One thing after the other runs on the compute stream, but for the waits.
  void check_sums(double last) {
    double update = 0.0;
    for (const op& o : p_.network.ops) {
      if (o.stage == op_stage::update) update += times_->op_time(p_.network, o);
    }
    if (!(p_.times.update_ms >= update * (1.0 - 1e-6) - tolerance_)) {
      found_.add(plan_fault::bad_times, "update_ms: {}, by the model {}", p_.times.update_ms, update);
    }
    if (!(last - waited_ >= work_ * (1.0 - 1e-6) - tolerance_)) {
      found_.add(plan_fault::bad_times, "the steps leave {} ms for work of {} ms by the model",
                 last - waited_, work_);
    }
  }

  void expect(std::size_t i, double ms, double earliest, const char* what, const char* why) {
    if (ms >= earliest - tolerance_) return;
    found_.add(plan_fault::bad_times, "step {}: {} at {} ms, but {} only at {} ms", i, what, ms, why,
               earliest);
  }

  // From the begin of the copy out to the end of the copy in. What ends as another one begins frees memory.
  void count_on_host(const step& s, const step_time& t) {
    const bool leaves = s.kind == step_kind::copy_out;
    for (const buffer_id b : leaves ? s.outputs : s.inputs) {
      if (!p_.buffers.contains(b)) continue;
      const auto bytes = static_cast<double>(p_.buffers[b].bytes);
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
        if (!p_.buffers.contains(b)) continue;
        double& ms = written_[b];
        ms = std::max(ms, p_.timeline[i].end_ms);
      }
    }
  }

  const plan& p_;
  finding_list& found_;
  id_vector<buffer_id, double> written_;
  id_vector<storage_id, double> copied_out_, copied_in_;
  std::vector<std::pair<double, double>> on_host_;  ///< ms, and bytes that come or go
  std::array<double, streams> free_from_{};
  double tolerance_;
  const std::unique_ptr<const time_model> times_;  ///< by the model of the machine, if there is one
  bool priced_;                                    ///< there is a model to compare with
  double work_ = 0.0, waited_ = 0.0;  ///< ms of the compute stream: by the model, and shown as waits
};

}  // namespace

void check_times(const plan& p, finding_list& found) {
  const plan_times& t = p.times;
  const bool timed =
      t.unplanned_ms != 0.0 || t.simulated_ms != 0.0 || t.bound_ms != 0.0 || t.update_ms != 0.0;
  if (p.timeline.empty() && !timed) return;
  if (p.timeline.size() != p.steps.size()) {
    found.add(plan_fault::bad_times, "timeline: {} entries for {} steps", p.timeline.size(), p.steps.size());
    return;
  }
  clock_checker(p, found).run();
}

}  // namespace stash::planner::validation
