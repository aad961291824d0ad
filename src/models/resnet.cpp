// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "models/blocks.hpp"
#include "models/models.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

using planner::network;
using planner::node_id;

// A 1x1 projection where the shape changes, the map itself elsewhere.
node_id shortcut(network& net, const std::string& block, node_id x, std::int64_t channels,
                 std::int32_t stride) {
  if (stride == 1 && net.at(x).shape.back() == channels) return x;
  return conv_norm(net, block + "/shortcut", x, channels, {.kernel = 1, .stride = stride});
}

node_id join(network& net, const std::string& block, node_id branch, node_id bypass) {
  return net.relu(block + "/relu", net.add(block + "/add", branch, bypass));
}

node_id basic_block(network& net, const std::string& block, node_id x, std::int64_t channels,
                    std::int32_t stride) {
  auto y = conv_norm_relu(net, block + "/a", x, channels, {.kernel = 3, .stride = stride, .padding = 1});
  y = conv_norm(net, block + "/b", y, channels, {.kernel = 3, .padding = 1});
  return join(net, block, y, shortcut(net, block, x, channels, stride));
}

// The stride is in the 3x3 convolution, as in today's implementations, not in the first 1x1.
node_id bottleneck(network& net, const std::string& block, node_id x, std::int64_t width,
                   std::int32_t stride) {
  const std::int64_t channels = 4 * width;
  auto y = conv_norm_relu(net, block + "/a", x, width, {.kernel = 1});
  y = conv_norm_relu(net, block + "/b", y, width, {.kernel = 3, .stride = stride, .padding = 1});
  y = conv_norm(net, block + "/c", y, channels, {.kernel = 1});
  return join(net, block, y, shortcut(net, block, x, channels, stride));
}

void classifier(network& net, node_id x, std::int64_t classes) {
  x = net.global_avg_pool("pool5", x);
  x = net.flatten("flatten", x);
  x = net.dense("fc", x, classes);
  net.softmax_cross_entropy("loss", x);
}

network bottleneck_resnet(std::string name, std::array<int, 4> blocks, input_shape input,
                          std::int64_t classes) {
  network net(std::move(name));
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_norm_relu(net, "conv1", x, 64, {.kernel = 7, .stride = 2, .padding = 3});
  x = net.max_pool("pool1", x, 3, 2, 1);
  std::int64_t width = 64;
  for (int stage = 2; stage <= 5; ++stage, width *= 2) {
    for (int i = 1; i <= blocks[static_cast<std::size_t>(stage - 2)]; ++i) {
      x = bottleneck(net, fmt::format("conv{}_{}", stage, i), x, width, stage > 2 && i == 1 ? 2 : 1);
    }
  }
  classifier(net, x, classes);
  return net;
}

}  // namespace

// He et al., 2015, section 4.2, with projections where the shape changes.
network resnet20(input_shape input, std::int64_t classes) {
  network net("resnet20");
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_norm_relu(net, "conv1", x, 16, {.kernel = 3, .padding = 1});
  std::int64_t width = 16;
  for (int stage = 2; stage <= 4; ++stage, width *= 2) {
    for (int i = 1; i <= 3; ++i) {
      x = basic_block(net, fmt::format("conv{}_{}", stage, i), x, width, stage > 2 && i == 1 ? 2 : 1);
    }
  }
  classifier(net, x, classes);
  return net;
}

network resnet50(input_shape input, std::int64_t classes) {
  return bottleneck_resnet("resnet50", {3, 4, 6, 3}, input, classes);
}

network resnet101(input_shape input, std::int64_t classes) {
  return bottleneck_resnet("resnet101", {3, 4, 23, 3}, input, classes);
}

network resnet152(input_shape input, std::int64_t classes) {
  return bottleneck_resnet("resnet152", {3, 8, 36, 3}, input, classes);
}

// The stages of He et al., 2016 ("Identity Mappings"), table 5; the order within a block stays that of 2015.
network resnet200(input_shape input, std::int64_t classes) {
  return bottleneck_resnet("resnet200", {3, 24, 36, 3}, input, classes);
}

// A bottleneck has three layers; the first convolution and the classifier are two more.
network resnet_n(std::int64_t depth, input_shape input, std::int64_t classes) {
  constexpr std::array outer{3, 8, 3};
  constexpr std::int64_t others = outer[0] + outer[1] + outer[2];
  constexpr std::int64_t least = 3 * (others + 1) + 2, most = 100'000;
  if (depth < least || depth > most) {
    throw error(errc::invalid_argument,
                fmt::format("models::resnet_n: depth: expected {} to {}, got {}", least, most, depth));
  }
  const std::int64_t blocks = (depth - 2) / 3;
  return bottleneck_resnet(fmt::format("resnet{}", 3 * blocks + 2),
                           {outer[0], outer[1], static_cast<int>(blocks - others), outer[2]}, input, classes);
}

network resnet1001(input_shape input, std::int64_t classes) {
  return resnet_n(1001, input, classes);
}

network resnet1517(input_shape input, std::int64_t classes) {
  return resnet_n(1517, input, classes);
}

network resnet2000(input_shape input, std::int64_t classes) {
  return resnet_n(2000, input, classes);
}

}  // namespace stash::models
