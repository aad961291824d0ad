// SPDX-License-Identifier: Apache-2.0
// The gradient gate on real images (generated ones where STASH_DATA is not set): fp16 and fp8 stashes keep to
// it at the start, in the middle and at the end of a short training, and faults of an encoder do not.

#include "executor/gradient_gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <ostream>

#include "data/dataset.hpp"
#include "executor/stash_faults.hpp"
#include "models/models.hpp"
#include "support/test_depth.hpp"

namespace stash::executor::testing {
namespace {

constexpr int threads = 2;
constexpr sgd_settings sgd{.learning_rate = 0.02F, .momentum = 0.9F, .weight_decay = 5e-4F};

struct image_batch {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

image_batch make_batch(std::int64_t number, std::int64_t size) {
  static const data::dataset set = [] {
    const char* const folder = std::getenv("STASH_DATA");
    if (folder != nullptr && *folder != 0) return data::load(folder).train;
    return data::generate(28, 28, 1, 10, 4096, 10, 1).train;
  }();
  static const std::vector<std::int32_t> order = data::epoch_order(set.count, 1, 0);
  image_batch b;
  for (std::int64_t n = 0; n < size; ++n) {
    const std::int64_t i = order[static_cast<std::size_t>((number * size + n) % set.count)];
    const auto begin = set.images.begin() + i * set.image_bytes();
    b.images.insert(b.images.end(), begin, begin + set.image_bytes());
    b.labels.push_back(set.labels[static_cast<std::size_t>(i)]);
  }
  return b;
}

std::unique_ptr<executor> make_executor(const planner::graph& g, planner::policy policy,
                                        const std::string& force) {
  planner::plan_options options;
  options.chosen_policy = policy;
  options.force = force;
  options.threads = threads;
  return std::make_unique<executor>(planner::make_plan(g, options), executor_options{});
}

// The unplanned run, and what it is compared with: the same weights and batches under a lossy policy.
class subject {
 public:
  subject(const planner::network& net, std::int64_t batch_size)
      : batch_size_(batch_size), graph_(planner::make_training_graph(net, batch_size)) {
    annotate_workspaces(graph_, {threads, framework_rule::tensorflow});
    exact_ = make_executor(graph_, planner::policy::none, "");
    exact_->initialise(1);
  }

  executor& exact() { return *exact_; }

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const image_batch b = make_batch(step_, batch_size_);
      exact_->train_step(b.images, b.labels, step_++, sgd);
    }
  }

  /// Takes the weights as they are now, with this many batches, as what measurements compare with.
  void hold(int batches) {
    held_.clear();
    for (int i = 0; i < batches; ++i) {
      const image_batch b = make_batch(step_ + i, batch_size_);
      exact_->gradient_step(b.images, b.labels, step_ + i);
      held_.push_back(gradients_of(*exact_));
    }
    const image_batch first = make_batch(step_, batch_size_);
    for (const stash_observation& o : exact_->measure_densities(first.images, first.labels)) {
      // Headroom for the densest of the batches.
      graph_.storages[o.storage].density = std::min(1.0, 1.2 * o.density + 0.02);
    }
  }

  std::unique_ptr<executor> lossy(planner::policy policy, const std::string& force) const {
    auto e = make_executor(graph_, policy, force);
    e->copy_parameters_from(*exact_);
    return e;
  }

  gradient_reading read(executor& lossy) const {
    gradient_reading reading;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const std::int64_t step = step_ + static_cast<std::int64_t>(i);
      const image_batch b = make_batch(step, batch_size_);
      EXPECT_TRUE(lossy.gradient_step(b.images, b.labels, step).committed) << "a stash did not fit";
      reading.add(held_[i], gradients_of(lossy));
    }
    return reading;
  }

  gradient_reading read(planner::policy policy, const std::string& force) const {
    return read(*lossy(policy, force));
  }
  gradient_reading read(planner::policy policy, const std::string& force, stash_fault fault) const {
    const auto e = lossy(policy, force);
    plant(*e, fault);
    return read(*e);
  }

 private:
  std::int64_t batch_size_, step_ = 0;
  planner::graph graph_;
  std::unique_ptr<executor> exact_;
  std::vector<gradients> held_;
};

struct lossy_format {
  planner::policy policy;
  const char *cast, *bitmap;  // names of the encodings
  gradient_gate gate;
};
constexpr lossy_format fp16{planner::policy::fp16, "fp16", "bitmap_fp16", fp16_gate};
constexpr lossy_format fp8{planner::policy::fp8, "fp8", "bitmap_fp8", fp8_gate};

void print(const std::string& what, const gradient_reading& reading, bool layers) {
  fmt::print("{:<36} {}\n", what, reading.net.text());
  if (!layers) return;
  for (const auto& [name, d] : reading.layers)
    fmt::print("  {:<34} {}\n", name, d.text());
}

planner::network model(const char* name) {
  return models::find(name).build({28, 28, 1}, 10);
}

struct training {
  const char* network;
  std::int64_t batch_size;
  int batches;  // of a reading
  int steps;    // from start to middle, and from middle to end
  friend std::ostream& operator<<(std::ostream& out, const training& t) { return out << t.network; }
};

class keeps_to_the_gate : public ::testing::TestWithParam<training> {};

