// SPDX-License-Identifier: Apache-2.0
// Gradients of whole small networks against central differences of the loss, and under every lossless plan
// against the unplanned run's, bit for bit. The networks hold every kind of op that the executor runs.

#include <cmath>
#include <random>
#include <set>

#include "executor/training_support.hpp"

namespace stash::executor::testing {
namespace {

using planner::network;
using planner::node_id;
using planner::op_kind;
using planner::policy;
using planner::storage_id;

constexpr std::int64_t batch = 4;

node_id conv(network& n, const std::string& name, node_id x, std::int64_t channels, std::int32_t stride = 1) {
  return n.conv2d(name, x, channels, {3, 3}, {stride, stride}, {1, 1});
}

node_id conv_norm(network& n, const std::string& name, node_id x, std::int64_t channels,
                  std::int32_t stride = 1) {
  return n.batch_norm(name + "/norm", n.conv2d(name, x, channels, {3, 3}, {stride, stride}, {1, 1}, false));
}

void classify(network& n, node_id x) {
  n.softmax_cross_entropy("loss", n.dense("classifier", n.flatten("flatten", x), 5));
}

// One path: every activation and pool, fully connected layers, dropout.
network chain() {
  network n("chain");
  node_id x = n.relu("relu1", conv(n, "conv1", n.input(14, 14, 3), 6));
  x = n.max_pool("pool1", x, 2, 2);
  x = n.leaky_relu("leaky", conv(n, "conv2", x, 6), 0.2F);
  x = n.avg_pool("pool2", x, 3, 2, 1, true);
  x = n.relu6("relu6", conv(n, "conv3", x, 8));
  x = n.max_pool("pool3", x, 3, 2, 0, true);
  x = n.relu("relu4", n.dense("fc1", n.flatten("flatten1", x), 16));
  x = n.dropout("dropout", x, 0.3F);
  classify(n, x);
  return n;
}

// Shortcuts: identity and projection, a last ReLU that nobody reads as values.
network residual() {
  network n("residual");
  node_id x = n.relu("relu1", conv_norm(n, "conv1", n.input(9, 9, 2), 4));
  node_id y = n.relu("a/relu", conv_norm(n, "a/conv1", x, 4));
  x = n.relu("a/out", n.add("a/add", conv_norm(n, "a/conv2", y, 4), x));
  y = n.relu("b/relu", conv_norm(n, "b/conv1", x, 6, 2));
  y = conv_norm(n, "b/conv2", y, 6);
  const node_id projection =
      n.batch_norm("b/projection/norm", n.conv2d("b/projection", x, 6, {1, 1}, {2, 2}, {0, 0}, false));
  x = n.relu("b/out", n.add("b/add", y, projection));
  classify(n, n.global_avg_pool("average", x));
  return n;
}

// Branches that write and read channel slices; the joined map has three readers, one of them itself a
// concatenation that has to copy it.
network inception() {
  network n("inception");
  const node_id x = n.relu("stem/relu", conv(n, "stem", n.input(10, 10, 2), 6));
  const node_id a = n.relu("a/relu", n.conv2d("a", x, 3, {1, 1}, {1, 1}, {0, 0}));
  const node_id b = n.leaky_relu("b/leaky", conv(n, "b", x, 4), 0.1F);
  const node_id c =
      n.relu("c/relu", n.conv2d("c", n.max_pool("c/pool", x, 3, 1, 1), 2, {1, 1}, {1, 1}, {0, 0}));
  const node_id d = conv_norm(n, "d", x, 3);
  const node_id joined = n.concat("joined", {a, b, c, d});
  const node_id e = n.relu("e/relu", n.conv2d("e", joined, 8, {3, 3}, {2, 2}, {1, 1}, true, 4));
  const node_id f = n.max_pool("f", joined, 2, 2);
  const node_id g = n.avg_pool("g", n.concat("wider", {joined, x}), 2, 2);
  classify(n, n.global_avg_pool("average", n.concat("all", {e, f, g})));
  return n;
}

// ReLUs in slices of a map that only an average reads: all that backward needs is signs.
network slices_of_signs() {
  network n("slices_of_signs");
  const node_id x = n.input(8, 8, 2);
  const node_id a = n.relu("a/relu", conv(n, "a", x, 3));
  const node_id b = n.leaky_relu("b/leaky", conv(n, "b", x, 2), 0.1F);
  const node_id c = n.relu("c/relu", conv_norm(n, "c", x, 4));
  classify(n, n.avg_pool("average", n.concat("joined", {a, b, c}), 2, 2));
  return n;
}

// Norms with and without a ReLU of their own, dropout in place and not, sums of a map with itself.
network norms() {
  network n("norms");
  node_id x = conv_norm(n, "conv1", n.input(8, 8, 1), 5);
  const node_id activated = n.relu("relu1", x);
  x = n.add("sum", activated, n.dropout("dropout1", conv_norm(n, "conv2", activated, 5), 0.25F));
  x = n.add("twice", x, x);
  x = n.leaky_relu("leaky", n.batch_norm("norm", x), 0.05F);
  x = n.relu("relu3", n.batch_norm("norm3", conv(n, "conv3", x, 7, 2)));
  x = n.max_pool("pool", n.dropout("dropout2", x, 0.2F), 2, 2);
  classify(n, x);
  return n;
}

// Windows of 25 taps have no joint code; overlapping windows send several gradients to one tap.
network large_windows() {
  network n("large_windows");
  node_id x = n.relu("relu1", conv(n, "conv1", n.input(12, 12, 1), 4));
  x = n.max_pool("pool1", x, 5, 2, 2);
  x = n.max_pool("pool2", conv(n, "conv2", x, 5), 3, 1);
  x = n.relu("relu3", n.conv2d("conv3", x, 6, {2, 3}, {1, 1}, {0, 1}, true, 1));
  x = n.max_pool("pool3", x, 3, 2, 1);
  classify(n, x);
  return n;
}

// Gradients that come down through a flattening to a convolution, a pool and a norm.
network flattened() {
  network n("flattened");
  const node_id x = n.relu("stem/relu", conv(n, "stem", n.input(8, 8, 2), 5));
  node_id a = n.dropout("a/dropout", n.flatten("a/flatten", conv(n, "a", x, 4, 2)), 0.2F);
  node_id b = n.relu("b/relu", n.flatten("b/flatten", n.max_pool("b/pool", x, 2, 2)));
  node_id c =
      n.dropout("c/dropout", n.flatten("c/flatten", n.relu("c/relu", conv_norm(n, "c", x, 3, 2))), 0.3F);
  node_id d = n.leaky_relu("d/leaky", n.flatten("d/flatten", n.avg_pool("d/pool", x, 2, 2)), 0.1F);
  node_id e = n.flatten("e/flatten", n.global_avg_pool("e/average", conv_norm(n, "e", x, 3, 2)));
  a = n.dense("a/dense", a, 6);
  b = n.dense("b/dense", b, 6);
  c = n.dense("c/dense", c, 6);
  d = n.dense("d/dense", d, 6);
  e = n.batch_norm("e/outer", n.dense("e/dense", n.batch_norm("e/inner", e), 6));
  classify(n, n.add("sum", n.add("ab", a, b), n.add("ecd", e, n.add("cd", c, d))));
  return n;
}

struct named_network {
  std::string name;
  network (*make)();
};

const std::vector<named_network>& networks() {
  static const std::vector<named_network> all{{"chain", chain},         {"residual", residual},
                                              {"inception", inception}, {"slices_of_signs", slices_of_signs},
                                              {"norms", norms},         {"large_windows", large_windows},
                                              {"flattened", flattened}};
  return all;
}

struct outcome {
  double loss = 0;
  std::vector<std::uint32_t> gradients;
};

constexpr std::uint64_t seed = 11;
constexpr std::int64_t step = 2;

// Biases and shifts start at zero, where a padded or constant map sits on a ReLU's kink: move them away.
void scatter_parameters(executor& e) {
  e.initialise(seed);
  std::mt19937 random(3);
  const planner::graph& g = e.current_plan().network;
  for (const storage_id s : g.storages.ids()) {
    if (g.storages[s].role != planner::storage_role::weight || g.storages[s].shape.size() > 1) continue;
    for (float& v : e.parameter(s))
      v += (static_cast<float>(random() % 2001) - 1000.0F) * 2e-4F;
  }
}

outcome gradients_under(const planner::plan& p) {
  executor e(p, {});
  scatter_parameters(e);
  const image_batch b = make_batch(p.network, 0);
  const step_result r = e.gradient_step(b.images, b.labels, step);
  EXPECT_TRUE(r.committed);
  return {r.loss, gradient_bits(e)};
}

planner::plan unplanned(const planner::graph& g) {
  return planner::make_plan(g, make_options(policy::none).plan);
}

// A step that does not fit its slots has no gradients to compare: plan with measured densities and some
// headroom.
void measure_densities(planner::graph& g) {
  executor e(unplanned(g), {});
  scatter_parameters(e);
  const image_batch b = make_batch(g, 0);
  for (const stash_observation& o : e.measure_densities(b.images, b.labels))
    g.storages[o.storage].density = std::min(1.0, o.density + 0.05);
}

class whole_network : public ::testing::TestWithParam<named_network> {};

TEST_P(whole_network, gradients_equal_central_differences) {
  const planner::graph g = make_graph(GetParam().make(), batch);
  executor e(unplanned(g), {});
  scatter_parameters(e);
  const image_batch b = make_batch(g, 0);
  ASSERT_TRUE(e.gradient_step(b.images, b.labels, step).committed);

  struct pair {
    storage_id weight;
    std::vector<float> gradient;
  };
  std::vector<pair> pairs;
  for (const planner::op& o : g.ops) {
    if (o.kind != op_kind::sgd_update) continue;
    for (std::size_t i = 0; i + 2 < o.parameters.size(); i += 3) {
      const std::span<const float> values = e.parameter(o.parameters[i + 1]);
      pairs.push_back({o.parameters[i], {values.begin(), values.end()}});
    }
  }
  ASSERT_FALSE(pairs.empty());

  std::mt19937 random(1);
  for (const pair& p : pairs) {
    const std::string& name = g.at(p.weight).name;
    const std::span<float> weight = e.parameter(p.weight);
    double largest = 0;
    for (const float v : p.gradient)
      largest = std::max(largest, std::abs(static_cast<double>(v)));
    const auto difference = [&](std::size_t i, float by) {
      const float before = weight[i];
      weight[i] = before + by;
      const double distance = static_cast<double>(weight[i]);
      const double above = e.gradient_step(b.images, b.labels, step).loss;
      weight[i] = before - by;
      const double width = distance - static_cast<double>(weight[i]);
      const double below = e.gradient_step(b.images, b.labels, step).loss;
      weight[i] = before;
      return (above - below) / width;
    };
    int checked = 0, kinks = 0;
    for (int k = 0; k < 10; ++k) {
      const std::size_t i = random() % weight.size();
      const double wide = difference(i, 5e-4F), narrow = difference(i, 2.5e-4F);
      const double tolerance = 3e-4 + 0.01 * largest;
      // The quotients differ where a ReLU or a maximum changes sides between the two points.
      if (std::abs(wide - narrow) > tolerance) {
        ++kinks;
        continue;
      }
      EXPECT_NEAR(static_cast<double>(p.gradient[i]), narrow, tolerance) << name << " [" << i << "]";
      ++checked;
    }
    EXPECT_GE(checked, 5) << name << ": " << kinks << " kinks";
  }
}

TEST_P(whole_network, lossless_plans_give_the_same_bits) {
  planner::graph g = make_graph(GetParam().make(), batch);
  const planner::plan reference = unplanned(g);
  const outcome expected = gradients_under(reference);
  measure_densities(g);
  int legal = 0;
  for (const std::string force :
       {"", "raw", "sign_mask", "window_index", "relu_pool", "range_mask", "bitmap", "csr", "recompute"}) {
    SCOPED_TRACE("forced: " + force);
    trainer_options o = make_options(policy::lossless);
    o.plan.force = force;
    try {
      const planner::plan p = planner::make_plan(g, o.plan);
      const outcome found = gradients_under(p);
      EXPECT_EQ(expected.loss, found.loss);
      EXPECT_TRUE(expected.gradients == found.gradients);
      ++legal;
    } catch (const error& e) {
      EXPECT_NE(std::string_view(e.what()).find("make_plan: force"), std::string_view::npos) << e.what();
    }
  }
  EXPECT_GE(legal, 3);
}

TEST_P(whole_network, budgets_give_the_same_bits) {
  planner::graph g = make_graph(GetParam().make(), batch);
  const planner::plan reference = unplanned(g);
  const outcome expected = gradients_under(reference);
  measure_densities(g);
  trainer_options o = make_options(policy::lossless);
  o.plan.overflow_share = 0;  // its smallest size is more than these networks need
  const std::int64_t most = reference.sizes.baseline_peak_total;
  const std::int64_t least = planner::make_plan(g, o.plan).sizes.planned_peak_total;
  EXPECT_LE(least, most);
  for (int part = 0; part <= 4; ++part) {
    SCOPED_TRACE(part);
    o.plan.budget_bytes = least + (most - least) * part / 4;
    const outcome found = gradients_under(planner::make_plan(g, o.plan));
    EXPECT_EQ(expected.loss, found.loss);
    EXPECT_TRUE(expected.gradients == found.gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(networks, whole_network, ::testing::ValuesIn(networks()),
                         [](const auto& p) { return p.param.name; });

TEST(networks_under_test, hold_every_op_of_the_executor) {
  std::set<op_kind> found;
  std::set<std::string> forms;
  for (const named_network& n : networks()) {
    for (const planner::op& o : make_graph(n.make(), batch).ops) {
      found.insert(o.kind);
      for (const planner::stash_alternative& a : o.alternatives)
        forms.insert(a.form);
    }
  }
  for (int kind = 0; kind <= static_cast<int>(op_kind::sgd_update); ++kind) {
    const auto k = static_cast<op_kind>(kind);
    if (k == op_kind::lrn || k == op_kind::lrn_backward) continue;
    EXPECT_TRUE(found.contains(k)) << to_string(k);
  }
  const std::set<std::string> expected{"from_x",    "from_y",           "from_index",
                                       "from_code", "from_index_and_y", "from_x_and_y",
                                       "from_seed", "from_mask",        "from_probabilities"};
  EXPECT_EQ(forms, expected);
}

}  // namespace
}  // namespace stash::executor::testing
