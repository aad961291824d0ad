// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Short training runs for tests: named networks on generated images, under any plan options.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.hpp"
#include "executor/trainer.hpp"
#include "models/models.hpp"
#include "planner/plan_answers.hpp"
#include "stash/error.hpp"

namespace stash::executor::testing {

using planner::testing::budget_in;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

struct image_batch {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

/// Grey level that a network sees as zero: kernels read a pixel p as (p - 128) / 64.
inline constexpr std::uint8_t zero_pixel = 128;

/// `batch` of the generated images of this shape, from number `step * batch` on.
inline image_batch make_batch(std::int64_t height, std::int64_t width, std::int64_t channels,
                              std::int64_t classes, std::int64_t batch, std::int64_t step) {
  constexpr std::int64_t kept = 1024;
  using key = std::vector<std::int64_t>;
  static std::map<key, data::dataset> sets;
  const auto [at, fresh] = sets.try_emplace(key{height, width, channels, classes});
  if (fresh) at->second = data::generate(height, width, channels, classes, kept, 1, 7).train;
  const data::dataset& d = at->second;
  image_batch b;
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t image = (step * batch + i) % kept;
    const auto first = d.images.begin() + image * d.image_bytes();
    b.images.insert(b.images.end(), first, first + d.image_bytes());
    b.labels.push_back(d.labels[static_cast<std::size_t>(image)]);
  }
  return b;
}

/// A batch for the graph's own input shape.
inline image_batch make_batch(const planner::graph& g, std::int64_t step) {
  for (const planner::storage& s : g.storages) {
    if (s.role != planner::storage_role::image) continue;
    return make_batch(s.shape[0], s.shape[1], s.shape[2], g.classes, g.batch, step);
  }
  throw error(errc::invalid_argument, "make_batch: g: expected a graph with an image, got " + g.name);
}

/// The same with all but the first `visible` images replaced by ones that every ReLU maps to zeros as long
/// as biases are zero: a batch of low density.
inline image_batch make_sparse_batch(const planner::graph& g, std::int64_t step, std::int64_t visible) {
  image_batch b = make_batch(g, step);
  const auto bytes = static_cast<std::int64_t>(b.images.size()) / g.batch;
  std::fill(b.images.begin() + visible * bytes, b.images.end(), zero_pixel);
  return b;
}

inline planner::graph make_graph(const planner::network& net, std::int64_t batch, int threads = 1) {
  planner::graph g = planner::make_training_graph(net, batch);
  static_cast<void>(annotate_workspaces(g, {threads, framework_rule::tensorflow}));
  return g;
}

inline planner::graph make_graph(std::string_view network, std::int64_t batch, int threads = 1,
                                 models::input_shape input = {28, 28, 1}) {
  return make_graph(models::find(network).build(input, 10), batch, threads);
}

inline trainer_options make_options(planner::policy policy, int threads = 1) {
  trainer_options o;
  o.plan.chosen_policy = policy;
  o.plan.threads = threads;
  return o;
}

inline std::unique_ptr<trainer> make_trainer(const planner::graph& g, const trainer_options& o) {
  const image_batch first = make_batch(g, 0);
  return std::make_unique<trainer>(g, o, first.images, first.labels);
}

struct training_log {
  std::vector<double> losses;
  std::vector<std::string> hashes;  ///< of the parameters, after every tenth step and at the end
  std::int64_t reruns = 0;
};

inline training_log train(trainer& t, int steps) {
  training_log log;
  const planner::graph g = t.current().current_plan().network;
  for (int i = 0; i < steps; ++i) {
    const image_batch b = make_batch(g, t.steps());
    log.losses.push_back(t.step(b.images, b.labels, {}).loss);
    if (i % 10 == 9 || i + 1 == steps) log.hashes.push_back(t.current().parameters_sha256());
  }
  log.reruns = t.reruns();
  return log;
}

/// Bit for bit: == would take -0 for 0.
inline void expect_identical(const training_log& expected, const training_log& found) {
  ASSERT_EQ(expected.losses.size(), found.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    ASSERT_EQ(std::memcmp(&expected.losses[i], &found.losses[i], sizeof(double)), 0)
        << "loss of step " << i << ": expected " << expected.losses[i] << ", got " << found.losses[i];
  }
  EXPECT_EQ(expected.hashes, found.hashes);
}

/// The smallest budget with which a trainer for these options can start.
inline std::int64_t smallest_budget(const planner::graph& g, trainer_options o) {
  o.plan.budget_bytes = 1;
  try {
    make_trainer(g, o);
  } catch (const error& e) {
    return budget_in(e);
  }
  ADD_FAILURE() << "a budget of one byte was accepted";
  return 0;
}

inline planner::storage_id storage_named(const planner::graph& g, std::string_view name) {
  for (const planner::storage_id s : g.storages.ids()) {
    if (g.storages[s].name == name) return planner::storage_id(s);
  }
  ADD_FAILURE() << "no storage " << name << " in " << g.name;
  return planner::no_id;
}

/// Index of the first step that runs a backward op: after the last encode, before the first decode.
inline std::size_t first_backward_step(const planner::plan& p) {
  const auto at = std::find_if(p.steps.begin(), p.steps.end(), [&](const planner::step& s) {
    return s.kind == planner::step_kind::run && p.network.op_at(s.op).stage == planner::op_stage::backward;
  });
  return static_cast<std::size_t>(at - p.steps.begin());
}

/// The buffer that keeps a storage from the forward to the backward pass, -1 if there is none.
inline planner::buffer_id kept_buffer(const planner::plan& p, planner::storage_id s) {
  const planner::stash_kind kind = p.choices[s].kind;
  if (kind == planner::stash_kind::none) return planner::no_id;
  const auto form =
      kind == planner::stash_kind::raw ? planner::buffer_form::dense : planner::buffer_form::encoded;
  const auto last_forward = static_cast<std::int32_t>(first_backward_step(p)) - 1;
  for (const planner::buffer_id b : p.buffers.ids()) {
    const planner::buffer& buffer = p.buffers[b];
    if (buffer.storage == s && buffer.form == form && buffer.first_step <= last_forward &&
        buffer.last_step > last_forward)
      return planner::buffer_id(b);
  }
  return planner::no_id;
}

/// All weight gradients of the last step, in the graph's order.
inline std::vector<std::uint32_t> gradient_bits(executor& e) {
  std::vector<std::uint32_t> bits;
  const planner::graph& g = e.current_plan().network;
  for (const planner::storage_id s : g.storages.ids()) {
    if (g.storages[s].role != planner::storage_role::weight_gradient) continue;
    const std::span<const float> values = e.parameter(planner::storage_id(s));
    const std::size_t before = bits.size();
    bits.resize(before + values.size());
    std::memcpy(bits.data() + before, values.data(), values.size_bytes());
  }
  return bits;
}

}  // namespace stash::executor::testing
