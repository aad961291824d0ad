// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {
namespace {

using planner::network;
using planner::node_id;

// Output channels of a module's convolutions, in the order of table 1 of the paper.
struct module_channels {
  std::int64_t conv1x1, reduce3x3, conv3x3, reduce5x5, conv5x5, pool_projection;
};

// One ReLU after the concatenation is the same function as one per branch before it, and lets the branches
// write straight into the joined map.
node_id module(network& net, const std::string& suffix, node_id x, const module_channels& c) {
  const std::string name = "inception_" + suffix;
  const auto one = conv(net, name + "/1x1", x, c.conv1x1, {.kernel = 1});
  auto three = conv_relu(net, name + "/3x3_reduce", x, c.reduce3x3, {.kernel = 1});
  three = conv(net, name + "/3x3", three, c.conv3x3, {.kernel = 3, .padding = 1});
  auto five = conv_relu(net, name + "/5x5_reduce", x, c.reduce5x5, {.kernel = 1});
  five = conv(net, name + "/5x5", five, c.conv5x5, {.kernel = 5, .padding = 2});
  auto pooled = net.max_pool(name + "/pool", x, 3, 1, 1);
  pooled = conv(net, name + "/pool_proj", pooled, c.pool_projection, {.kernel = 1});
  return net.relu(name + "/relu", net.concat(name + "/concat", {one, three, five, pooled}));
}

node_id halve(network& net, const std::string& name, node_id x) {
  return net.max_pool(name, x, 3, 2, 0, true);
}

}  // namespace

// Szegedy et al., 2014 (GoogLeNet), main tower, without the two local response normalisations, as most later
// implementations have it: they hold no parameters and later work found no use in them.
network inception_v1(input_shape input, std::int64_t classes) {
  network net("inception_v1");
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_relu(net, "conv1", x, 64, {.kernel = 7, .stride = 2, .padding = 3});
  x = halve(net, "pool1", x);
  x = conv_relu(net, "conv2_reduce", x, 64, {.kernel = 1});
  x = conv_relu(net, "conv2", x, 192, {.kernel = 3, .padding = 1});
  x = halve(net, "pool2", x);
  x = module(net, "3a", x, {64, 96, 128, 16, 32, 32});
  x = module(net, "3b", x, {128, 128, 192, 32, 96, 64});
  x = halve(net, "pool3", x);
  x = module(net, "4a", x, {192, 96, 208, 16, 48, 64});
  x = module(net, "4b", x, {160, 112, 224, 24, 64, 64});
  x = module(net, "4c", x, {128, 128, 256, 24, 64, 64});
  x = module(net, "4d", x, {112, 144, 288, 32, 64, 64});
  x = module(net, "4e", x, {256, 160, 320, 32, 128, 128});
  x = halve(net, "pool4", x);
  x = module(net, "5a", x, {256, 160, 320, 32, 128, 128});
  x = module(net, "5b", x, {384, 192, 384, 48, 128, 128});
  x = net.global_avg_pool("pool5", x);
  x = net.flatten("flatten", x);
  x = net.dropout("pool5/dropout", x, 0.4F);
  x = net.dense("fc", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace stash::models
