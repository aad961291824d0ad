// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Networks of the literature: as forward graphs that may train, or as training graphs that are only planned
/// (models/planned.hpp). Shapes and parameter counts are tested against the published ones.

#include <span>
#include <string>
#include <string_view>

#include "planner/graph/graph.hpp"
#include "planner/graph/network.hpp"

namespace stash::models {

struct input_shape {
  std::int64_t height = 0, width = 0, channels = 0;
};

/// Sizes of a network that gives its training graph. 0: the network's own.
struct graph_parameters {
  std::int64_t side = 0;   ///< of a cubic or square image
  std::int64_t steps = 0;  ///< time steps, length of a sequence
  double relu_density = 0.5;
  std::int64_t loss_chunk = 0;  ///< positions of a sequence whose logits exist at once; 0: all
};

/// A network of one of two kinds: `build` gives its forward graph, or `make_graph` its training graph.
struct model_info {
  std::string_view name;         ///< as on the command line
  std::string_view description;  ///< one line, with the paper
  input_shape default_input;     ///< networks of two-dimensional images
  std::int64_t default_classes = 1000;
  bool trainable = false;  ///< the CPU executor runs all its ops and it learns small images
  planner::network (*build)(input_shape input, std::int64_t classes) = nullptr;
  /// What can be set, and its default; the others are 0.
  graph_parameters default_parameters{0, 0, 0.5};
  std::int64_t side_unit = 1;   ///< sides are multiples of it
  std::int64_t most_steps = 0;  ///< rows of its table of positions; 0: any number of steps
  planner::graph (*make_graph)(std::int64_t batch, const graph_parameters& parameters) = nullptr;
};

/// All networks in the order in which `stash networks` lists them.
std::span<const model_info> all();

/// Throws error(invalid_argument) listing the known names.
const model_info& find(std::string_view name);

/// Trainable parameters of a network at its default size.
std::int64_t parameter_count(const model_info& info);

/// The training graph of a network of either kind at its default size. Throws what the builders throw.
planner::graph default_graph(const model_info& info, std::int64_t batch, double relu_density = 0.5);

planner::network lenet(input_shape input, std::int64_t classes);
planner::network vgg_small(input_shape input, std::int64_t classes);
planner::network resnet20(input_shape input, std::int64_t classes);
planner::network alexnet(input_shape input, std::int64_t classes);
planner::network alexnet_lrn(input_shape input, std::int64_t classes);
planner::network nin(input_shape input, std::int64_t classes);
planner::network overfeat(input_shape input, std::int64_t classes);
planner::network vgg16(input_shape input, std::int64_t classes);
planner::network inception_v1(input_shape input, std::int64_t classes);
planner::network resnet50(input_shape input, std::int64_t classes);
planner::network resnet101(input_shape input, std::int64_t classes);
planner::network resnet152(input_shape input, std::int64_t classes);
planner::network resnet200(input_shape input, std::int64_t classes);
planner::network resnet1001(input_shape input, std::int64_t classes);
planner::network resnet1517(input_shape input, std::int64_t classes);
planner::network resnet2000(input_shape input, std::int64_t classes);
planner::network inception_v3(input_shape input, std::int64_t classes);

/// With the auxiliary classifier after the 17x17 maps. A network has one loss: the auxiliary logits are
/// added to the main ones instead of having a loss of their own.
planner::network inception_v3_auxiliary(input_shape input, std::int64_t classes);

/// A ResNet as deep as asked: conv2, conv3 and conv5 as in ResNet-152 (3, 8 and 3 bottlenecks), conv4 takes
/// the rest. Depths 3 * k + 2 can be reached; others are rounded down to the next one that can, and the name
/// says which. Throws error(invalid_argument) if depth < 47 or depth > 100,000.
planner::network resnet_n(std::int64_t depth, input_shape input, std::int64_t classes);

}  // namespace stash::models
