// SPDX-License-Identifier: Apache-2.0
#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {

// The fast model of Sermanet et al., 2013, table 1.
planner::network overfeat(input_shape input, std::int64_t classes) {
  planner::network net("overfeat");
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_relu(net, "conv1", x, 96, {.kernel = 11, .stride = 4});
  x = net.max_pool("pool1", x, 2, 2);
  x = conv_relu(net, "conv2", x, 256, {.kernel = 5});
  x = net.max_pool("pool2", x, 2, 2);
  x = conv_relu(net, "conv3", x, 512, {.kernel = 3, .padding = 1});
  x = conv_relu(net, "conv4", x, 1024, {.kernel = 3, .padding = 1});
  x = conv_relu(net, "conv5", x, 1024, {.kernel = 3, .padding = 1});
  x = net.max_pool("pool5", x, 2, 2);
  x = net.flatten("flatten", x);
  x = dense_relu(net, "fc6", x, 3072);
  x = net.dropout("fc6/dropout", x, 0.5F);
  x = dense_relu(net, "fc7", x, 4096);
  x = net.dropout("fc7/dropout", x, 0.5F);
  x = net.dense("fc8", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace stash::models
