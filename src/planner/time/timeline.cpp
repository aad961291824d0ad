// SPDX-License-Identifier: Apache-2.0
#include "planner/time/timeline.hpp"

#include <algorithm>
#include <memory>

#include "planner/graph/cost.hpp"

namespace stash::planner {
namespace {

bool copies(step_kind kind) {
  return kind == step_kind::copy_out || kind == step_kind::copy_in;
}
bool waits(step_kind kind) {
  return kind == step_kind::wait_out || kind == step_kind::wait_in;
}
bool codes(step_kind kind) {
  return kind == step_kind::encode || kind == step_kind::decode || kind == step_kind::recompute;
}

class timer {
 public:
  timer(plan& p, const machine& m, const tick_times& simulated)
      : p_(p), costs_(cost_model_of(m)), simulated_(simulated), swap_(p.network.storages.size(), nullptr) {
    for (const swap_times& s : simulated.swaps)
      swap_[s.storage] = &s;
  }

  void run() {
    p_.timeline.assign(p_.steps.size(), {});
    std::int32_t tick = -1;  // before the first op nothing runs
    for (std::size_t i = 0; i < p_.steps.size();) {
      if (p_.steps[i].kind == step_kind::run) {
        tick = tick_of(p_.steps[i].op);
        now_ = std::max(now_, simulated_.begin[tick]);
        take(p_.timeline[i++], simulated_.end[tick]);
        continue;
      }
      std::size_t end = i;
      while (end < p_.steps.size() && p_.steps[end].kind != step_kind::run)
        ++end;
      between(i, end, tick + 1);
      i = end;
    }
    p_.times.update_ms = std::max(0.0, simulated_.end.empty() ? 0.0 : simulated_.end.back() - now_);
  }

 private:
  // The steps [first, last) between two ops. The tick between them gives its work to the codecs.
  void between(std::size_t first, std::size_t last, std::int32_t tick) {
    double cost = 0.0;
    for (std::size_t i = first; i < last; ++i)
      cost += cost_of(p_.steps[i]);
    double work = 0.0;
    if (tick > 0 && position_of(tick) < simulated_.begin.size())
      work = simulated_.end[tick] - simulated_.begin[tick];
    const double scale = cost > 0.0 ? work / cost : 0.0;
    bool begun = false;
    for (std::size_t i = first; i < last; ++i) {
      const step& s = p_.steps[i];
      const swap_times* const swap = s.storage.valid() ? swap_[s.storage] : nullptr;
      step_time& t = p_.timeline[i];
      if (copies(s.kind) && swap != nullptr) {
        t = s.kind == step_kind::copy_out ? step_time{swap->out_begin, swap->out_end}
                                          : step_time{swap->in_begin, swap->in_end};
      } else if (waits(s.kind) && swap != nullptr) {
        const double copied = s.kind == step_kind::wait_out ? swap->out_end : swap->in_end;
        // Codecs of small items may work in this tick although none of its steps shows it. What is waited for
        // after the tick's beginning is waited for after that work.
        if (cost == 0.0 && work > 0.0 && copied > simulated_.begin[tick])
          now_ = std::max(now_, simulated_.end[tick]);
        take(t, copied);
      } else {
        if (codes(s.kind) && !begun && tick > 0) now_ = std::max(now_, simulated_.begin[tick]);
        begun = begun || codes(s.kind);
        take(t, now_ + scale * cost_of(s));
      }
    }
  }

  // The compute stream is busy, or stands still, until `end`.
  void take(step_time& t, double end) {
    t.begin_ms = now_;
    t.end_ms = now_ = std::max(now_, end);
  }

  double cost_of(const step& s) const {
    if (!codes(s.kind)) return 0.0;
    if (s.kind == step_kind::recompute) return costs_->op_ms(p_.network, p_.network.op_at(s.op));
    const encoding& stored = p_.choices[s.storage].stored;
    const std::int64_t in = p_.buffers[s.inputs[0]].bytes;
    const std::int64_t out = p_.buffers[s.outputs[0]].bytes;
    return s.kind == step_kind::encode ? costs_->codec_ms(stored, in, out)
                                       : costs_->codec_ms(stored, out, in);
  }

  plan& p_;
  const std::unique_ptr<const cost_model> costs_;
  const tick_times& simulated_;
  id_vector<storage_id, const swap_times*> swap_;
  double now_ = 0.0;
};

}  // namespace

void set_timeline(plan& p, const machine& m, const tick_times& simulated) {
  timer(p, m, simulated).run();
}

}  // namespace stash::planner
