// SPDX-License-Identifier: Apache-2.0
// Times of machines that are pinned for comparison with published policies, as docs/machines.md gives them.

#include <algorithm>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

class pinned final : public time_model {
 public:
  using time_model::time_model;

  double op_time(const graph& g, const op& o) const override {
    double seconds = m_.produced_factor * (bytes_of(g, o.outputs) + bytes_of(g, o.parameters_written)) /
                     m_.memory_bytes_per_second;
    if (o.stage == op_stage::forward && products(g, o) > 0.0) seconds *= m_.compute_factor;
    return 1e3 * std::max(seconds, m_.op_latency_seconds);
  }
  double alternative_time(const stash_alternative&) const override { return 0.0; }
  double codec_time(encoding_kind, std::int64_t dense, std::int64_t) const override {
    return 1e3 * m_.codec_factor * static_cast<double>(dense) / m_.memory_bytes_per_second;
  }
  bool casts_only() const noexcept override { return true; }
};

}  // namespace

std::unique_ptr<const time_model> pinned_times(const machine& m) {
  return std::make_unique<pinned>(m);
}

std::unique_ptr<const time_model> time_model_of(const machine& m) {
  return m.pinned ? pinned_times(m) : roofline_times(m);
}

}  // namespace stash::planner::validation
