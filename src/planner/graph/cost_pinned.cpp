// SPDX-License-Identifier: Apache-2.0
// Machines that are pinned for comparison with published policies (docs/machines.md): an op takes as long as
// the bytes that it produces, there is one encoding, of half the size, and nothing is computed again.

#include <fmt/format.h>

#include <algorithm>

#include "planner/graph/cost.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

double produced_bytes(const graph& g, const op& o) {
  double sum = 0.0;
  for (const tensor_ref& r : o.outputs)
    sum += bytes_of(g, r);
  for (const storage_id s : o.parameters_written)
    sum += static_cast<double>(g.at(s).bytes(g.batch));
  return sum;
}

class pinned final : public cost_model {
 public:
  explicit pinned(const machine& m) : m_(m) {}

  double op_ms(const graph& g, const op& o) const override {
    const double ms = 1e3 * m_.produced_factor * produced_bytes(g, o) / m_.memory_bytes_per_second;
    const bool product = o.stage == op_stage::forward && flops_of(g, o) > 0.0;
    return std::max(1e3 * m_.op_latency_seconds, ms * (product ? m_.compute_factor : 1.0));
  }
  double alternative_ms(const stash_alternative&) const override { return 0.0; }
  double codec_ms(const encoding&, std::int64_t dense, std::int64_t) const override {
    return 1e3 * m_.codec_factor * static_cast<double>(dense) / m_.memory_bytes_per_second;
  }
  bool has_form(const stash_choice& c) const noexcept override {
    return c.kind == stash_kind::none || c.kind == stash_kind::raw ||
           (c.kind == stash_kind::encoded && c.stored.kind == encoding_kind::cast);
  }
  plan_options followed(plan_options options) const override {
    if (options.chosen_policy != policy::automatic) {
      throw error(
          errc::invalid_argument,
          fmt::format("budget_planner: options: expected policy auto for the machine {}, which is pinned "
                      "for comparison (raw, fp16 and swap), got {}",
                      m_.name, to_string(options.chosen_policy)));
    }
    options.values = {value_format::fp16};
    return options;
  }

 private:
  const machine m_;
};

}  // namespace

std::unique_ptr<const cost_model> pinned_cost_model(const machine& m) {
  return std::make_unique<pinned>(m);
}

std::unique_ptr<const cost_model> cost_model_of(const machine& m) {
  return m.pinned ? pinned_cost_model(m) : roofline_cost_model(m);
}

}  // namespace stash::planner
