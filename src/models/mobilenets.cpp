// SPDX-License-Identifier: Apache-2.0
// MobileNetV2, and EfficientNet, whose blocks are those with SiLU and with squeeze and excitation.

#include <fmt/format.h>

#include <span>
#include <string>

#include "models/map_blocks.hpp"
#include "models/planned.hpp"

namespace stash::models {
namespace {

// Blocks of one kind; the stride is that of the first.
struct stage {
  std::int64_t expansion, kernel, channels, repeats, stride;
};

value conv_norm(tape& t, const std::string& name, value x, std::int64_t channels, std::int64_t kernel,
                const conv2d_window& window = {}, activation end = activation::none) {
  return t.norm(name + "/bn", conv(t, name, x, channels, kernel, window), norm_kind::batch, end);
}

// Wide inside, narrow at its ends, which have no activation.
value inverted_residual(tape& t, const std::string& name, value x, const stage& s, std::int64_t stride) {
  const std::int64_t in = t.shape(x).back(), wide = s.expansion * in;
  value y = x;
  if (s.expansion != 1) y = conv_norm(t, name + "/expand", y, wide, 1, {}, activation::relu6);
  y = conv_norm(t, name + "/depthwise", y, wide, s.kernel, same_size(s.kernel, stride, wide),
                activation::relu6);
  y = conv_norm(t, name + "/project", y, s.channels, 1);
  return stride == 1 && in == s.channels ? t.add(name + "/add", x, y) : y;
}

value conv_norm_silu(tape& t, const std::string& name, value x, std::int64_t channels, std::int64_t kernel,
                     const conv2d_window& window = {}) {
  return t.silu(name + "/silu", conv_norm(t, name, x, channels, kernel, window));
}

// One factor per channel and image, from the means of all channels.
value squeeze_excite(tape& t, const std::string& name, value x, std::int64_t squeezed) {
  const std::int64_t channels = t.shape(x).back();
  value s = dense(t, name + "/reduce", t.mean(name + "/mean", x), squeezed);
  s = dense(t, name + "/expand", t.silu(name + "/silu", s), channels);
  return t.scale(name + "/scale", x, t.sigmoid(name + "/sigmoid", s));
}

value mobile_block(tape& t, const std::string& name, value x, const stage& s, std::int64_t stride) {
  const std::int64_t in = t.shape(x).back(), wide = s.expansion * in;
  value y = x;
  if (s.expansion != 1) y = conv_norm_silu(t, name + "/expand", y, wide, 1);
  y = conv_norm_silu(t, name + "/depthwise", y, wide, s.kernel, same_size(s.kernel, stride, wide));
  // A quarter of what comes into the block, not of what is wide in it.
  y = squeeze_excite(t, name + "/se", y, in / 4);
  y = conv_norm(t, name + "/project", y, s.channels, 1);
  return stride == 1 && in == s.channels ? t.add(name + "/add", x, y) : y;
}

value in_stages(tape& t, value x, std::span<const stage> stages,
                value (*block)(tape&, const std::string&, value, const stage&, std::int64_t)) {
  int number = 0;
  for (const stage& s : stages) {
    ++number;
    for (std::int64_t i = 1; i <= s.repeats; ++i)
      x = block(t, fmt::format("block{}_{}", number, i), x, s, i == 1 ? s.stride : 1);
  }
  return x;
}

}  // namespace

tape mobilenet_v2(const image_options& o) {
  // Table 2 of the paper.
  constexpr stage stages[] = {{1, 3, 16, 1, 1}, {6, 3, 24, 2, 2},  {6, 3, 32, 3, 2}, {6, 3, 64, 4, 2},
                              {6, 3, 96, 3, 1}, {6, 3, 160, 3, 2}, {6, 3, 320, 1, 1}};
  tape t("mobilenet_v2");
  value x = t.image("input", {o.side, o.side, 3});
  x = conv_norm(t, "stem", x, 32, 3, same_size(3, 2), activation::relu6);
  x = in_stages(t, x, stages, inverted_residual);
  x = t.mean("pool", conv_norm(t, "head", x, 1280, 1, {}, activation::relu6));
  class_loss(t, "classifier", t.dropout("dropout", x, 0.2), o.classes);
  return t;
}

tape efficientnet_b0(const image_options& o) {
  // Table 1 of the paper.
  constexpr stage stages[] = {{1, 3, 16, 1, 1},  {6, 3, 24, 2, 2},  {6, 5, 40, 2, 2}, {6, 3, 80, 3, 2},
                              {6, 5, 112, 3, 1}, {6, 5, 192, 4, 2}, {6, 3, 320, 1, 1}};
  tape t("efficientnet_b0");
  value x = t.image("input", {o.side, o.side, 3});
  x = conv_norm_silu(t, "stem", x, 32, 3, same_size(3, 2));
  x = in_stages(t, x, stages, mobile_block);
  x = t.mean("pool", conv_norm_silu(t, "head", x, 1280, 1));
  class_loss(t, "classifier", t.dropout("dropout", x, 0.2), o.classes);
  return t;
}

}  // namespace stash::models
