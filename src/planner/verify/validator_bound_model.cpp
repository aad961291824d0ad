// SPDX-License-Identifier: Apache-2.0
// Times of ops and codecs by the model of a machine, as docs/planning.md gives them.

#include <algorithm>
#include <cmath>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

double stored_part(const graph& g, const tensor_ref& ref) {
  const storage& s = at(g.storages, ref.storage);
  const std::int64_t all = elements_of(s, g.batch);
  const std::int64_t part = ref.whole() || s.shape.empty() ? all : all / s.shape.back() * ref.channels;
  return static_cast<double>(part);
}

double bytes_of(const graph& g, const tensor_ref& ref) {
  return stored_part(g, ref) * static_cast<double>(size_of(at(g.storages, ref.storage).type));
}

double bytes_of(const graph& g, const std::vector<storage_id>& whole) {
  double sum = 0.0;
  for (const storage_id s : whole) {
    if (in_range(s, g.storages)) sum += static_cast<double>(at(g.storages, s).bytes(g.batch));
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
  if (!forward && !(backward && in_range(o.forward_op, g.ops))) return 0.0;
  const op& f = forward ? o : at(g.ops, o.forward_op);
  if (f.outputs.empty() || f.parameters.empty() || !in_range(f.parameters[0], g.storages)) return 0.0;
  const storage& weight = at(g.storages, f.parameters[0]);
  if (weight.shape.empty()) return 0.0;
  const auto per_output =
      static_cast<double>(elements_of(weight, 1)) / static_cast<double>(weight.shape.front());
  return 2.0 * per_output * stored_part(g, f.outputs[0]);
}

bool is_rate(double x) {
  return std::isfinite(x) && x > 0.0;
}
bool is_factor(double x) {
  return std::isfinite(x) && x >= 0.0;
}

}  // namespace

bool model_is_sane(const machine& m) noexcept {
  return is_rate(m.memory_bytes_per_second) && (m.pinned || is_rate(m.flops_per_second)) &&
         is_factor(m.op_latency_seconds) && is_factor(m.out_bytes_per_second) &&
         is_factor(m.in_bytes_per_second) && is_factor(m.link_latency_seconds) && m.contention >= 0.5 &&
         m.contention <= 1.0 && is_rate(m.mask_share) && is_rate(m.sparse_share) && is_rate(m.cast_share) &&
         is_rate(m.elementwise_share) && is_factor(m.produced_factor) && is_factor(m.compute_factor) &&
         is_factor(m.codec_factor) && m.memory_bytes >= 0 && m.host_bytes >= 0;
}

double op_time(const graph& g, const op& o, const machine& m) {
  if (m.pinned) {
    double seconds = m.produced_factor * (bytes_of(g, o.outputs) + bytes_of(g, o.parameters_written)) /
                     m.memory_bytes_per_second;
    if (o.stage == op_stage::forward && products(g, o) > 0.0) seconds *= m.compute_factor;
    return 1e3 * std::max(seconds, m.op_latency_seconds);
  }
  if (o.seconds) return 1e3 * *o.seconds;
  double moved = bytes_of(g, o.inputs) + bytes_of(g, o.outputs) + bytes_of(g, o.parameters) +
                 bytes_of(g, o.parameters_written);
  if (!o.alternatives.empty()) {
    for (const stash_read& r : o.alternatives.front().reads)
      moved += bytes_of(g, r.slice);
  }
  const double memory = moved / (m.memory_bytes_per_second * m.elementwise_share);
  return 1e3 * (m.op_latency_seconds + std::max(memory, products(g, o) / m.flops_per_second));
}

double alternative_time(const stash_alternative& a, const machine& m) {
  return m.pinned ? 0.0 : 1e3 * a.flops / m.flops_per_second;
}

double codec_time(encoding_kind kind, std::int64_t dense, std::int64_t stored, const machine& m) {
  const auto passed = static_cast<double>(dense);
  if (m.pinned) return 1e3 * m.codec_factor * passed / m.memory_bytes_per_second;
  const bool sparse = kind == encoding_kind::bitmap || kind == encoding_kind::csr;
  const double share = sparse ? m.sparse_share : kind == encoding_kind::cast ? m.cast_share : m.mask_share;
  return 1e3 * (m.op_latency_seconds +
                (passed + static_cast<double>(stored)) / (share * m.memory_bytes_per_second));
}

}  // namespace stash::planner::validation
