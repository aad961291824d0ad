// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <vector>

#include "models/planned.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

value conv_norm_relu(tape& t, const std::string& name, const std::vector<value>& xs, std::int64_t channels) {
  std::vector<tape::term> terms;
  for (const value x : xs) {
    const std::string weight_name = name + "/weight" + (terms.empty() ? "" : "_up");
    terms.push_back({x, t.parameter(weight_name, {channels, t.shape(x).back(), 3, 3, 3})});
  }
  const weight b = t.parameter(name + "/bias", {channels});
  return t.norm(name + "/bn", t.conv3d(name, terms, b), norm_kind::batch, activation::relu);
}

value conv_norm_silu(tape& t, const std::string& name, const std::vector<value>& xs, std::int64_t channels) {
  std::vector<tape::term> terms;
  for (const value x : xs) {
    const std::string weight_name = name + "/weight" + (terms.empty() ? "" : "_up");
    terms.push_back({x, t.parameter(weight_name, {channels, t.shape(x).back(), 3, 3})});
  }
  const value y = t.norm(name + "/bn", t.conv2d(name, terms, {}, {.padding = 1}), norm_kind::batch);
  return t.silu(name + "/silu", y);
}

}  // namespace

tape unet3d(const unet3d_options& o) {
  constexpr int levels = 4;
  constexpr std::int64_t halved = std::int64_t{1} << (levels - 1);
  if (o.side < halved || o.side % halved != 0) {
    throw error(errc::invalid_argument,
                fmt::format("unet3d: side: expected a multiple of {}, got {}", halved, o.side));
  }
  tape t("unet3d");
  value x = t.image("input", {o.side, o.side, o.side, o.modalities});
  std::vector<value> skips;
  std::int64_t width = o.base_filters;
  for (int level = 1; level <= levels; ++level, width *= 2) {
    x = conv_norm_relu(t, fmt::format("down{}_1", level), {x}, width);
    x = conv_norm_relu(t, fmt::format("down{}_2", level), {x}, 2 * width);
    if (level == levels) break;
    skips.push_back(x);
    x = t.max_pool3d(fmt::format("pool{}", level), x, 2);
  }
  for (int level = levels - 1; level >= 1; --level) {
    const std::string name = fmt::format("up{}", level);
    const std::int64_t channels = t.shape(x).back();
    const weight w = t.parameter(name + "/weight", {channels, channels, 2, 2, 2});
    x = t.conv_transpose3d(name, x, w);
    const value skip = skips[static_cast<std::size_t>(level - 1)];
    const std::int64_t out = t.shape(skip).back();
    // A concatenation would keep the memory of both from the moment in which the skip is made.
    x = conv_norm_relu(t, name + "_1", {skip, x}, out);
    x = conv_norm_relu(t, name + "_2", {x}, out);
  }
  const weight w = t.parameter("classifier/weight", {o.classes, t.shape(x).back(), 1, 1, 1});
  x = t.conv3d("classifier", {{x, w}}, t.parameter("classifier/bias", {o.classes}));
  t.softmax_cross_entropy("loss", x, t.ids("labels", o.side * o.side * o.side), 0);
  return t;
}

tape unet2d(const unet2d_options& o) {
  constexpr int levels = 5;
  constexpr std::int64_t halved = std::int64_t{1} << (levels - 1);
  if (o.side < halved || o.side % halved != 0) {
    throw error(errc::invalid_argument,
                fmt::format("unet2d: side: expected a multiple of {}, got {}", halved, o.side));
  }
  tape t("unet2d");
  value x = t.image("input", {o.side, o.side, o.channels});
  std::vector<value> skips;
  std::int64_t width = o.base_filters;
  for (int level = 1; level <= levels; ++level, width *= 2) {
    if (level > 1) {
      skips.push_back(x);
      x = t.max_pool2d(fmt::format("pool{}", level - 1), x, 2);
    }
    x = conv_norm_silu(t, fmt::format("down{}_1", level), {x}, width);
    x = conv_norm_silu(t, fmt::format("down{}_2", level), {x}, width);
  }
  for (int level = levels - 1; level >= 1; --level) {
    const std::string name = fmt::format("up{}", level);
    const value skip = skips[static_cast<std::size_t>(level - 1)];
    const std::int64_t channels = t.shape(skip).back();
    const weight w = t.parameter(name + "/weight", {t.shape(x).back(), channels, 2, 2});
    x = t.conv_transpose2d(name, x, w, t.parameter(name + "/bias", {channels}));
    // A concatenation would keep the memory of both from the moment in which the skip is made.
    x = conv_norm_silu(t, name + "_1", {skip, x}, channels);
    x = conv_norm_silu(t, name + "_2", {x}, channels);
  }
  const weight w = t.parameter("classifier/weight", {o.classes, t.shape(x).back(), 1, 1});
  x = t.conv2d("classifier", {{x, w}}, t.parameter("classifier/bias", {o.classes}));
  t.softmax_cross_entropy("loss", x, t.ids("labels", o.side * o.side), 0);
  return t;
}

}  // namespace stash::models
