// SPDX-License-Identifier: Apache-2.0
#include "models/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "encoders/message.hpp"
#include "models/planned.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

void refuse_size(std::string_view model, std::string_view which, std::int64_t value) {
  if (value == 0) return;
  throw error(errc::invalid_argument,
              fmt::format("models::{}: {}: expected 0, the network has none, got {}", model, which, value));
}

// Of a network of images or volumes; `o` are its own sizes.
template <class Options, class Build>
planner::graph graph_of_side(const char* name, std::int64_t batch, const graph_parameters& p, Options o,
                             const Build& build) {
  refuse_size(name, "steps", p.steps);
  refuse_size(name, "loss_chunk", p.loss_chunk);
  if (p.side != 0) o.side = p.side;
  return build(o).finish(batch, {p.relu_density});
}

// Of a network of sequences.
template <class Options, class Build>
planner::graph graph_of_steps(const char* name, std::int64_t batch, const graph_parameters& p, Options o,
                              const Build& build) {
  refuse_size(name, "side", p.side);
  if (p.steps != 0) o.steps = p.steps;
  o.loss_chunk = p.loss_chunk;
  return build(o).finish(batch, {p.relu_density});
}

planner::graph unet3d_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("unet3d", batch, p, unet3d_options{}, unet3d);
}

planner::graph lstm_lm_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_steps("lstm_lm", batch, p, lstm_lm_options{}, lstm_lm);
}

planner::graph seq2seq_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_steps("seq2seq", batch, p, seq2seq_options{}, seq2seq);
}

template <tape (*build)(const char*, const transformer_options&), transformer_options (*sizes)()>
planner::graph transformer_graph(const char* name, std::int64_t batch, const graph_parameters& p) {
  return graph_of_steps(name, batch, p, sizes(),
                        [name](const transformer_options& o) { return build(name, o); });
}

planner::graph bert_base_graph(std::int64_t batch, const graph_parameters& p) {
  return transformer_graph<bert, bert_base>("bert_base", batch, p);
}

planner::graph bert_large_graph(std::int64_t batch, const graph_parameters& p) {
  return transformer_graph<bert, bert_large>("bert_large", batch, p);
}

planner::graph gpt2_small_graph(std::int64_t batch, const graph_parameters& p) {
  return transformer_graph<gpt2, gpt2_small>("gpt2_small", batch, p);
}

planner::graph gpt2_medium_graph(std::int64_t batch, const graph_parameters& p) {
  return transformer_graph<gpt2, gpt2_medium>("gpt2_medium", batch, p);
}

planner::graph mobilenet_v2_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("mobilenet_v2", batch, p, image_options{}, mobilenet_v2);
}

planner::graph efficientnet_b0_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("efficientnet_b0", batch, p, image_options{}, efficientnet_b0);
}

planner::graph convnext_tiny_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("convnext_tiny", batch, p, image_options{}, convnext_tiny);
}

planner::graph vit_b16_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("vit_b16", batch, p, vit_options{},
                       [](const vit_options& o) { return vit("vit_b16", o); });
}

planner::graph unet2d_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_side("unet2d", batch, p, unet2d_options{}, unet2d);
}

planner::graph llama_1b_graph(std::int64_t batch, const graph_parameters& p) {
  return graph_of_steps("llama_1b", batch, p, llama_options{},
                        [](const llama_options& o) { return llama("llama_1b", o); });
}

constexpr model_info planned(std::string_view name, std::string_view description, graph_parameters sizes,
                             planner::graph (*make)(std::int64_t, const graph_parameters&),
                             std::int64_t side_unit = 1, std::int64_t most_steps = 0) {
  model_info m;
  m.name = name;
  m.description = description;
  m.default_parameters = sizes;
  m.make_graph = make;
  m.side_unit = side_unit;
  m.most_steps = most_steps;
  return m;
}

constexpr model_info square(std::string_view name, std::string_view description, std::int64_t side,
                            planner::graph (*make)(std::int64_t, const graph_parameters&),
                            std::int64_t side_unit = 1) {
  model_info m = planned(name, description, {side, 0, 0.5}, make, side_unit);
  m.default_input = {side, side, 3};
  return m;
}

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
    planned("unet3d", "3D U-Net on cubes of four modalities (Cicek et al., 2016)", {144, 0, 0.5},
            unet3d_graph, 8),
    planned("lstm_lm", "LSTM language model, large (Zaremba et al., 2014)", {0, 35, 0.5}, lstm_lm_graph),
    planned("seq2seq", "LSTM encoder and decoder, additive attention (Bahdanau et al., 2014)", {0, 50, 0.5},
            seq2seq_graph),
    planned("bert_base", "BERT base in pre-training (Devlin et al., 2018)", {0, 128, 0.5}, bert_base_graph, 1,
            512),
    planned("bert_large", "BERT large in pre-training (Devlin et al., 2018)", {0, 128, 0.5}, bert_large_graph,
            1, 512),
    planned("gpt2_small", "GPT-2 small (Radford et al., 2019)", {0, 1024, 0.5}, gpt2_small_graph, 1, 1024),
    planned("gpt2_medium", "GPT-2 medium (Radford et al., 2019)", {0, 1024, 0.5}, gpt2_medium_graph, 1, 1024),
    planned("llama_1b", "Llama 3.2 1B (Grattafiori et al., 2024)", {0, 1024, 0.5}, llama_1b_graph),
    square("mobilenet_v2", "MobileNetV2 (Sandler et al., 2018)", 224, mobilenet_v2_graph),
    square("efficientnet_b0", "EfficientNet-B0 (Tan and Le, 2019)", 224, efficientnet_b0_graph),
    square("convnext_tiny", "ConvNeXt-T (Liu et al., 2022)", 224, convnext_tiny_graph, 32),
    square("vit_b16", "Vision transformer B/16 (Dosovitskiy et al., 2020)", 224, vit_b16_graph, 16),
    square("unet2d", "2D U-Net with batch norm and SiLU (Ronneberger et al., 2015)", 256, unet2d_graph, 16),
};

}  // namespace

std::span<const model_info> all() {
  return models;
}

std::int64_t parameter_count(const model_info& info) {
  if (info.build != nullptr)
    return planner::parameter_count(info.build(info.default_input, info.default_classes));
  std::int64_t count = 0;
  for (const planner::storage& s : default_graph(info, 1).storages) {
    if (s.role == planner::storage_role::weight) count += s.elements(1);
  }
  return count;
}

planner::graph default_graph(const model_info& info, std::int64_t batch, double relu_density) {
  if (info.make_graph != nullptr) {
    graph_parameters p = info.default_parameters;
    p.relu_density = relu_density;
    return info.make_graph(batch, p);
  }
  return planner::make_training_graph(info.build(info.default_input, info.default_classes), batch,
                                      {relu_density});
}

const model_info& find(std::string_view name) {
  const auto found =
      std::find_if(std::begin(models), std::end(models), [&](const model_info& m) { return m.name == name; });
  if (found != std::end(models)) return *found;
  std::vector<std::string_view> known;
  for (const model_info& m : models)
    known.push_back(m.name);
  throw error(errc::invalid_argument, fmt::format("models::find: name: expected one of {}, got '{}'",
                                                  fmt::join(known, ", "), shortened(name)));
}

}  // namespace stash::models
