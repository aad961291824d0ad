// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {
namespace {

// With the constants of Krizhevsky et al., 2012; theirs multiply the sum, the builder's alpha the mean.
planner::node_id response_norm(planner::network& net, const std::string& name, planner::node_id x) {
  return net.lrn(name, x, 5, 5 * 1e-4F, 0.75F, 2.0F);
}

// The single-tower variant of Krizhevsky, "One weird trick", 2014.
planner::network build(std::string name, bool normalised, input_shape input, std::int64_t classes) {
  planner::network net(std::move(name));
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_relu(net, "conv1", x, 64, {.kernel = 11, .stride = 4, .padding = 2});
  if (normalised) x = response_norm(net, "lrn1", x);
  x = net.max_pool("pool1", x, 3, 2);
  x = conv_relu(net, "conv2", x, 192, {.kernel = 5, .padding = 2});
  if (normalised) x = response_norm(net, "lrn2", x);
  x = net.max_pool("pool2", x, 3, 2);
  x = conv_relu(net, "conv3", x, 384, {.kernel = 3, .padding = 1});
  x = conv_relu(net, "conv4", x, 256, {.kernel = 3, .padding = 1});
  x = conv_relu(net, "conv5", x, 256, {.kernel = 3, .padding = 1});
  x = net.max_pool("pool5", x, 3, 2);
  x = net.flatten("flatten", x);
  x = net.dropout("pool5/dropout", x, 0.5F);
  x = dense_relu(net, "fc6", x, 4096);
  x = net.dropout("fc6/dropout", x, 0.5F);
  x = dense_relu(net, "fc7", x, 4096);
  x = net.dense("fc8", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace

planner::network alexnet(input_shape input, std::int64_t classes) {
  return build("alexnet", false, input, classes);
}

planner::network alexnet_lrn(input_shape input, std::int64_t classes) {
  return build("alexnet_lrn", true, input, classes);
}

}  // namespace stash::models
