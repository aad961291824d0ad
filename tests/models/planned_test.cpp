// SPDX-License-Identifier: Apache-2.0
#include "models/planned.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "models/models.hpp"
#include "planned_graph.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "tape_support.hpp"

namespace stash::models {
namespace {

using planner::graph;
using planner::policy;
using testing::elements;
using testing::expect_reads_are_what_forward_saw;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::label_rules;
using testing::op_named;
using testing::refusal;
using dims = std::vector<std::int64_t>;

dims output_shape(const graph& g, std::string_view name) {
  return testing::shape_of(g, op_named(g, name).outputs.at(0));
}

unet3d_options small_unet() {
  return {.side = 16, .modalities = 4, .classes = 3, .base_filters = 2};
}

lstm_lm_options small_lm(std::int64_t chunk) {
  return {.vocabulary = 50, .hidden = 8, .layers = 2, .steps = 5, .dropout = 0.5, .loss_chunk = chunk};
}

seq2seq_options small_seq2seq(std::int64_t chunk) {
  return {.source_vocabulary = 40,
          .target_vocabulary = 30,
          .hidden = 8,
          .layers = 2,
          .steps = 5,
          .dropout = 0.2,
          .loss_chunk = chunk};
}

transformer_options small_transformer(std::int64_t chunk) {
  transformer_options o;
  o.vocabulary = 60;
  o.width = 16;
  o.layers = 2;
  o.heads = 4;
  o.positions = 12;
  o.steps = 8;
  o.loss_chunk = chunk;
  return o;
}

vit_options small_vit() {
  vit_options o;
  o.side = 8;
  o.patch = 4;
  o.classes = 5;
  o.width = 16;
  o.layers = 2;
  o.heads = 4;
  return o;
}

llama_options small_llama(std::int64_t chunk) {
  return {.vocabulary = 60,
          .width = 16,
          .layers = 2,
          .heads = 4,
          .key_heads = 2,
          .feed_forward = 24,
          .steps = 8,
          .loss_chunk = chunk};
}

// Heads of queries for each head of keys.
std::int64_t shared_keys(const graph& g) {
  return g.name == "llama" ? 2 : g.name == "llama_1b" ? 4 : 1;
}

std::vector<tape> small_ones() {
  return {unet3d(small_unet()),
          unet2d({.side = 32, .channels = 3, .classes = 2, .base_filters = 2}),
          mobilenet_v2({.side = 32, .classes = 5}),
          efficientnet_b0({.side = 32, .classes = 5}),
          convnext_tiny({.side = 32, .classes = 5}),
          vit("vit", small_vit()),
          llama("llama", small_llama(0)),
          llama("llama", small_llama(3)),
          lstm_lm(small_lm(0)),
          lstm_lm(small_lm(2)),
          seq2seq(small_seq2seq(0)),
          seq2seq(small_seq2seq(2)),
          bert("bert", small_transformer(0)),
          bert("bert", small_transformer(3)),
          gpt2("gpt2", small_transformer(0)),
          gpt2("gpt2", small_transformer(3))};
}

TEST(planned, shapes_and_reads_follow_the_labels) {
  std::set<std::string> labels;
  for (const tape& t : small_ones()) {
    const graph g = t.finish(3);
    SCOPED_TRACE(g.name);
    planner::check_graph(g);
    for (const auto& [label, count] : label_rules(g, shared_keys(g)).run())
      labels.insert(label);
    expect_reads_are_what_forward_saw(g);
  }
  EXPECT_EQ(labels.size(), 74U);
}

TEST(planned, full_size_ones_too) {
  for (const model_info& info : all()) {
    if (info.make_graph == nullptr) continue;
    SCOPED_TRACE(info.name);
    const graph g = default_graph(info, 2);
    EXPECT_EQ(g.name, info.name);
    planner::check_graph(g);
    label_rules(g, shared_keys(g)).run();
    expect_reads_are_what_forward_saw(g);
  }
}

TEST(planned, plans_are_valid) {
  for (const tape& t : small_ones()) {
    const graph g = t.finish(4);
    SCOPED_TRACE(g.name);
    std::int64_t before = 0;
    for (const policy chosen : {policy::none, policy::lossless, policy::fp16, policy::fp8}) {
      planner::plan_options options;
      options.chosen_policy = chosen;
      const planner::plan p = planner::make_plan(g, options);
      EXPECT_THAT(planner::validate(p), IsEmpty());
      if (chosen == policy::none) before = p.sizes.planned_peak_total;
      EXPECT_LE(p.sizes.planned_peak_total, before);
      if (chosen == policy::none) continue;
      options.budget_bytes = (p.sizes.planned_peak_total + before) / 2;
      const planner::plan fitting = planner::make_plan(g, options);
      EXPECT_THAT(planner::validate(fitting), IsEmpty());
      EXPECT_LE(fitting.sizes.planned_peak_total, options.budget_bytes);
    }
  }
}

// ---- parameters ------------------------------------------------------------------------------------------

TEST(planned, published_parameter_counts) {
  // BertModel and BertForPreTraining of the released implementations, GPT-2 with tied embeddings.
  const auto head = [](std::int64_t width) {
    return width * width + width + 2 * width + 30'522 + 2 * width + 2;
  };
  EXPECT_EQ(bert("b", bert_base()).parameter_count(), 110'106'428);
  EXPECT_EQ(bert("b", bert_base()).parameter_count() - head(768), 109'482'240);
  EXPECT_EQ(bert("b", bert_large()).parameter_count() - head(1024), 335'141'888);
  EXPECT_EQ(gpt2("g", gpt2_small()).parameter_count(), 124'439'808);
  EXPECT_EQ(gpt2("g", gpt2_medium()).parameter_count(), 354'823'168);
  // Cicek et al., section 2: 19,069,955, for 3 channels and 3 classes; scale and shift of norms do not count
  // there.
  unet3d_options o;
  o.modalities = o.classes = 3;
  const std::int64_t norm_channels = 32 + 64 + 64 + 128 + 128 + 256 + 256 + 512 + 2 * (256 + 128 + 64);
  EXPECT_EQ(unet3d(o).parameter_count() - 2 * norm_channels, 19'069'955);
  // Zaremba et al. give 20M and 66M; the exact figures are those of the released TensorFlow models.
  EXPECT_EQ(lstm_lm({}).parameter_count(), 66'022'000);
  EXPECT_EQ(lstm_lm({.hidden = 650}).parameter_count(), 19'775'200);
}

TEST(planned, parameters_of_seq2seq_by_hand) {
  constexpr std::int64_t s = 40, v = 30, n = 8;
  constexpr std::int64_t lstm = 4 * n * (n + n) + 4 * n;
  constexpr std::int64_t fed_back = 4 * n * n;
  constexpr std::int64_t attention = n * n + n * n + n + 2 * n * n;
  EXPECT_EQ(seq2seq(small_seq2seq(0)).parameter_count(),
            s * n + v * n + 4 * lstm + fed_back + attention + v * n + v);
}

TEST(planned, parameters_do_not_depend_on_lengths) {
  lstm_lm_options lm = small_lm(0);
  lm.steps = 9;
  EXPECT_EQ(lstm_lm(lm).parameter_count(), lstm_lm(small_lm(2)).parameter_count());
  transformer_options o = small_transformer(0);
  o.steps = 12;
  EXPECT_EQ(gpt2("g", o).parameter_count(), gpt2("g", small_transformer(3)).parameter_count());
}

// ---- shapes of the publications --------------------------------------------------------------------------

TEST(planned, shapes_of_the_publications) {
  unet3d_options o;
  o.side = 64;
  const graph u = unet3d(o).finish(1);
  EXPECT_EQ(output_shape(u, "down1_1"), (dims{64, 64, 64, 32}));
  EXPECT_EQ(output_shape(u, "pool1"), (dims{32, 32, 32, 64}));
  EXPECT_EQ(output_shape(u, "down4_2"), (dims{8, 8, 8, 512}));
  EXPECT_EQ(output_shape(u, "up3"), (dims{16, 16, 16, 512}));
  EXPECT_EQ(u.at(op_named(u, "up3").outputs[0].storage).shape, (dims{16, 16, 16, 512}));
  EXPECT_EQ(op_named(u, "up3_1").inputs.size(), 2U);
  EXPECT_EQ(output_shape(u, "classifier"), (dims{64, 64, 64, 4}));
  const graph b = bert("b", bert_base()).finish(1);
  EXPECT_EQ(output_shape(b, "layer12/attention/scores"), (dims{12, 128, 128}));
  EXPECT_EQ(output_shape(b, "layer1/mlp/gelu"), (dims{128, 3072}));
  EXPECT_EQ(output_shape(b, "logits"), (dims{128, 30'522}));
  const graph s = seq2seq({}).finish(1);
  EXPECT_EQ(output_shape(s, "attention/keys"), (dims{50, 512}));
  EXPECT_EQ(output_shape(s, "attention/scores[49]"), dims{50});
  EXPECT_EQ(output_shape(s, "decoder/lstm1[0]/gates"), dims{2048});
}

// A convolution of two maps is that of their concatenation: as many operations, weights and gradients.
TEST(planned, a_convolution_of_two_maps) {
  const auto make = [](bool joined) {
    tape t("two");
    const value image = t.image("image", {4, 4, 4, 2});
    const value a = t.conv3d("a", {{image, t.parameter("wa", {3, 2, 3, 3, 3})}});
    const value b = t.conv3d("b", {{image, t.parameter("wb", {5, 2, 3, 3, 3})}});
    const value y = joined ? t.conv3d("y", {{t.concat("ab", {a, b}), t.parameter("w", {6, 8, 3, 3, 3})}})
                           : t.conv3d("y", {{a, t.parameter("w0", {6, 3, 3, 3, 3})},
                                            {b, t.parameter("w1", {6, 5, 3, 3, 3})}});
    t.softmax_cross_entropy("loss", y, t.ids("labels", 64), 0);
    return t.finish(2);
  };
  const graph whole = make(true), parts = make(false);
  planner::check_graph(parts);
  const auto sums = [](const graph& g) {
    double flops = 0, weights = 0;
    for (const planner::op& o : g.ops)
      flops += o.name.starts_with("y") ? o.flops : 0;
    for (const planner::storage& s : g.storages)
      weights += s.role == planner::storage_role::weight ? static_cast<double>(s.elements(1)) : 0;
    return std::pair(flops, weights);
  };
  EXPECT_DOUBLE_EQ(sums(parts).first, sums(whole).first);
  EXPECT_EQ(sums(parts).second, sums(whole).second);
  EXPECT_EQ(output_shape(parts, "y"), (dims{4, 4, 4, 6}));
  EXPECT_EQ(op_named(parts, "y/backward_weights1").parameters_written.size(), 1U);
  EXPECT_EQ(output_shape(parts, "y/backward_data1"), (dims{4, 4, 4, 5}));
}

TEST(planned, volumes_of_any_size) {
  unet3d_options o;
  o.side = 512;
  const graph g = unet3d(o).finish(1);
  planner::check_graph(g);
  EXPECT_EQ(g.at(op_named(g, "down1_2").outputs[0].storage).bytes(1), 512LL * 512 * 512 * 64 * 4);
}

// ---- what the literature saves ---------------------------------------------------------------------------

// Meng et al.: without the kept tanh of the attention memory grows with the square of the length no more.
TEST(planned, additive_attention_is_recomputed) {
  seq2seq_options o = small_seq2seq(0);
  o.hidden = 64;
  o.steps = 24;
  const graph g = seq2seq(o).finish(4);
  const auto hidden_bytes = [&](policy chosen) {
    planner::plan_options options;
    options.chosen_policy = chosen;
    const planner::plan p = planner::make_plan(g, options);
    std::int64_t kept = 0;
    for (const planner::storage_id i : g.storages.ids()) {
      if (g.storages[i].name.ends_with(".hidden")) kept += p.choices[i].bytes_after;
    }
    return kept;
  };
  EXPECT_EQ(hidden_bytes(policy::none), 24LL * 24 * 64 * 4 * 4);
  EXPECT_EQ(hidden_bytes(policy::lossless), 0);
}

TEST(planned, a_loss_in_chunks_keeps_no_logits) {
  const auto largest = [](const graph& g) {
    std::int64_t most = 0;
    for (const planner::storage& s : g.storages)
      most = std::max(most, s.bytes_per_sample);
    return most;
  };
  lstm_lm_options o = small_lm(0);
  o.vocabulary = 1000;
  EXPECT_EQ(largest(lstm_lm(o).finish(1)), 5 * 1000 * 4);
  o.loss_chunk = 2;
  const graph g = lstm_lm(o).finish(7);
  EXPECT_LT(largest(g), 1000);
  EXPECT_EQ(op_named(g, "loss").workspace_bytes, 7 * 2 * 1000 * 4);
  EXPECT_EQ(op_named(g, "loss/backward").workspace_bytes, 7 * 2 * 1000 * 4);
}

// ---- refusals --------------------------------------------------------------------------------------------

TEST(planned, sizes_beyond_64_bits_are_refused) {
  EXPECT_THAT(refusal([] { unet3d({.side = std::int64_t{1} << 22}); }), HasSubstr("side"));
  const tape large = unet3d({.side = 8192});
  EXPECT_NO_THROW(large.finish(1));
  EXPECT_THAT(refusal([&] { large.finish(1'000'000); }), HasSubstr("batch"));
  transformer_options o = small_transformer(0);
  o.positions = o.steps = std::int64_t{1} << 32;
  EXPECT_THAT(refusal([&] { gpt2("g", o); }), HasSubstr("steps"));
  lstm_lm_options lm = small_lm(0);
  lm.loss_chunk = 2;
  EXPECT_THAT(refusal([&] { lstm_lm(lm).finish(std::int64_t{1} << 60); }), HasSubstr("batch"));
}

TEST(planned, the_table_knows_which_sizes_a_network_takes) {
  for (const model_info& info : all()) {
    if (info.make_graph == nullptr) continue;
    graph_parameters p;
    if (info.most_steps > 0) {
      p.steps = info.most_steps;
      EXPECT_NO_THROW(info.make_graph(1, p)) << info.name;
      ++p.steps;
      EXPECT_THAT(refusal([&] { info.make_graph(1, p); }), HasSubstr("positions")) << info.name;
    }
    if (info.side_unit > 1) {
      p.side = info.side_unit;
      EXPECT_NO_THROW(info.make_graph(1, p)) << info.name;
      p.side = 3 * info.side_unit / 2;
      EXPECT_THAT(refusal([&] { info.make_graph(1, p); }), HasSubstr("side")) << info.name;
    }
  }
}

TEST(planned, sizes_that_do_not_fit_are_refused) {
  for (const std::int64_t side : {60, 4, 0, -8})
    EXPECT_THAT(refusal([&] { unet3d({.side = side}); }), HasSubstr("side: expected a multiple of 8"));
  EXPECT_THAT(refusal([] { lstm_lm({.steps = 1}); }), HasSubstr("at least 2 steps"));
  EXPECT_THAT(refusal([] { seq2seq({.layers = 0}); }), HasSubstr("1 layer"));
  transformer_options o = small_transformer(0);
  o.steps = 13;
  EXPECT_THAT(refusal([&] { gpt2("g", o); }), HasSubstr("'positions'"));
  o.steps = 8;
  o.heads = 3;
  EXPECT_THAT(refusal([&] { bert("b", o); }), HasSubstr("heads"));
  EXPECT_THAT(refusal([] { gpt2("g", small_transformer(0)).finish(0); }), HasSubstr("at least 1, got 0"));
  for (const model_info& info : all()) {
    if (info.make_graph == nullptr) continue;
    graph_parameters p;
    (info.default_parameters.side == 0 ? p.side : p.steps) = 8;
    EXPECT_THAT(refusal([&] { info.make_graph(1, p); }), HasSubstr("the network has none"));
  }
}

}  // namespace
}  // namespace stash::models
