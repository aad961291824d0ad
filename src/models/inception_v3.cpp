// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include "models/blocks.hpp"
#include "models/models.hpp"

namespace stash::models {
namespace {

using planner::network;
using planner::node_id;

constexpr float norm_epsilon = 1e-3F;

// Rows, columns; odd kernels, padded so that the map keeps its size unless `padded` is false.
struct filter {
  std::int32_t rows = 1, columns = 1;
  std::int32_t stride = 1;
  bool padded = true;
};

constexpr filter point{};
constexpr filter square3{.rows = 3, .columns = 3};
constexpr filter square5{.rows = 5, .columns = 5};
constexpr filter row3{.rows = 1, .columns = 3}, column3{.rows = 3, .columns = 1};
constexpr filter row7{.rows = 1, .columns = 7}, column7{.rows = 7, .columns = 1};
constexpr filter halving{.rows = 3, .columns = 3, .stride = 2, .padded = false};

node_id convolution(network& net, const std::string& name, node_id x, std::int64_t channels,
                    const filter& f) {
  const std::int32_t rows = f.padded ? f.rows / 2 : 0, columns = f.padded ? f.columns / 2 : 0;
  return net.conv2d(name, x, channels, {f.rows, f.columns}, {f.stride, f.stride}, {rows, columns}, false);
}

node_id norm_relu(network& net, const std::string& name, node_id x) {
  return net.relu(name + "/relu", net.batch_norm(name + "/bn", x, norm_epsilon));
}

node_id layer(network& net, const std::string& name, node_id x, std::int64_t channels, const filter& f) {
  return norm_relu(net, name, convolution(net, name, x, channels, f));
}

// A norm looks at each channel alone: one norm and one ReLU after the concatenation are the same function as
// one of each per branch before it, and can be computed again from the joined map.
node_id join(network& net, const std::string& name, const std::vector<node_id>& branches) {
  return norm_relu(net, name, net.concat(name + "/concat", branches));
}

node_id pooled_branch(network& net, const std::string& name, node_id x, std::int64_t channels) {
  return convolution(net, name + "/pool_proj", net.avg_pool(name + "/pool", x, 3, 1, 1), channels, point);
}

// Modules are named after torchvision's; figure numbers are those of the paper.

// Figure 5, the second 5x5 as two 3x3.
node_id module_a(network& net, const std::string& name, node_id x, std::int64_t pool_channels) {
  const auto one = convolution(net, name + "/1x1", x, 64, point);
  auto five = layer(net, name + "/5x5_reduce", x, 48, point);
  five = convolution(net, name + "/5x5", five, 64, square5);
  auto twice = layer(net, name + "/double3x3_reduce", x, 64, point);
  twice = layer(net, name + "/double3x3_1", twice, 96, square3);
  twice = convolution(net, name + "/double3x3_2", twice, 96, square3);
  return join(net, name, {one, five, twice, pooled_branch(net, name, x, pool_channels)});
}

// Figure 10: from 35x35 to 17x17.
node_id module_b(network& net, const std::string& name, node_id x) {
  const auto three = layer(net, name + "/3x3", x, 384, halving);
  auto twice = layer(net, name + "/double3x3_reduce", x, 64, point);
  twice = layer(net, name + "/double3x3_1", twice, 96, square3);
  twice = layer(net, name + "/double3x3_2", twice, 96, halving);
  return net.concat(name + "/concat", {three, twice, net.max_pool(name + "/pool", x, 3, 2)});
}

// Figure 6: 7x7 as 1x7 and 7x1.
node_id module_c(network& net, const std::string& name, node_id x, std::int64_t width) {
  const auto one = convolution(net, name + "/1x1", x, 192, point);
  auto seven = layer(net, name + "/7x7_reduce", x, width, point);
  seven = layer(net, name + "/7x7_1", seven, width, row7);
  seven = convolution(net, name + "/7x7_2", seven, 192, column7);
  auto twice = layer(net, name + "/double7x7_reduce", x, width, point);
  twice = layer(net, name + "/double7x7_1", twice, width, column7);
  twice = layer(net, name + "/double7x7_2", twice, width, row7);
  twice = layer(net, name + "/double7x7_3", twice, width, column7);
  twice = convolution(net, name + "/double7x7_4", twice, 192, row7);
  return join(net, name, {one, seven, twice, pooled_branch(net, name, x, 192)});
}

// From 17x17 to 8x8.
node_id module_d(network& net, const std::string& name, node_id x) {
  auto three = layer(net, name + "/3x3_reduce", x, 192, point);
  three = layer(net, name + "/3x3", three, 320, halving);
  auto seven = layer(net, name + "/7x7x3_reduce", x, 192, point);
  seven = layer(net, name + "/7x7x3_1", seven, 192, row7);
  seven = layer(net, name + "/7x7x3_2", seven, 192, column7);
  seven = layer(net, name + "/7x7x3_3", seven, 192, halving);
  return net.concat(name + "/concat", {three, seven, net.max_pool(name + "/pool", x, 3, 2)});
}

// Figure 7: branches that fan out.
node_id module_e(network& net, const std::string& name, node_id x) {
  const auto one = convolution(net, name + "/1x1", x, 320, point);
  const auto three = layer(net, name + "/3x3_reduce", x, 384, point);
  const auto three_row = convolution(net, name + "/3x3_row", three, 384, row3);
  const auto three_column = convolution(net, name + "/3x3_column", three, 384, column3);
  auto twice = layer(net, name + "/double3x3_reduce", x, 448, point);
  twice = layer(net, name + "/double3x3_1", twice, 384, square3);
  const auto twice_row = convolution(net, name + "/double3x3_row", twice, 384, row3);
  const auto twice_column = convolution(net, name + "/double3x3_column", twice, 384, column3);
  return join(net, name,
              {one, three_row, three_column, twice_row, twice_column, pooled_branch(net, name, x, 192)});
}

node_id auxiliary_head(network& net, node_id x, std::int64_t classes) {
  x = net.avg_pool("auxiliary/pool", x, 5, 3);
  x = layer(net, "auxiliary/conv0", x, 128, point);
  x = layer(net, "auxiliary/conv1", x, 768, {.rows = 5, .columns = 5, .padded = false});
  x = net.global_avg_pool("auxiliary/mean", x);
  return net.dense("auxiliary/fc", net.flatten("auxiliary/flatten", x), classes);
}

network build(const char* name, bool auxiliary, input_shape input, std::int64_t classes) {
  network net(name);
  auto x = net.input(input.height, input.width, input.channels);
  x = layer(net, "conv1a", x, 32, halving);
  x = layer(net, "conv2a", x, 32, {.rows = 3, .columns = 3, .padded = false});
  x = layer(net, "conv2b", x, 64, square3);
  x = net.max_pool("pool1", x, 3, 2);
  x = layer(net, "conv3b", x, 80, point);
  x = layer(net, "conv4a", x, 192, {.rows = 3, .columns = 3, .padded = false});
  x = net.max_pool("pool2", x, 3, 2);
  x = module_a(net, "mixed5b", x, 32);
  x = module_a(net, "mixed5c", x, 64);
  x = module_a(net, "mixed5d", x, 64);
  x = module_b(net, "mixed6a", x);
  x = module_c(net, "mixed6b", x, 128);
  x = module_c(net, "mixed6c", x, 160);
  x = module_c(net, "mixed6d", x, 160);
  x = module_c(net, "mixed6e", x, 192);
  const node_id middle = x;
  x = module_d(net, "mixed7a", x);
  x = module_e(net, "mixed7b", x);
  x = module_e(net, "mixed7c", x);
  x = net.global_avg_pool("mean", x);
  x = net.flatten("flatten", x);
  x = net.dropout("flatten/dropout", x, 0.5F);
  x = net.dense("fc", x, classes);
  if (auxiliary) x = net.add("logits", x, auxiliary_head(net, middle, classes));
  net.softmax_cross_entropy("loss", x);
  return net;
}

}  // namespace

// Szegedy et al., 2015 ("Rethinking the Inception Architecture"), with the channels of the released model.
network inception_v3(input_shape input, std::int64_t classes) {
  return build("inception_v3", false, input, classes);
}

network inception_v3_auxiliary(input_shape input, std::int64_t classes) {
  return build("inception_v3_auxiliary", true, input, classes);
}

}  // namespace stash::models
