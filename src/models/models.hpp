#pragma once
/// \file
/// Networks of the literature as forward graphs. Shapes and parameter counts are tested against the
/// published ones.

#include <span>
#include <string>
#include <string_view>

#include "planner/network.hpp"

namespace stash::models {

struct input_shape {
  std::int64_t height = 0, width = 0, channels = 0;
};

struct model_info {
  std::string_view name;         ///< as on the command line
  std::string_view description;  ///< one line, with the paper
  input_shape default_input;
  std::int64_t default_classes = 1000;
  bool trainable = false;  ///< the CPU executor runs all its ops and it learns small images
  planner::network (*build)(input_shape input, std::int64_t classes);
};

/// All networks in the order in which `stash networks` lists them.
std::span<const model_info> all();

/// Throws error(invalid_argument) listing the known names.
const model_info& find(std::string_view name);

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

/// With the auxiliary classifier behind the 17x17 maps. A network has one loss: the auxiliary logits are
/// added to the main ones instead of having a loss of their own.
planner::network inception_v3_auxiliary(input_shape input, std::int64_t classes);

/// A ResNet as deep as asked: conv2, conv3 and conv5 as in ResNet-152 (3, 8 and 3 bottlenecks), conv4 takes
/// the rest. Depths 3 * k + 2 can be reached; others are rounded down to the next one that can, and the name
/// says which. Throws error(invalid_argument) if depth < 47 or depth > 100,000.
planner::network resnet_n(std::int64_t depth, input_shape input, std::int64_t classes);

}  // namespace stash::models
