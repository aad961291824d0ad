// SPDX-License-Identifier: Apache-2.0
#include "models/models.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "stash/error.hpp"
#include "tape_support.hpp"

namespace stash::models {
namespace {

using planner::network;
using planner::node;
using planner::node_kind;
using ::testing::HasSubstr;
using testing::refusal;
using dims = std::vector<std::int64_t>;

std::vector<model_info> with_forward_graphs() {
  std::vector<model_info> found;
  for (const model_info& info : all()) {
    if (info.build != nullptr) found.push_back(info);
  }
  return found;
}

network build_default(std::string_view name) {
  const model_info& info = find(name);
  return info.build(info.default_input, info.default_classes);
}

const node& node_named(const network& net, std::string_view name) {
  for (const node& n : net.nodes()) {
    if (n.name == name) return n;
  }
  throw std::out_of_range("no node " + std::string(name) + " in " + net.name());
}

std::int64_t elements(const node& n) {
  std::int64_t count = 1;
  for (const std::int64_t d : n.shape)
    count *= d;
  return count;
}

// Bytes per image of a node's output and inputs together, as f32.
std::int64_t operand_bytes(const network& net, std::string_view name) {
  const node& n = node_named(net, name);
  std::int64_t count = elements(n);
  for (const planner::node_id id : n.inputs)
    count += elements(net.at(id));
  return 4 * count;
}

struct layer_shape {
  std::string_view model;
  std::string_view node;
  dims shape;
};

// One layer per stage, from the tables of the papers.
const std::vector<layer_shape>& expected_shapes() {
  static const std::vector<layer_shape> shapes = {
      {"lenet", "conv1/relu", {28, 28, 16}},
      {"lenet", "pool1", {14, 14, 16}},
      {"lenet", "conv2/relu", {10, 10, 32}},
      {"lenet", "pool2", {5, 5, 32}},
      {"lenet", "flatten", {800}},
      {"lenet", "fc1/relu", {128}},
      {"lenet", "fc2", {10}},
      {"vgg_small", "conv1_2/relu", {28, 28, 32}},
      {"vgg_small", "conv2_2/relu", {14, 14, 64}},
      {"vgg_small", "conv3_2/relu", {7, 7, 128}},
      {"vgg_small", "pool3", {3, 3, 128}},
      {"vgg_small", "fc1/dropout", {256}},
      {"vgg_small", "fc2", {10}},
      {"resnet20", "conv1/relu", {32, 32, 16}},
      {"resnet20", "conv2_3/relu", {32, 32, 16}},
      {"resnet20", "conv3_1/shortcut/bn", {16, 16, 32}},
      {"resnet20", "conv3_3/relu", {16, 16, 32}},
      {"resnet20", "conv4_3/relu", {8, 8, 64}},
      {"resnet20", "flatten", {64}},
      {"resnet20", "fc", {10}},
      {"alexnet", "conv1/relu", {55, 55, 64}},
      {"alexnet", "pool1", {27, 27, 64}},
      {"alexnet", "conv2/relu", {27, 27, 192}},
      {"alexnet", "pool2", {13, 13, 192}},
      {"alexnet", "conv3/relu", {13, 13, 384}},
      {"alexnet", "conv4/relu", {13, 13, 256}},
      {"alexnet", "conv5/relu", {13, 13, 256}},
      {"alexnet", "flatten", {6 * 6 * 256}},
      {"alexnet", "fc7/relu", {4096}},
      {"alexnet", "fc8", {1000}},
      {"alexnet_lrn", "lrn1", {55, 55, 64}},
      {"alexnet_lrn", "lrn2", {27, 27, 192}},
      {"alexnet_lrn", "pool5", {6, 6, 256}},
      {"nin", "conv1/mlp2/relu", {55, 55, 96}},
      {"nin", "conv2/mlp2/relu", {27, 27, 256}},
      {"nin", "conv3/mlp2/relu", {13, 13, 384}},
      {"nin", "pool3/dropout", {6, 6, 384}},
      {"nin", "conv4/mlp1/relu", {6, 6, 1024}},
      {"nin", "pool4", {1, 1, 1000}},
      {"overfeat", "conv1/relu", {56, 56, 96}},
      {"overfeat", "pool1", {28, 28, 96}},
      {"overfeat", "conv2/relu", {24, 24, 256}},
      {"overfeat", "conv3/relu", {12, 12, 512}},
      {"overfeat", "conv4/relu", {12, 12, 1024}},
      {"overfeat", "pool5", {6, 6, 1024}},
      {"overfeat", "fc6/relu", {3072}},
      {"overfeat", "fc7/relu", {4096}},
      {"vgg16", "conv1_2/relu", {224, 224, 64}},
      {"vgg16", "conv2_2/relu", {112, 112, 128}},
      {"vgg16", "conv3_3/relu", {56, 56, 256}},
      {"vgg16", "conv4_3/relu", {28, 28, 512}},
      {"vgg16", "conv5_3/relu", {14, 14, 512}},
      {"vgg16", "pool5", {7, 7, 512}},
      {"vgg16", "fc7/dropout", {4096}},
      {"inception_v1", "conv1/relu", {112, 112, 64}},
      {"inception_v1", "conv2", {56, 56, 192}},
      {"inception_v1", "pool2", {28, 28, 192}},
      {"inception_v1", "inception_3a/relu", {28, 28, 256}},
      {"inception_v1", "inception_3b/relu", {28, 28, 480}},
      {"inception_v1", "pool3", {14, 14, 480}},
      {"inception_v1", "inception_4a/relu", {14, 14, 512}},
      {"inception_v1", "inception_4b/relu", {14, 14, 512}},
      {"inception_v1", "inception_4c/relu", {14, 14, 512}},
      {"inception_v1", "inception_4d/relu", {14, 14, 528}},
      {"inception_v1", "inception_4e/relu", {14, 14, 832}},
      {"inception_v1", "pool4", {7, 7, 832}},
      {"inception_v1", "inception_5a/relu", {7, 7, 832}},
      {"inception_v1", "inception_5b/relu", {7, 7, 1024}},
      {"inception_v1", "pool5/dropout", {1024}},
      {"resnet50", "conv1/relu", {112, 112, 64}},
      {"resnet50", "pool1", {56, 56, 64}},
      {"resnet50", "conv2_3/relu", {56, 56, 256}},
      {"resnet50", "conv3_1/a/relu", {56, 56, 128}},
      {"resnet50", "conv3_1/b/relu", {28, 28, 128}},
      {"resnet50", "conv3_4/relu", {28, 28, 512}},
      {"resnet50", "conv4_6/relu", {14, 14, 1024}},
      {"resnet50", "conv5_3/relu", {7, 7, 2048}},
      {"resnet50", "flatten", {2048}},
      {"resnet101", "conv4_23/relu", {14, 14, 1024}},
      {"resnet101", "conv5_3/relu", {7, 7, 2048}},
      {"resnet152", "conv3_8/relu", {28, 28, 512}},
      {"resnet152", "conv4_36/relu", {14, 14, 1024}},
      {"resnet152", "conv5_3/relu", {7, 7, 2048}},
      {"resnet200", "conv3_24/relu", {28, 28, 512}},
      {"resnet200", "conv4_36/relu", {14, 14, 1024}},
      {"resnet200", "conv5_3/relu", {7, 7, 2048}},
      {"resnet1001", "conv3_8/relu", {28, 28, 512}},
      {"resnet1001", "conv4_319/relu", {14, 14, 1024}},
      {"resnet1517", "conv4_491/relu", {14, 14, 1024}},
      {"resnet2000", "conv4_652/relu", {14, 14, 1024}},
      {"resnet2000", "conv5_3/relu", {7, 7, 2048}},
      {"inception_v3", "conv1a/relu", {149, 149, 32}},
      {"inception_v3", "conv2a/relu", {147, 147, 32}},
      {"inception_v3", "conv2b/relu", {147, 147, 64}},
      {"inception_v3", "pool1", {73, 73, 64}},
      {"inception_v3", "conv3b/relu", {73, 73, 80}},
      {"inception_v3", "conv4a/relu", {71, 71, 192}},
      {"inception_v3", "pool2", {35, 35, 192}},
      {"inception_v3", "mixed5b/relu", {35, 35, 256}},
      {"inception_v3", "mixed5c/relu", {35, 35, 288}},
      {"inception_v3", "mixed5d/relu", {35, 35, 288}},
      {"inception_v3", "mixed6a/concat", {17, 17, 768}},
      {"inception_v3", "mixed6e/relu", {17, 17, 768}},
      {"inception_v3", "mixed7a/concat", {8, 8, 1280}},
      {"inception_v3", "mixed7c/relu", {8, 8, 2048}},
      {"inception_v3", "flatten/dropout", {2048}},
  };
  return shapes;
}

TEST(models, shapes_of_every_stage) {
  for (const layer_shape& want : expected_shapes()) {
    SCOPED_TRACE(std::string(want.model) + " " + std::string(want.node));
    EXPECT_EQ(node_named(build_default(want.model), want.node).shape, want.shape);
  }
}

TEST(models, parameter_counts) {
  const auto count = [](std::string_view name) { return planner::parameter_count(build_default(name)); };
  // torchvision's tables of model weights give these seven.
  EXPECT_EQ(count("alexnet"), 61'100'840);
  EXPECT_EQ(count("vgg16"), 138'357'544);
  EXPECT_EQ(count("resnet50"), 25'557'032);
  EXPECT_EQ(count("resnet101"), 44'549'160);
  EXPECT_EQ(count("resnet152"), 60'192'808);
  EXPECT_EQ(count("inception_v3"), 23'834'568);
  EXPECT_EQ(count("alexnet_lrn"), 61'100'840);
  // OverFeat paper, table 3: 145 million parameters for the fast model.
  EXPECT_EQ(count("overfeat"), 145'920'872);
  // He et al., 2015, table 6: 0.27 million, plus the two projections 16*32 and 32*64 with their norms.
  EXPECT_EQ(count("resnet20"), 269'722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64);
  // The released Caffe model of Network in Network is a 29 MiB file of f32 values.
  EXPECT_EQ(count("nin"), 7'595'176);
  // Table 1 of the GoogLeNet paper in thousands of weights, without the fc: 2.7 + 112 + (159 + 380) + (364 +
  // 437 + 463 + 580 + 840) + (1072 + 1388); 1000K more for the linear layer, and biases.
  EXPECT_EQ(count("inception_v1"), 6'998'552);
  // By hand: 5*5*16+16 + 5*5*16*32+32 + 800*128+128 + 128*10+10.
  EXPECT_EQ(count("lenet"), 416 + 12'832 + 102'528 + 1'290);
  // By hand: 3x3 convolutions 1-32-32-64-64-128-128, then 1152-256-10.
  EXPECT_EQ(count("vgg_small"), 320 + 9'248 + 18'496 + 36'928 + 73'856 + 147'584 + 295'168 + 2'570);
}

// torchvision's 27,161,264 of the Inception v3 that it trains.
TEST(models, auxiliary_classifier) {
  const network net = inception_v3_auxiliary({299, 299, 3}, 1000);
  EXPECT_EQ(planner::parameter_count(net), 27'161'264);
  EXPECT_EQ(node_named(net, "auxiliary/pool").shape, (dims{5, 5, 768}));
  EXPECT_EQ(node_named(net, "auxiliary/conv1/relu").shape, (dims{1, 1, 768}));
  EXPECT_EQ(node_named(net, "logits").shape, dims{1000});
}

// What a bottleneck adds that keeps its width w: 1x1 from 4w, 3x3, 1x1 to 4w, and scale and shift of each.
std::int64_t bottleneck_parameters(std::int64_t w) {
  return 4 * w * w + 9 * w * w + 4 * w * w + 2 * (w + w + 4 * w);
}

TEST(models, deep_resnets) {
  const auto count = [](std::string_view name) { return planner::parameter_count(build_default(name)); };
  EXPECT_EQ(count("resnet200"), count("resnet152") + 16 * bottleneck_parameters(128));
  // 3 layers per block: (N - 2) / 3 blocks, 14 of them outside conv4.
  EXPECT_EQ(count("resnet1001"), count("resnet152") + (333 - 14 - 36) * bottleneck_parameters(256));
  EXPECT_EQ(count("resnet1517"), count("resnet152") + (505 - 14 - 36) * bottleneck_parameters(256));
  EXPECT_EQ(count("resnet2000"), count("resnet152") + (666 - 14 - 36) * bottleneck_parameters(256));
}

TEST(models, resnet_of_any_depth) {
  constexpr input_shape image{224, 224, 3};
  const network same = resnet_n(152, image, 1000);
  EXPECT_EQ(same.name(), "resnet152");
  EXPECT_EQ(same.nodes().size(), build_default("resnet152").nodes().size());
  EXPECT_EQ(resnet_n(47, image, 1000).name(), "resnet47");
  EXPECT_EQ(resnet_n(48, image, 1000).name(), "resnet47");
  EXPECT_EQ(resnet_n(49, image, 1000).name(), "resnet47");
  EXPECT_EQ(resnet_n(50, image, 1000).name(), "resnet50");
  // Layers with weights, but for the projections.
  const network net = resnet_n(200, image, 1000);
  const auto layers = std::count_if(net.nodes().begin(), net.nodes().end(), [](const node& n) {
    const bool weighted = n.kind == node_kind::conv2d || n.kind == node_kind::dense;
    return weighted && n.name.find("shortcut") == std::string::npos;
  });
  EXPECT_EQ(layers, 200);
}

// Each module of the GoogLeNet table, without rounding: the sums above could hide two errors.
TEST(models, inception_modules_follow_the_table) {
  struct row {
    std::string_view name;
    std::int64_t channels[6];
  };
  constexpr row table[] = {
      {"3a", {64, 96, 128, 16, 32, 32}},     {"3b", {128, 128, 192, 32, 96, 64}},
      {"4a", {192, 96, 208, 16, 48, 64}},    {"4b", {160, 112, 224, 24, 64, 64}},
      {"4c", {128, 128, 256, 24, 64, 64}},   {"4d", {112, 144, 288, 32, 64, 64}},
      {"4e", {256, 160, 320, 32, 128, 128}}, {"5a", {256, 160, 320, 32, 128, 128}},
      {"5b", {384, 192, 384, 48, 128, 128}},
  };
  constexpr std::string_view layers[] = {"1x1", "3x3_reduce", "3x3", "5x5_reduce", "5x5", "pool_proj"};
  const network net = build_default("inception_v1");
  for (const row& module : table) {
    for (std::size_t i = 0; i < std::size(layers); ++i) {
      const std::string name = "inception_" + std::string(module.name) + "/" + std::string(layers[i]);
      EXPECT_EQ(node_named(net, name).shape.back(), module.channels[i]) << name;
    }
  }
}

// Planners rely on these forms to join ops.
TEST(models, canonical_forms) {
  for (const model_info& info : with_forward_graphs()) {
    const network net = info.build(info.default_input, info.default_classes);
    for (const node& n : net.nodes()) {
      SCOPED_TRACE(std::string(info.name) + " " + n.name);
      std::vector<node_kind> from;
      for (const planner::node_id id : n.inputs)
        from.push_back(net.at(id).kind);
      switch (n.kind) {
        case node_kind::batch_norm: {
          const node& x = net.at(n.inputs.front());
          const std::vector<planner::node_id> convolutions =
              x.kind == node_kind::concat ? x.inputs : std::vector<planner::node_id>{n.inputs.front()};
          for (const planner::node_id id : convolutions) {
            EXPECT_EQ(net.at(id).kind, node_kind::conv2d);
            EXPECT_FALSE(net.at(id).attributes.bias);
          }
          break;
        }
        case node_kind::concat:
          if (from.back() == node_kind::max_pool) {
            EXPECT_EQ(from, (std::vector{node_kind::relu, node_kind::relu, node_kind::max_pool}));
          } else {
            EXPECT_EQ(from, std::vector<node_kind>(from.size(), node_kind::conv2d));
            EXPECT_GE(from.size(), 4U);
          }
          break;
        case node_kind::add:
          EXPECT_EQ(from.front(), node_kind::batch_norm);
          break;
        case node_kind::relu:
          EXPECT_TRUE(from.front() == node_kind::conv2d || from.front() == node_kind::batch_norm ||
                      from.front() == node_kind::add || from.front() == node_kind::concat ||
                      from.front() == node_kind::dense);
          break;
        case node_kind::softmax_cross_entropy:
          EXPECT_EQ(&n, &net.nodes().back());
          break;
        default:
          break;
      }
    }
  }
}

// Every map but the loss has a reader; a branch left dangling would train but do nothing.
TEST(models, no_dead_ends) {
  for (const model_info& info : with_forward_graphs()) {
    const network net = info.build(info.default_input, info.default_classes);
    std::set<planner::node_id> read;
    for (const node& n : net.nodes())
      read.insert(n.inputs.begin(), n.inputs.end());
    EXPECT_EQ(read.size(), net.nodes().size() - 1) << info.name;
  }
}

TEST(models, registry) {
  std::set<std::string_view> names;
  for (const model_info& info : all()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_FALSE(info.description.empty());
    EXPECT_EQ(&find(info.name), &info);
    EXPECT_NE(info.build == nullptr, info.make_graph == nullptr);
    EXPECT_FALSE(info.trainable && info.build == nullptr);
    if (info.build == nullptr) continue;
    const network net = info.build(info.default_input, info.default_classes);
    EXPECT_EQ(net.name(), info.name);
    EXPECT_EQ(net.nodes().back().kind, node_kind::softmax_cross_entropy);
    EXPECT_EQ(net.nodes().back().shape, dims{info.default_classes});
    const input_shape& in = info.default_input;
    EXPECT_EQ(net.nodes().front().shape, (dims{in.height, in.width, in.channels}));
    // The CPU executor has no response normalisation.
    const bool has_lrn = std::any_of(net.nodes().begin(), net.nodes().end(),
                                     [](const node& n) { return n.kind == node_kind::lrn; });
    EXPECT_FALSE(info.trainable && has_lrn);
    EXPECT_EQ(has_lrn, info.name == "alexnet_lrn");
  }
  EXPECT_EQ(names.size(), 30U);
}

TEST(models, trainable_ones_take_small_images) {
  std::set<std::string_view> trainable;
  for (const model_info& info : all()) {
    if (!info.trainable) continue;
    trainable.insert(info.name);
    for (const input_shape& in : {input_shape{28, 28, 1}, input_shape{32, 32, 3}}) {
      for (const std::int64_t classes : {2, 10, 100}) {
        const network net = info.build(in, classes);
        EXPECT_EQ(net.nodes().front().shape, (dims{in.height, in.width, in.channels})) << info.name;
        EXPECT_EQ(net.nodes().back().shape, dims{classes}) << info.name;
      }
    }
  }
  EXPECT_EQ(trainable, (std::set<std::string_view>{"lenet", "vgg_small", "resnet20"}));
  EXPECT_EQ(node_named(lenet({32, 32, 3}, 10), "pool2").shape, (dims{6, 6, 32}));
  EXPECT_EQ(node_named(vgg_small({32, 32, 3}, 10), "pool3").shape, (dims{4, 4, 128}));
  EXPECT_EQ(node_named(resnet20({28, 28, 1}, 10), "conv4_3/relu").shape, (dims{7, 7, 64}));
}

// The largest set of tensors that one op must have at once, per image: input and output of the op named.
TEST(models, working_sets) {
  EXPECT_EQ(operand_bytes(build_default("alexnet"), "pool1"), 4 * (55 * 55 + 27 * 27) * 64);   // 0.961 MB
  EXPECT_EQ(operand_bytes(build_default("alexnet_lrn"), "lrn1"), 4 * 2 * 55 * 55 * 64);        // 1.549 MB
  EXPECT_EQ(operand_bytes(build_default("nin"), "conv1/mlp1"), 4 * 2 * 55 * 55 * 96);          // 2.32 MB
  EXPECT_EQ(operand_bytes(build_default("overfeat"), "pool1"), 4 * (56 * 56 + 28 * 28) * 96);  // 1.505 MB
  EXPECT_EQ(operand_bytes(build_default("vgg16"), "conv1_2"), 4 * 2 * 224 * 224 * 64);         // 25.7 MB
  EXPECT_EQ(operand_bytes(build_default("inception_v1"), "pool1"),
            4 * (112 * 112 + 56 * 56) * 64);                                                  // 4.01 MB
  EXPECT_EQ(operand_bytes(build_default("resnet50"), "conv2_1/add"), 4 * 3 * 56 * 56 * 256);  // 9.63 MB
}

TEST(models, wrong_inputs_name_the_node) {
  EXPECT_THAT(refusal([] { alexnet({16, 16, 3}, 1000); }), HasSubstr("node '"));
  EXPECT_THAT(refusal([] { vgg16({16, 16, 3}, 1000); }), HasSubstr("node 'pool5'"));
  EXPECT_THAT(refusal([] { vgg_small({4, 4, 3}, 10); }), HasSubstr("node 'pool3'"));
  EXPECT_THAT(refusal([] { lenet({8, 8, 1}, 10); }), HasSubstr("node 'conv2'"));
  EXPECT_THAT(refusal([] { overfeat({40, 40, 3}, 1000); }), HasSubstr("node 'conv2'"));
  EXPECT_THAT(refusal([] { inception_v3({64, 64, 3}, 1000); }), HasSubstr("node 'mixed7a/"));
  EXPECT_THAT(refusal([] { resnet_n(46, {224, 224, 3}, 1000); }), HasSubstr("expected 47 to 100000, got 46"));
  EXPECT_THAT(refusal([] { resnet_n(100'001, {224, 224, 3}, 1000); }), HasSubstr("depth"));
  for (const model_info& info : with_forward_graphs()) {
    SCOPED_TRACE(info.name);
    const input_shape in = info.default_input;
    EXPECT_THAT(refusal([&] { info.build({0, in.width, in.channels}, 10); }), HasSubstr("node 'input'"));
    EXPECT_THAT(refusal([&] { info.build({in.height, in.width, -1}, 10); }), HasSubstr("node 'input'"));
    EXPECT_THAT(refusal([&] { info.build(in, 0); }), HasSubstr("expected at least 1, got 0"));
  }
}

TEST(models, unknown_name_lists_the_known_ones) {
  const std::string message = refusal([] { find("resnet51"); });
  EXPECT_THAT(message, HasSubstr("'resnet51'"));
  for (const model_info& info : all())
    EXPECT_THAT(message, HasSubstr(info.name));
  EXPECT_THAT(refusal([] { find(""); }), HasSubstr("lenet"));
}

}  // namespace
}  // namespace stash::models
