#include "models/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "stash/error.hpp"

namespace stash::models {
namespace {

constexpr model_info models[] = {
    {"lenet", "LeNet-5 class with ReLU (LeCun et al., 1998)", {28, 28, 1}, 10, true, lenet},
    {"vgg_small", "six 3x3 convolutions in VGG style, for small images", {28, 28, 1}, 10, true, vgg_small},
    {"resnet20", "ResNet-20 for CIFAR, batch norm (He et al., 2015)", {32, 32, 3}, 10, true, resnet20},
    {"alexnet", "AlexNet, single tower (Krizhevsky, 2014)", {224, 224, 3}, 1000, false, alexnet},
    {"alexnet_lrn",
     "AlexNet, single tower, with local response normalisation (Krizhevsky et al., 2012 and 2014)",
     {224, 224, 3},
     1000,
     false,
     alexnet_lrn},
    // 227 gives the 55x55 maps of the first stage without padding.
    {"nin", "Network in Network, ImageNet variant (Lin et al., 2013)", {227, 227, 3}, 1000, false, nin},
    {"overfeat", "OverFeat, fast model (Sermanet et al., 2013)", {231, 231, 3}, 1000, false, overfeat},
    {"vgg16", "VGG-16, configuration D (Simonyan and Zisserman, 2014)", {224, 224, 3}, 1000, false, vgg16},
    {"inception_v1",
     "GoogLeNet without auxiliary classifiers (Szegedy et al., 2014)",
     {224, 224, 3},
     1000,
     false,
     inception_v1},
    {"resnet50", "ResNet-50 (He et al., 2015)", {224, 224, 3}, 1000, false, resnet50},
    {"resnet101", "ResNet-101 (He et al., 2015)", {224, 224, 3}, 1000, false, resnet101},
    {"resnet152", "ResNet-152 (He et al., 2015)", {224, 224, 3}, 1000, false, resnet152},
    {"resnet200",
     "ResNet-200, stages of He et al., 2016, blocks of 2015",
     {224, 224, 3},
     1000,
     false,
     resnet200},
    {"resnet1001",
     "ResNet-1001 for ImageNet, as in Meng et al., 2017",
     {224, 224, 3},
     1000,
     false,
     resnet1001},
    {"resnet1517", "ResNet-1517, as in Layrub (Liu et al., 2018)", {224, 224, 3}, 1000, false, resnet1517},
    {"resnet2000",
     "ResNet-2000 for ImageNet, as in Meng et al., 2017",
     {224, 224, 3},
     1000,
     false,
     resnet2000},
    {"inception_v3",
     "Inception v3 without auxiliary classifier (Szegedy et al., 2015)",
     {299, 299, 3},
     1000,
     false,
     inception_v3},
};

}  // namespace

std::span<const model_info> all() {
  return models;
}

const model_info& find(std::string_view name) {
  const auto found =
      std::find_if(std::begin(models), std::end(models), [&](const model_info& m) { return m.name == name; });
  if (found != std::end(models)) return *found;
  std::vector<std::string_view> known;
  for (const model_info& m : models)
    known.push_back(m.name);
  throw error(errc::invalid_argument,
              fmt::format("models::find: name: expected one of {}, got '{}'", fmt::join(known, ", "), name));
}

}  // namespace stash::models
