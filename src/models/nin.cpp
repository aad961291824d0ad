// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {
namespace {

// A convolution and two 1x1 convolutions after it: the "network in the network".
planner::node_id mlp_conv(planner::network& net, int stage, planner::node_id x, std::int64_t channels,
                          const window& first, std::int64_t last_channels) {
  x = conv_relu(net, fmt::format("conv{}", stage), x, channels, first);
  x = conv_relu(net, fmt::format("conv{}/mlp1", stage), x, channels, {.kernel = 1});
  return conv_relu(net, fmt::format("conv{}/mlp2", stage), x, last_channels, {.kernel = 1});
}

}  // namespace

// Lin, Chen and Yan, 2013; the ImageNet variant of the authors' released model.
planner::network nin(input_shape input, std::int64_t classes) {
  planner::network net("nin");
  auto x = net.input(input.height, input.width, input.channels);
  x = mlp_conv(net, 1, x, 96, {.kernel = 11, .stride = 4}, 96);
  x = net.max_pool("pool1", x, 3, 2);
  x = mlp_conv(net, 2, x, 256, {.kernel = 5, .padding = 2}, 256);
  x = net.max_pool("pool2", x, 3, 2);
  x = mlp_conv(net, 3, x, 384, {.kernel = 3, .padding = 1}, 384);
  x = net.max_pool("pool3", x, 3, 2);
  x = net.dropout("pool3/dropout", x, 0.5F);
  x = mlp_conv(net, 4, x, 1024, {.kernel = 3, .padding = 1}, classes);
  x = net.global_avg_pool("pool4", x);
  x = net.flatten("flatten", x);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace stash::models
