// SPDX-License-Identifier: Apache-2.0
// Times of ops and codecs by the model of a machine, as docs/planning.md gives them.

#include <algorithm>
#include <cmath>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

double stored_part(const graph& g, const tensor_ref& ref) {
  const storage& s = g.storages[ref.storage];
  const std::int64_t all = elements_of(s, g.batch);
  const std::int64_t part = ref.whole() || s.shape.empty() ? all : all / s.shape.back() * ref.channels;
  return static_cast<double>(part);
}

bool is_rate(double x) {
  return std::isfinite(x) && x > 0.0;
}
bool is_factor(double x) {
  return std::isfinite(x) && x >= 0.0;
}

class roofline final : public time_model {
 public:
  using time_model::time_model;

  bool is_sane() const noexcept override { return is_rate(m_.flops_per_second) && time_model::is_sane(); }
  double op_time(const graph& g, const op& o) const override {
    if (o.seconds) return 1e3 * *o.seconds;
    double moved = bytes_of(g, o.inputs) + bytes_of(g, o.outputs) + bytes_of(g, o.parameters) +
                   bytes_of(g, o.parameters_written);
    if (!o.alternatives.empty()) {
      for (const stash_read& r : o.alternatives.front().reads)
        moved += bytes_of(g, r.slice);
    }
    const double memory = moved / (m_.memory_bytes_per_second * m_.elementwise_share);
    return 1e3 * (m_.op_latency_seconds + std::max(memory, products(g, o) / m_.flops_per_second));
  }
  double alternative_time(const stash_alternative& a) const override {
    return 1e3 * a.flops / m_.flops_per_second;
  }
  double codec_time(encoding_kind kind, std::int64_t dense, std::int64_t stored) const override {
    const bool sparse = kind == encoding_kind::bitmap || kind == encoding_kind::csr;
    const double share = sparse                        ? m_.sparse_share
                         : kind == encoding_kind::cast ? m_.cast_share
                                                       : m_.mask_share;
    const auto passed = static_cast<double>(dense);
    return 1e3 * (m_.op_latency_seconds +
                  (passed + static_cast<double>(stored)) / (share * m_.memory_bytes_per_second));
  }
  bool casts_only() const noexcept override { return false; }
};

}  // namespace

double bytes_of(const graph& g, const tensor_ref& ref) {
  return stored_part(g, ref) * static_cast<double>(size_of(g.storages[ref.storage].type));
}

double bytes_of(const graph& g, const std::vector<storage_id>& whole) {
  double sum = 0.0;
  for (const storage_id s : whole) {
    if (g.storages.contains(s)) sum += static_cast<double>(g.storages[s].bytes(g.batch));
  }
  return sum;
}

double bytes_of(const graph& g, const std::vector<tensor_ref>& refs) {
  double sum = 0.0;
  for (const tensor_ref& ref : refs)
    sum += bytes_of(g, ref);
  return sum;
}

// Each product of the forward convolution or dense layer once, in forward and in each backward op.
double products(const graph& g, const op& o) {
  if (o.flops > 0.0) return o.flops;
  const bool forward = o.kind == op_kind::conv2d || o.kind == op_kind::dense;
  const bool backward = o.kind == op_kind::conv2d_backward_weights ||
                        o.kind == op_kind::conv2d_backward_data ||
                        o.kind == op_kind::dense_backward_weights || o.kind == op_kind::dense_backward_data;
  if (!forward && !(backward && g.ops.contains(o.forward_op))) return 0.0;
  const op& f = forward ? o : g.ops[o.forward_op];
  if (f.outputs.empty() || f.parameters.empty() || !g.storages.contains(f.parameters[0])) return 0.0;
  const storage& weight = g.storages[f.parameters[0]];
  if (weight.shape.empty()) return 0.0;
  const auto per_output =
      static_cast<double>(elements_of(weight, 1)) / static_cast<double>(weight.shape.front());
  return 2.0 * per_output * stored_part(g, f.outputs[0]);
}

bool time_model::is_sane() const noexcept {
  return is_rate(m_.memory_bytes_per_second) && is_factor(m_.op_latency_seconds) &&
         is_factor(m_.out_bytes_per_second) && is_factor(m_.in_bytes_per_second) &&
         is_factor(m_.link_latency_seconds) && m_.contention >= 0.5 && m_.contention <= 1.0 &&
         is_rate(m_.mask_share) && is_rate(m_.sparse_share) && is_rate(m_.cast_share) &&
         is_rate(m_.elementwise_share) && is_factor(m_.produced_factor) && is_factor(m_.compute_factor) &&
         is_factor(m_.codec_factor) && m_.memory_bytes >= 0 && m_.host_bytes >= 0;
}

std::unique_ptr<const time_model> roofline_times(const machine& m) {
  return std::make_unique<roofline>(m);
}

}  // namespace stash::planner::validation
