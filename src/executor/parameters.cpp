// SPDX-License-Identifier: Apache-2.0
// The fixed-size part of the executor: initial values, the update, copies and the hash.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "executor/executor.hpp"
#include "planner/memory/placement.hpp"
#include "runtime/sha256.hpp"
#include "stash/error.hpp"

namespace stash::executor {

using planner::op_kind;
using planner::storage_role;

namespace {

// SplitMix64 (Steele, Lea and Flood, 2014) as a function of its counter.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// Sum of twelve uniforms minus six: close to normal, and the same bits everywhere (no libm).
float normal(std::uint64_t key, std::uint64_t i) {
  double sum = -6.0;
  for (std::uint64_t k = 0; k < 3; ++k) {
    const std::uint64_t bits = mix(key + mix(i * 3 + k));
    for (unsigned part = 0; part < 64; part += 16) {
      sum += (static_cast<double>((bits >> part) & 0xFFFFU) + 0.5) / 65536.0;
    }
  }
  return static_cast<float>(sum);
}

}  // namespace

std::span<float> executor::parameter(planner::storage_id s) {
  const planner::storage& st = plan_.network.at(s);
  if (st.batch_proportional()) {
    throw error(errc::invalid_argument,
                fmt::format("executor::parameter: s: expected a storage of fixed size, got {}", st.name));
  }
  return {parameter_data(s), static_cast<std::size_t>(st.fixed_bytes) / sizeof(float)};
}

std::span<const float> executor::parameter(planner::storage_id s) const {
  return const_cast<executor*>(this)->parameter(s);  // the arena is the same, only constness is added back
}

void executor::initialise(std::uint64_t seed) {
  const planner::graph& g = plan_.network;
  planner::storage_id logits_storage = planner::no_id;
  for (const planner::op& o : g.ops) {
    if (o.kind == op_kind::softmax_cross_entropy) logits_storage = o.inputs[0].storage;
  }
  for (const planner::storage_id s : g.storages.ids()) {
    if (g.storages[s].batch_proportional()) continue;
    std::ranges::fill(parameter(planner::storage_id(s)), 0.0F);
  }
  for (const planner::op& o : g.ops) {
    if (o.kind == op_kind::batch_norm) {
      std::ranges::fill(parameter(o.parameters[0]), 1.0F);
      std::ranges::fill(parameter(o.parameters[3]), 1.0F);
    }
    if (o.kind != op_kind::conv2d && o.kind != op_kind::dense) continue;
    const planner::storage& w = g.at(o.parameters[0]);
    std::int64_t fan_in = 1;
    for (std::size_t d = 1; d < w.shape.size(); ++d)
      fan_in *= w.shape[d];
    // He et al., 2015, for layers that a ReLU follows; the logits start small, so that the first steps are
    // short.
    const bool logits = o.outputs[0].storage == logits_storage;
    const auto deviation = static_cast<float>(std::sqrt((logits ? 0.1 : 2.0) / static_cast<double>(fan_in)));
    const std::span<float> values = parameter(o.parameters[0]);
    const std::uint64_t key = mix(seed ^ mix(static_cast<std::uint64_t>(o.parameters[0].number()) + 1));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = deviation * normal(key, i);
  }
}

// Short-lived gradients lie after the rest, those of all layers at the same offset.
void executor::place_parameters() {
  const planner::graph& g = plan_.network;
  const auto size = [&](planner::storage_id s) { return planner::aligned(g.at(s).bytes(g.batch)); };
  std::vector<planner::fixed_life> passing = planner::passing_gradients(g);
  planner::id_vector<planner::storage_id, char> passes(g.storages.size(), 0);
  for (const planner::fixed_life& x : passing)
    passes[x.storage] = 1;
  parameter_offset_.assign(g.storages.size(), -1);
  std::int64_t begin = 0;
  for (const planner::storage_id s : g.storages.ids()) {
    if (g.storages[s].batch_proportional() || passes[s] != 0) continue;
    parameter_offset_[s] = begin;
    begin += size(planner::storage_id(s));
  }
  std::ranges::stable_sort(passing, {}, &planner::fixed_life::last);
  std::int64_t offset = begin;
  for (std::size_t i = 0; i < passing.size(); ++i) {
    if (i > 0 && passing[i].last != passing[i - 1].last) {
      if (passing[i].first <= passing[i - 1].last) {
        throw error(errc::invalid_argument,
                    fmt::format("executor: plan: expected updates that end before the next gradient begins, "
                                "got {} in between",
                                g.at(passing[i].storage).name));
      }
      offset = begin;
    }
    parameter_offset_[passing[i].storage] = offset;
    offset += size(passing[i].storage);
  }
}

void executor::update(const planner::op& o, const sgd_settings& sgd) {
  for (std::size_t i = 0; i + 2 < o.parameters.size(); i += 3) {
    const std::span<float> w = parameter(o.parameters[i]);
    const std::span<const float> gradient = parameter(o.parameters[i + 1]);
    const std::span<float> m = parameter(o.parameters[i + 2]);
    const bool decays = plan_.network.at(o.parameters[i]).shape.size() > 1;
    const float decay = decays ? sgd.weight_decay : 0.0F;
    for (std::size_t k = 0; k < w.size(); ++k) {
      m[k] = sgd.momentum * m[k] + (gradient[k] + decay * w[k]);
      w[k] -= sgd.learning_rate * m[k];
    }
  }
}

// ---- updates in the backward stage, which are over before the step is ----------------------------------

void executor::place_undo() {
  const planner::graph& g = plan_.network;
  undo_end_ = plan_.sizes.host_bytes;
  for (const planner::op_id i : g.ops.ids()) {
    const planner::op& o = g.ops[i];
    if (o.kind != op_kind::sgd_update || o.stage == planner::op_stage::update) continue;
    for (std::size_t k = 0; k + 2 < o.parameters.size(); k += 3) {
      for (const planner::storage_id s : {o.parameters[k], o.parameters[k + 2]}) {
        undo_.push_back({planner::op_id(i), s, undo_end_});
        undo_end_ += g.at(s).bytes(g.batch);
      }
    }
  }
}

void executor::save_for_undo(planner::op_id id) {
  for (const saved& u : undo_) {
    if (u.op != id) continue;
    const std::span<const float> values = parameter(u.storage);
    std::memcpy(host_.data() + u.offset, values.data(), values.size_bytes());
  }
  updated_[id] = 1;
}

void executor::undo_updates() {
  for (const saved& u : undo_) {
    if (updated_[u.op] == 0) continue;
    const std::span<float> values = parameter(u.storage);
    std::memcpy(values.data(), host_.data() + u.offset, values.size_bytes());
  }
}

void executor::commit(const sgd_settings& sgd) {
  const planner::graph& g = plan_.network;
  for (const planner::op& o : g.ops) {
    if (o.kind == op_kind::sgd_update && o.stage == planner::op_stage::update) update(o, sgd);
    if (o.kind == op_kind::batch_norm) {
      const std::span<float> mean = parameter(o.parameters[2]), variance = parameter(o.parameters[3]);
      const std::span<const float> batch_mean = parameter(o.parameters_written[0]);
      const std::span<const float> inverse = parameter(o.parameters_written[1]);
      const float a = o.attributes.statistics_momentum;
      double count = static_cast<double>(g.batch);
      const std::vector<std::int64_t>& dims = g.at(o.inputs[0].storage).shape;
      for (std::size_t d = 0; d + 1 < dims.size(); ++d)
        count *= static_cast<double>(dims[d]);
      const double unbiased = count > 1 ? count / (count - 1) : 1.0;
      for (std::size_t c = 0; c < mean.size(); ++c) {
        const double inverse_c = static_cast<double>(inverse[c]);
        const double v =
            std::max(0.0, 1.0 / (inverse_c * inverse_c) - static_cast<double>(o.attributes.epsilon));
        mean[c] = (1.0F - a) * mean[c] + a * batch_mean[c];
        variance[c] = (1.0F - a) * variance[c] + a * static_cast<float>(unbiased * v);
      }
    }
  }
}

void executor::copy_parameters_from(const executor& other) {
  const planner::graph& g = plan_.network;
  const planner::graph& from = other.plan_.network;
  if (g.storages.size() != from.storages.size()) {
    throw error(errc::invalid_argument,
                fmt::format("executor::copy_parameters_from: other: expected a plan of {}, got {}", g.name,
                            from.name));
  }
  for (const planner::storage_id s : g.storages.ids()) {
    if (g.storages[s].batch_proportional()) continue;
    const auto id = planner::storage_id(s);
    const std::span<const float> source = other.parameter(id);
    std::ranges::copy(source, parameter(id).begin());
  }
}

std::string executor::parameters_sha256() const {
  const planner::graph& g = plan_.network;
  runtime::sha256 hash;
  for (const planner::storage_id s : g.storages.ids()) {
    const storage_role role = g.storages[s].role;
    if (role != storage_role::weight && role != storage_role::momentum && role != storage_role::statistic)
      continue;
    hash.update(std::as_bytes(parameter(planner::storage_id(s))));
  }
  return hash.hex();
}

}  // namespace stash::executor
