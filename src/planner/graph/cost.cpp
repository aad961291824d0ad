// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/cost.hpp"

#include <algorithm>

namespace stash::planner {
namespace {

double bytes_ms(double bytes, double share, const machine& m) {
  return 1e3 * bytes / (m.memory_bytes_per_second * share);
}

std::int64_t elements(const graph& g, const tensor_ref& r) {
  const storage& s = g.at(r.storage);
  const std::int64_t all = s.elements(g.batch);
  return r.whole() || s.shape.empty() ? all : all / s.shape.back() * r.channels;
}

double all_bytes(const graph& g, const op& o) {
  double sum = 0.0;
  for (const auto* refs : {&o.inputs, &o.outputs}) {
    for (const tensor_ref& r : *refs)
      sum += bytes_of(g, r);
  }
  for (const auto* ids : {&o.parameters, &o.parameters_written}) {
    for (const storage_id s : *ids)
      sum += static_cast<double>(g.at(s).bytes(g.batch));
  }
  if (!o.alternatives.empty()) {
    for (const stash_read& r : o.alternatives.front().reads)
      sum += bytes_of(g, r.slice);
  }
  return sum;
}

double codec_share(encoding_kind kind, const machine& m) {
  switch (kind) {
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return m.sparse_share;
    case encoding_kind::cast:
      return m.cast_share;
    default:
      return m.mask_share;
  }
}

class roofline final : public cost_model {
 public:
  explicit roofline(const machine& m) : m_(m) {}

  double op_ms(const graph& g, const op& o) const override {
    if (o.seconds) return 1e3 * *o.seconds;
    const double compute = 1e3 * flops_of(g, o) / m_.flops_per_second;
    return 1e3 * m_.op_latency_seconds +
           std::max(compute, bytes_ms(all_bytes(g, o), m_.elementwise_share, m_));
  }
  double alternative_ms(const stash_alternative& a) const override {
    return a.flops == 0.0 ? 0.0 : 1e3 * a.flops / m_.flops_per_second;
  }
  double codec_ms(const encoding& stored, std::int64_t dense, std::int64_t kept) const override {
    return 1e3 * m_.op_latency_seconds +
           bytes_ms(static_cast<double>(dense + kept), codec_share(stored.kind, m_), m_);
  }
  bool has_form(const stash_choice&) const noexcept override { return true; }
  plan_options followed(plan_options options) const override { return options; }

 private:
  const machine m_;
};

}  // namespace

double flops_of(const graph& g, const op& o) {
  if (o.flops > 0.0) return o.flops;
  // Every product of a convolution's or dense layer's forward pass happens once in each backward op too.
  const op* f = &o;
  switch (o.kind) {
    case op_kind::conv2d_backward_weights:
    case op_kind::conv2d_backward_data:
    case op_kind::dense_backward_weights:
    case op_kind::dense_backward_data:
      f = &g.op_at(o.forward_op);
      break;
    case op_kind::conv2d:
    case op_kind::dense:
      break;
    default:
      return 0.0;
  }
  const double outputs = static_cast<double>(elements(g, f->outputs[0]));
  const storage& weight = g.at(f->parameters[0]);
  const double per_output = static_cast<double>(weight.elements(1)) / static_cast<double>(weight.shape[0]);
  return 2.0 * outputs * per_output;
}

double bytes_of(const graph& g, const tensor_ref& r) {
  return static_cast<double>(elements(g, r)) * static_cast<double>(size_of(g.at(r.storage).type));
}

double cost_model::recompute_ms(const graph& g, const recipe& r) const {
  double sum = 0.0;
  for (const op_id o : r.ops)
    sum += op_ms(g, g.op_at(o));
  return sum;
}

std::unique_ptr<const cost_model> roofline_cost_model(const machine& m) {
  return std::make_unique<roofline>(m);
}

}  // namespace stash::planner
