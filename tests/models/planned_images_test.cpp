// SPDX-License-Identifier: Apache-2.0
// Planned networks of two-dimensional images, and Llama: what publications and released models say of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "models/models.hpp"
#include "models/planned.hpp"
#include "planned_graph.hpp"
#include "planner/verify/validator.hpp"
#include "tape_support.hpp"

namespace stash::models {
namespace {

using planner::policy;
using testing::graph;
using ::testing::HasSubstr;
using testing::op_named;
using testing::refusal;
using dims = tape::dims;

dims output_shape(const graph& g, std::string_view name) {
  return testing::shape_of(g, op_named(g, name).outputs.at(0));
}

// ---- parameters ------------------------------------------------------------------------------------------

TEST(planned_images, published_parameter_counts) {
  // torchvision's models, and the released Llama 3.2 1B.
  EXPECT_EQ(mobilenet_v2({}).parameter_count(), 3'504'872);
  EXPECT_EQ(efficientnet_b0({}).parameter_count(), 5'288'548);
  EXPECT_EQ(convnext_tiny({}).parameter_count(), 28'589'128);
  EXPECT_EQ(vit("vit", {}).parameter_count(), 86'567'656);
  EXPECT_EQ(llama("llama", {}).parameter_count(), 1'235'814'400);
}

TEST(planned_images, parameters_of_the_unet_by_hand) {
  const auto block = [](std::int64_t in, std::int64_t out) { return 9 * (in + out) * out + 4 * out; };
  std::int64_t sum = block(3, 64);
  for (std::int64_t width = 64; width < 1024; width *= 2)
    sum += block(width, 2 * width) + (8 * width * width + width) + block(2 * width, width);
  EXPECT_EQ(unet2d({}).parameter_count(), sum + (64 + 1) * std::int64_t{2});
  EXPECT_EQ(unet2d({}).parameter_count(), 31'037'698);
}

TEST(planned_images, parameters_do_not_depend_on_sizes) {
  EXPECT_EQ(mobilenet_v2({.side = 33}).parameter_count(), 3'504'872);
  EXPECT_EQ(efficientnet_b0({.side = 33}).parameter_count(), 5'288'548);
  EXPECT_EQ(convnext_tiny({.side = 64}).parameter_count(), 28'589'128);
  EXPECT_EQ(llama("llama", {.steps = 7}).parameter_count(), 1'235'814'400);
  // One row of positions per patch, 196 of 224 x 224 and 576 of 384 x 384.
  EXPECT_EQ(vit("vit", {.side = 384}).parameter_count(), 86'567'656 + (576 - 196) * 768LL);
}

// ---- shapes of the publications --------------------------------------------------------------------------

TEST(planned_images, shapes_of_mobilenet_v2) {
  const graph g = mobilenet_v2({}).finish(1);
  EXPECT_EQ(output_shape(g, "stem"), (dims{112, 112, 32}));
  EXPECT_EQ(output_shape(g, "block1_1/project"), (dims{112, 112, 16}));
  EXPECT_EQ(output_shape(g, "block2_1/expand"), (dims{112, 112, 96}));
  EXPECT_EQ(output_shape(g, "block2_1/depthwise"), (dims{56, 56, 96}));
  EXPECT_EQ(output_shape(g, "block5_3/project"), (dims{14, 14, 96}));
  EXPECT_EQ(output_shape(g, "block7_1/project"), (dims{7, 7, 320}));
  EXPECT_EQ(output_shape(g, "head"), (dims{7, 7, 1280}));
  EXPECT_EQ(output_shape(g, "pool"), dims{1280});
  EXPECT_EQ(output_shape(g, "classifier"), dims{1000});
}

TEST(planned_images, shapes_of_efficientnet_b0) {
  const graph g = efficientnet_b0({}).finish(1);
  EXPECT_EQ(output_shape(g, "stem"), (dims{112, 112, 32}));
  EXPECT_EQ(output_shape(g, "block1_1/se/silu"), dims{8});
  EXPECT_EQ(output_shape(g, "block2_1/se/silu"), dims{4});
  EXPECT_EQ(output_shape(g, "block3_1/depthwise"), (dims{28, 28, 144}));
  EXPECT_EQ(g.at(op_named(g, "block3_1/depthwise").parameters[0]).shape, (dims{144, 1, 5, 5}));
  EXPECT_EQ(output_shape(g, "block5_1/project"), (dims{14, 14, 112}));
  EXPECT_EQ(output_shape(g, "block6_4/project"), (dims{7, 7, 192}));
  EXPECT_EQ(output_shape(g, "block7_1/project"), (dims{7, 7, 320}));
  EXPECT_EQ(output_shape(g, "head"), (dims{7, 7, 1280}));
}

TEST(planned_images, shapes_of_convnext_and_vit) {
  const graph c = convnext_tiny({}).finish(1);
  EXPECT_EQ(output_shape(c, "stem"), (dims{56, 56, 96}));
  EXPECT_EQ(output_shape(c, "stage1_1/fc1"), (dims{56, 56, 384}));
  EXPECT_EQ(output_shape(c, "stage2/downsample"), (dims{28, 28, 192}));
  EXPECT_EQ(output_shape(c, "stage3_9/depthwise"), (dims{14, 14, 384}));
  EXPECT_EQ(output_shape(c, "stage4_3/fc2"), (dims{7, 7, 768}));
  const graph v = default_graph(find("vit_b16"), 1);
  EXPECT_EQ(output_shape(v, "patches"), (dims{14, 14, 768}));
  EXPECT_EQ(output_shape(v, "token"), (dims{197, 768}));
  EXPECT_EQ(output_shape(v, "layer12/attention/scores"), (dims{12, 197, 197}));
  EXPECT_EQ(output_shape(v, "layer1/mlp/gelu"), (dims{197, 3072}));
}

TEST(planned_images, shapes_of_the_unet_and_llama) {
  const graph u = unet2d({}).finish(1);
  EXPECT_EQ(output_shape(u, "down1_2"), (dims{256, 256, 64}));
  EXPECT_EQ(output_shape(u, "pool4"), (dims{16, 16, 512}));
  EXPECT_EQ(output_shape(u, "down5_2"), (dims{16, 16, 1024}));
  EXPECT_EQ(output_shape(u, "up4"), (dims{32, 32, 512}));
  EXPECT_EQ(op_named(u, "up4_1").inputs.size(), 2U);
  EXPECT_EQ(output_shape(u, "classifier"), (dims{256, 256, 2}));
  const graph l = llama("llama", {}).finish(1);
  EXPECT_EQ(output_shape(l, "layer16/attention/q"), (dims{1024, 2048}));
  EXPECT_EQ(output_shape(l, "layer16/attention/k"), (dims{1024, 512}));
  EXPECT_EQ(output_shape(l, "layer16/attention/scores"), (dims{32, 1024, 1024}));
  EXPECT_EQ(output_shape(l, "layer1/mlp/product"), (dims{1024, 8192}));
  EXPECT_EQ(output_shape(l, "logits"), (dims{1024, 128'256}));
}

// Two multiplications and additions per weight and position, but for the embedding, whose rows are copied.
TEST(planned_images, operations_of_the_publications) {
  const auto flops = [](const graph& g, std::string_view label) {
    double sum = 0;
    for (const planner::op& o : g.ops)
      sum += o.stage == planner::op_stage::forward && o.label == label ? o.flops : 0;
    return sum;
  };
  const auto matrices = [&](const graph& g) { return flops(g, "conv2d") + flops(g, "linear"); };
  // torchvision states 0.30, 0.39, 4.46 and 17.56 billion multiplications of which ViT's attention is a part.
  EXPECT_NEAR(matrices(mobilenet_v2({}).finish(1)) / 2e9, 0.30, 0.005);
  EXPECT_NEAR(matrices(efficientnet_b0({}).finish(1)) / 2e9, 0.39, 0.005);
  EXPECT_NEAR(matrices(convnext_tiny({}).finish(1)) / 2e9, 4.46, 0.005);
  const graph v = vit("vit", {}).finish(1);
  EXPECT_NEAR((matrices(v) + flops(v, "attention_scores") + flops(v, "attention_context")) / 2e9, 17.56,
              0.02);
  const graph l = llama("llama", {.steps = 16}).finish(1);
  EXPECT_DOUBLE_EQ(matrices(l), 2.0 * 16 * (1'235'814'400 - (2 * 16 + 1) * 2048));
}

// ---- what plans keep -------------------------------------------------------------------------------------

struct kept_bytes {
  double before = 0, after = 0;
  double share() const { return after / before; }
};

// Of the maps whose name ends so.
kept_bytes kept(const graph& g, policy chosen, std::string_view ending = {}) {
  planner::plan_options options;
  options.chosen_policy = chosen;
  const planner::plan p = planner::make_plan(g, options);
  EXPECT_TRUE(planner::validate(p).empty());
  kept_bytes sum;
  for (const planner::storage_id i : g.storages.ids()) {
    if (!g.storages[i].name.ends_with(ending)) continue;
    sum.before += static_cast<double>(p.choices[i].bytes_before);
    sum.after += static_cast<double>(p.choices[i].bytes_after);
  }
  return sum;
}

double lossless_share(const graph& g) {
  return kept(g, policy::lossless).after / kept(g, policy::none).after;
}

TEST(planned_images, lossless_shares) {
  EXPECT_LE(lossless_share(mobilenet_v2({}).finish(32)), 0.525);
  EXPECT_LE(lossless_share(efficientnet_b0({}).finish(32)), 0.71);
  EXPECT_LE(lossless_share(convnext_tiny({}).finish(32)), 0.58);
  EXPECT_LE(lossless_share(vit("vit", {}).finish(32)), 0.69);
  EXPECT_LE(lossless_share(unet2d({}).finish(4)), 0.70);
  EXPECT_LE(lossless_share(llama("llama", {}).finish(1)), 0.86);
}

// A norm's output is computed again from its input, with the activation that it ends with.
TEST(planned_images, expanded_maps_of_mobilenet_are_kept_once) {
  const graph g = mobilenet_v2({}).finish(32);
  EXPECT_EQ(kept(g, policy::none, "/expand/bn").share(), 1.0);
  EXPECT_EQ(kept(g, policy::lossless, "/expand/bn").after, 0.0);
  EXPECT_EQ(kept(g, policy::lossless, "/expand").share(), 1.0);
}

TEST(planned_images, outputs_of_gelu_are_not_kept) {
  for (const graph& g : {convnext_tiny({}).finish(8), vit("vit", {}).finish(8)}) {
    EXPECT_EQ(kept(g, policy::none, "/gelu").share(), 1.0);
    EXPECT_EQ(kept(g, policy::lossless, "/gelu").after, 0.0);
  }
}

TEST(planned_images, rotary_and_the_product_of_shared_keys_keep_each_map_once) {
  const graph g = llama("llama", {.steps = 64}).finish(1);
  // Queries and keys are kept after they were turned, in the bytes of what they were before.
  for (const planner::storage& s : g.storages)
    EXPECT_FALSE(s.name.ends_with("attention/q") || s.name.ends_with("attention/k")) << s.name;
  EXPECT_EQ(kept(g, policy::none, "attention/k/rotary").after, 16.0 * 64 * 512 * 4);
  EXPECT_EQ(kept(g, policy::none, "attention/v").after, 16.0 * 64 * 512 * 4);
}

// ---- refusals --------------------------------------------------------------------------------------------

TEST(planned_images, sizes_that_do_not_fit_are_refused) {
  for (const std::int64_t side : {48, 16, 0, -32}) {
    EXPECT_THAT(refusal([&] { convnext_tiny({.side = side}); }),
                HasSubstr("side: expected a multiple of 32"));
  }
  for (const std::int64_t side : {24, 8, 0, -16}) {
    EXPECT_THAT(refusal([&] { unet2d({.side = side}); }), HasSubstr("side: expected a multiple of 16"));
    EXPECT_THAT(refusal([&] { vit("vit", {.side = side}); }), HasSubstr("side: expected a multiple of 16"));
  }
  EXPECT_THAT(refusal([] { vit("vit", {.patch = 0}); }), HasSubstr("vit: side"));
  EXPECT_THAT(refusal([] { vit("vit", {.heads = 5}); }), HasSubstr("heads"));
  for (const std::int64_t side : {0, -1}) {
    EXPECT_THAT(refusal([&] { mobilenet_v2({.side = side}); }), HasSubstr("'input'"));
    EXPECT_THAT(refusal([&] { efficientnet_b0({.side = side}); }), HasSubstr("'input'"));
  }
  EXPECT_THAT(refusal([] { llama("llama", {.key_heads = 5}); }), HasSubstr("llama: heads"));
  EXPECT_THAT(refusal([] { llama("llama", {.heads = 3}); }), HasSubstr("llama: heads"));
  EXPECT_THAT(refusal([] { llama("llama", {.heads = 0}); }), HasSubstr("llama: heads"));
  EXPECT_THAT(refusal([] { llama("llama", {.steps = 0}); }), HasSubstr("positive"));
}

}  // namespace
}  // namespace stash::models
