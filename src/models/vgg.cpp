// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <span>

#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {
namespace {

struct vgg_stage {
  int convolutions;
  std::int64_t channels;
};

planner::node_id vgg_features(planner::network& net, planner::node_id x, std::span<const vgg_stage> stages) {
  int number = 0;
  for (const vgg_stage& stage : stages) {
    ++number;
    for (int i = 1; i <= stage.convolutions; ++i) {
      x = conv_relu(net, fmt::format("conv{}_{}", number, i), x, stage.channels, {.kernel = 3, .padding = 1});
    }
    x = net.max_pool(fmt::format("pool{}", number), x, 2, 2);
  }
  return net.flatten("flatten", x);
}

}  // namespace

planner::network vgg_small(input_shape input, std::int64_t classes) {
  constexpr vgg_stage stages[] = {{2, 32}, {2, 64}, {2, 128}};
  planner::network net("vgg_small");
  auto x = vgg_features(net, net.input(input.height, input.width, input.channels), stages);
  x = dense_relu(net, "fc1", x, 256);
  x = net.dropout("fc1/dropout", x, 0.5F);
  x = net.dense("fc2", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

// Configuration D of Simonyan and Zisserman, 2014.
planner::network vgg16(input_shape input, std::int64_t classes) {
  constexpr vgg_stage stages[] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  planner::network net("vgg16");
  auto x = vgg_features(net, net.input(input.height, input.width, input.channels), stages);
  x = dense_relu(net, "fc6", x, 4096);
  x = net.dropout("fc6/dropout", x, 0.5F);
  x = dense_relu(net, "fc7", x, 4096);
  x = net.dropout("fc7/dropout", x, 0.5F);
  x = net.dense("fc8", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace stash::models
