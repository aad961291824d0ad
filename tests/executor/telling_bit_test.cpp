// SPDX-License-Identifier: Apache-2.0
// Backward really reads what the encoders wrote: one telling bit flipped between encode and decode changes
// the gradients and the updated weights, for every encoding and every reader of it.

#include <functional>

#include "executor/training_support.hpp"

namespace stash::executor::testing {
namespace {

using planner::network;
using planner::node_id;
using planner::policy;
using planner::stash_kind;

constexpr std::int64_t batch = 3;
constexpr std::uint64_t seed = 5;

node_id conv(network& net, const std::string& name, node_id x, std::int64_t channels) {
  return net.conv2d(name, x, channels, {3, 3}, {1, 1}, {1, 1});
}

// input -> conv -> what the case is about -> average -> classifier: after an average nobody needs values.
network tiny(const std::function<node_id(network&, node_id)>& middle) {
  network net("tiny");
  node_id x = conv(net, "conv", net.input(10, 10, 2), 6);
  x = net.avg_pool("average", middle(net, x), 2, 2, 0, true);
  net.softmax_cross_entropy("loss", net.dense("classifier", net.flatten("flatten", x), 4));
  return net;
}

network relu_network() {
  return tiny([](network& n, node_id x) { return n.relu("relu", x); });
}
network leaky_relu_network() {
  return tiny([](network& n, node_id x) { return n.leaky_relu("leaky", x, 0.1F); });
}
network relu6_network() {
  return tiny([](network& n, node_id x) { return n.relu6("relu6", x); });
}
network norm_network() {
  return tiny([](network& n, node_id x) { return n.relu("relu", n.batch_norm("norm", x)); });
}
network sliced_relu_network() {
  return tiny([](network& n, node_id x) {
    const node_id a = n.relu("relu_a", conv(n, "conv_a", x, 3));
    const node_id b = n.relu("relu_b", conv(n, "conv_b", x, 5));
    return n.concat("concat", {a, b});
  });
}
network dropout_network() {
  return tiny([](network& n, node_id x) { return n.dropout("dropout", x, 0.4F); });
}
// The map between two convolutions is read as values and, by its ReLU, as signs.
network two_convolutions() {
  return tiny([](network& n, node_id x) { return conv(n, "conv2", n.relu("relu", x), 5); });
}
network norm_and_convolution() {
  return tiny(
      [](network& n, node_id x) { return conv(n, "conv2", n.relu("relu", n.batch_norm("norm", x)), 5); });
}
network max_pool_network(std::int32_t kernel, std::int32_t stride) {
  return tiny([=](network& n, node_id x) { return n.max_pool("pool", x, kernel, stride); });
}
network relu_max_pool_network(std::int32_t kernel, std::int32_t stride) {
  return tiny([=](network& n, node_id x) { return n.max_pool("pool", n.relu("relu", x), kernel, stride); });
}

// Which bits of the encoded form are candidates: of element k (of the k-th stored value in a payload), bit
// `bit` of `bits`.
enum class plane { first, gradient, payload, csr_payload };

struct telling_case {
  std::string name;
  network net;
  policy chosen_policy;
  std::string force;    // empty: what the planner takes for the smallest peak
  std::string storage;  // whose stored form is damaged
  std::string stored;
  stash_kind kind = stash_kind::encoded;
  plane where = plane::first;
  int bits = 1, bit = 0;
};

std::size_t pad16(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

std::size_t begin_of(plane where, std::size_t elements) {
  if (where == plane::gradient) return pad16((elements + 3) / 4);
  if (where == plane::csr_payload)
    return pad16((elements + 255) / 256 * 2) + pad16((elements + 1023) / 1024 * 4);
  if (where == plane::payload) return pad16((elements + 7) / 8) + pad16((elements + 1023) / 1024 * 4);
  return 0;
}

struct outcome {
  std::vector<std::uint32_t> gradients;
  std::string hash;
  friend bool operator==(const outcome&, const outcome&) = default;
};

// One step from the same state every time.
outcome run(executor& e) {
  const image_batch b = make_batch(e.current_plan().network, 0);
  e.initialise(seed);
  EXPECT_TRUE(e.train_step(b.images, b.labels, 3, {}).committed);
  return {gradient_bits(e), e.parameters_sha256()};
}

planner::plan plan_for(const telling_case& c) {
  trainer_options o = make_options(c.chosen_policy);
  o.plan.force = c.force;
  // Slots that hold more than the half that a ReLU usually leaves keep reruns out of the picture.
  planner::graph g = make_graph(c.net, batch);
  for (planner::storage& s : g.storages) {
    if (s.density < 1.0) s.density = 0.9;
  }
  return planner::make_plan(g, o.plan);
}

class telling_bit : public ::testing::TestWithParam<telling_case> {};

TEST_P(telling_bit, changes_the_gradients) {
  const telling_case& c = GetParam();
  executor e(plan_for(c), {});
  const planner::plan& p = e.current_plan();
  const planner::storage_id s = storage_named(p.network, c.storage);
  ASSERT_TRUE(s.valid());
  const planner::stash_choice& choice = p.choices[s];
  ASSERT_EQ(choice.kind, c.kind);
  ASSERT_EQ(to_string(choice.stored), c.stored);
  const planner::buffer_id kept = kept_buffer(p, s);
  ASSERT_TRUE(kept.valid());

  const outcome expected = run(e);
  EXPECT_EQ(expected, run(e)) << "a step is not repeatable";
  if (c.chosen_policy == policy::none || c.chosen_policy == policy::lossless) {
    telling_case unplanned = c;
    unplanned.chosen_policy = policy::none;
    unplanned.force.clear();
    executor reference(plan_for(unplanned), {});
    EXPECT_EQ(expected, run(reference));
  }

  const auto elements = static_cast<std::size_t>(p.network.at(s).elements(batch));
  const std::size_t begin = 8 * begin_of(c.where, elements);
  const std::size_t last_forward = first_backward_step(p) - 1;
  constexpr std::size_t candidates = 48;
  // Spread over the first two thirds of the codes; of a payload over the first fifth, which is there at
  // any density.
  const std::size_t stride = std::max<std::size_t>(1, elements / (c.where >= plane::payload ? 240 : 72));
  int told = 0;
  for (std::size_t k = 0; k < candidates && told == 0; ++k) {
    const std::size_t position =
        begin + k * stride * static_cast<std::size_t>(c.bits) + static_cast<std::size_t>(c.bit);
    ASSERT_LT(position / 8, e.buffer_bytes(kept).size());
    e.after_step = [&](std::size_t step) {
      if (step == last_forward) e.buffer_bytes(kept)[position / 8] ^= std::byte{1} << (position % 8);
    };
    try {
      const outcome found = run(e);
      if (found.gradients == expected.gradients) continue;  // nothing flows through this element
      EXPECT_NE(found.hash, expected.hash);
      ++told;
    } catch (const error& damage) {
      // A argmax outside its window or a payload that ends too late is noticed: not what is asked here.
      ASSERT_EQ(damage.code(), errc::corrupt_data) << damage.what();
    }
  }
  EXPECT_EQ(told, 1) << "none of " << candidates << " bits was telling";

  e.after_step = nullptr;
  EXPECT_EQ(expected, run(e)) << "damage outlived its step";
}

std::vector<telling_case> cases() {
  constexpr policy none = policy::none, lossless = policy::lossless;
  constexpr stash_kind raw = stash_kind::raw, recompute = stash_kind::recompute;
  constexpr stash_kind encoded = stash_kind::encoded;
  return {
      {"raw_value", two_convolutions(), none, "", "relu", "raw", raw, plane::first, 32, 24},
      {"raw_sign", relu_network(), none, "", "relu", "raw", raw, plane::first, 32, 31},
      {"raw_dropout_byte", dropout_network(), none, "", "dropout.mask", "raw", raw, plane::first, 8, 0},
      {"sign_mask_relu", relu_network(), lossless, "sign_mask", "relu", "sign_mask"},
      {"sign_mask_leaky_relu", leaky_relu_network(), lossless, "sign_mask", "leaky", "sign_mask"},
      {"sign_mask_norm", norm_network(), lossless, "sign_mask", "relu", "sign_mask"},
      {"sign_mask_pool", relu_max_pool_network(2, 2), lossless, "sign_mask", "pool", "sign_mask"},
      {"dropout_mask", dropout_network(), lossless, "sign_mask", "dropout.mask", "sign_mask"},
      {"window_index_2", max_pool_network(2, 2), lossless, "window_index", "pool.index", "window_index",
       encoded, plane::first, 2, 0},
      {"window_index_2_relu", relu_max_pool_network(2, 2), lossless, "window_index", "pool.index",
       "window_index", encoded, plane::first, 2, 1},
      {"window_index_4", max_pool_network(3, 2), lossless, "window_index", "pool.index", "window_index",
       encoded, plane::first, 4, 0},
      {"window_index_8", max_pool_network(5, 2), lossless, "window_index", "pool.index", "window_index",
       encoded, plane::first, 8, 0},
      {"window_index_8_relu", relu_max_pool_network(5, 2), lossless, "window_index", "pool.index",
       "window_index", encoded, plane::first, 8, 1},
      {"sign_mask_large_pool", relu_max_pool_network(5, 2), lossless, "sign_mask", "pool", "sign_mask"},
      {"relu_pool_tap", relu_max_pool_network(2, 2), lossless, "relu_pool", "pool.code", "relu_pool", encoded,
       plane::first, 2, 0},
      {"relu_pool_sign", relu_max_pool_network(2, 2), lossless, "relu_pool", "pool.code", "relu_pool",
       encoded, plane::gradient, 1, 0},
      {"relu_pool_code", relu_max_pool_network(3, 2), lossless, "relu_pool", "pool.code", "relu_pool",
       encoded, plane::first, 4, 0},
      {"bitmap_mask", two_convolutions(), lossless, "bitmap", "relu", "bitmap"},
      {"bitmap_mask_sign_only", relu_network(), lossless, "bitmap", "relu", "bitmap"},
      {"bitmap_slices", sliced_relu_network(), lossless, "bitmap", "concat", "bitmap"},
      {"bitmap_exponent", two_convolutions(), lossless, "bitmap", "relu", "bitmap", encoded, plane::payload,
       32, 24},
      {"bitmap_range", relu6_network(), lossless, "bitmap", "relu6", "bitmap", encoded, plane::payload, 32,
       31},
      {"range_mask", relu6_network(), lossless, "range_mask", "relu6", "range_mask"},
      {"csr_exponent", two_convolutions(), lossless, "csr", "relu", "csr", encoded, plane::csr_payload, 32,
       24},
      {"csr_sign", relu_network(), lossless, "csr", "relu", "csr", encoded, plane::csr_payload, 32, 31},
      {"csr_fp8_exponent", two_convolutions(), policy::fp8, "csr_fp8", "relu", "csr_fp8", encoded,
       plane::csr_payload, 8, 4},
      {"fp16_value", two_convolutions(), policy::fp16, "fp16", "relu", "fp16", encoded, plane::first, 16, 11},
      {"fp16_sign", relu_network(), policy::fp16, "fp16", "relu", "fp16", encoded, plane::first, 16, 15},
      {"fp8_value", two_convolutions(), policy::fp8, "fp8", "relu", "fp8", encoded, plane::first, 8, 4},
      {"fp8_sign", relu_network(), policy::fp8, "fp8", "relu", "fp8", encoded, plane::first, 8, 7},
      {"bitmap_fp16_mask", two_convolutions(), policy::fp16, "bitmap_fp16", "relu", "bitmap_fp16"},
      {"bitmap_fp16_exponent", two_convolutions(), policy::fp16, "bitmap_fp16", "relu", "bitmap_fp16",
       encoded, plane::payload, 16, 11},
      {"bitmap_fp8_mask", two_convolutions(), policy::fp8, "bitmap_fp8", "relu", "bitmap_fp8"},
      {"bitmap_fp8_exponent", two_convolutions(), policy::fp8, "bitmap_fp8", "relu", "bitmap_fp8", encoded,
       plane::payload, 8, 4},
      {"recompute_mask", norm_and_convolution(), policy::fp8, "", "relu", "sign_mask", recompute},
      {"recompute_source", norm_and_convolution(), lossless, "recompute", "conv", "raw", raw, plane::first,
       32, 24},
  };
}

INSTANTIATE_TEST_SUITE_P(encodings, telling_bit, ::testing::ValuesIn(cases()),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace stash::executor::testing