TEST_P(keeps_to_the_gate, at_start_middle_and_end_of_training) {
  const training t = GetParam();
  subject s(model(t.network), t.batch_size);
  for (const char* const when : {"start", "middle", "end"}) {
    if (stash_test::only_part() && std::string(when) == "end") break;
    if (std::string(when) != "start") s.train(t.steps);
    s.hold(t.batches);
    for (const lossy_format& f : {fp16, fp8}) {
      // As planned, and with every map that may be narrow as a cast. (A bitmap holds the same values.)
      for (const std::string force : {"", f.cast}) {
        const gradient_reading r = s.read(f.policy, force);
        const std::string what = fmt::format("{}, {}, {} {}", t.network, when, planner::to_string(f.policy),
                                             force.empty() ? "as planned" : "everywhere");
        print(what, r, force.empty());
        EXPECT_TRUE(f.gate.passes(r.net)) << what << ": " << r.net.text();
        // What is smallest for LeNet may be masks alone: sparse forms have to pay for their arena.
        const bool may_be_lossless = force.empty() && std::string(t.network) == "lenet";
        EXPECT_TRUE(may_be_lossless || r.net.error() > 0.0) << what << ": nothing was narrowed";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(networks, keeps_to_the_gate,
                         ::testing::Values(training{"lenet", 32, 4, 60}, training{"vgg_small", 16, 2, 10},
                                           training{"resnet20", 16, 2, 10}),
                         ::testing::PrintToStringParamName());

TEST(gradient_gate, fails_on_planted_faults) {
  subject s(model("lenet"), 32);
  s.train(10);
  s.hold(4);
  for (const lossy_format& f : {fp16, fp8}) {
    for (const char* const force : {f.cast, f.bitmap}) {
      const gradient_reading sound = s.read(f.policy, force);
      print(fmt::format("{}, sound", force), sound, false);
      EXPECT_TRUE(f.gate.passes(sound.net)) << force << ": " << sound.net.text();
      for (const auto& [fault, name] : {std::pair{stash_fault::truncation, "truncation"},
                                        {stash_fault::scale, "scale 5 % off"},
                                        {stash_fault::dropped_values, "1 % dropped"}}) {
        const gradient_reading r = s.read(f.policy, force, fault);
        print(fmt::format("{}, {}", force, name), r, false);
        EXPECT_FALSE(f.gate.passes(r.net)) << force << ", " << name << ": " << r.net.text();
      }
    }
  }
}

TEST(gradient_gate, rewriting_right_bytes_changes_nothing) {
  subject s(model("lenet"), 32);
  s.hold(1);
  const image_batch b = make_batch(0, 32);
  for (const lossy_format& f : {fp16, fp8}) {
    for (const char* const force : {f.cast, f.bitmap}) {
      const auto untouched = s.lossy(f.policy, force), rewritten = s.lossy(f.policy, force);
      plant(*rewritten, stash_fault::none);
      ASSERT_TRUE(untouched->gradient_step(b.images, b.labels, 0).committed);
      ASSERT_TRUE(rewritten->gradient_step(b.images, b.labels, 0).committed);
      EXPECT_EQ(gradients_of(*untouched), gradients_of(*rewritten)) << force;
    }
  }
}

// One map lies in 2^-12 .. 2^-9, where e4m3 has nothing left but its smallest value. The next convolution
// brings the values back, so that everything after it is as ever, and the gradient of the first convolution,
// which needs nothing of the map but its sign, makes up the net's.
TEST(gradient_gate, fails_where_underflow_loses_signs) {
  planner::network net("small");
  auto x = net.input(28, 28, 1);
  x = net.relu("conv1/relu", net.conv2d("conv1", x, 8, {3, 3}, {1, 1}, {1, 1}));
  x = net.relu("conv2/relu", net.conv2d("conv2", x, 8, {3, 3}, {2, 2}, {1, 1}));
  x = net.dense("fc", net.flatten("flatten", x), 10);
  net.softmax_cross_entropy("loss", x);
  subject s(net, 32);
  const planner::graph& g = s.exact().current_plan().network;
  const auto scale_weights = [&](const std::string& name, float factor) {
    for (const planner::storage_id i : g.storages.ids()) {
      if (g.storages[i].role != planner::storage_role::weight || g.storages[i].name != name) continue;
      for (float& w : s.exact().parameter(planner::storage_id(i)))
        w *= factor;
      return;
    }
    FAIL() << name << ": no such weight";
  };
  std::vector<float> positive;
  s.exact().after_step = [&](std::size_t i) {
    const planner::step& st = s.exact().current_plan().steps[i];
    if (st.kind != planner::step_kind::run || g.op_at(st.op).name != "conv1/relu") return;
    const auto bytes = s.exact().buffer_bytes(st.outputs[0]);
    const auto* y = reinterpret_cast<const float*>(bytes.data());
    positive.clear();
    std::copy_if(y, y + bytes.size() / sizeof(float), std::back_inserter(positive),
                 [](float v) { return v > 0; });
  };
  s.hold(1);
  const auto median = positive.begin() + static_cast<std::ptrdiff_t>(positive.size() / 2);
  std::nth_element(positive.begin(), median, positive.end());
  const float factor = std::exp2(-10.5F) / *median;
  scale_weights("conv1/weight", factor);
  scale_weights("conv2/weight", 1 / factor);

  s.hold(4);
  const auto inside =
      std::count_if(positive.begin(), positive.end(), [](float v) { return v >= 0x1p-12F && v <= 0x1p-9F; });
  const double share = static_cast<double>(inside) / static_cast<double>(positive.size());
  fmt::print("{:.0f} % of the positive values lie in 2^-12 .. 2^-9\n", 100 * share);
  EXPECT_GT(share, 0.5);
  const gradient_reading kept = s.read(fp8.policy, fp8.cast);
  const gradient_reading lost = s.read(fp8.policy, fp8.cast, stash_fault::sign_lost);
  print("keep_nonzero", kept, true);
  print("to_zero", lost, true);
  EXPECT_TRUE(fp8.gate.passes(kept.net)) << kept.net.text();
  EXPECT_FALSE(fp8.gate.passes(lost.net)) << lost.net.text();
}

}  // namespace
}  // namespace stash::executor::testing
