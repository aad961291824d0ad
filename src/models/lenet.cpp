// SPDX-License-Identifier: Apache-2.0
#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {

// LeCun et al., 1998, with ReLU and max-pooling in place of the squashing functions and trained averages.
planner::network lenet(input_shape input, std::int64_t classes) {
  planner::network net("lenet");
  auto x = net.input(input.height, input.width, input.channels);
  x = conv_relu(net, "conv1", x, 16, {.kernel = 5, .padding = 2});
  x = net.max_pool("pool1", x, 2, 2);
  x = conv_relu(net, "conv2", x, 32, {.kernel = 5});
  x = net.max_pool("pool2", x, 2, 2);
  x = net.flatten("flatten", x);
  x = dense_relu(net, "fc1", x, 128);
  x = net.dense("fc2", x, classes);
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace stash::models
