// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/map_blocks.hpp"
#include "models/planned.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

value layer_norm(tape& t, const std::string& name, value x) {
  return t.norm(name, x, norm_kind::layer);
}

value block(tape& t, const std::string& name, value x) {
  const std::int64_t channels = t.shape(x).back();
  value y = conv_with_bias(t, name + "/depthwise", x, channels, 7, same_size(7, 1, channels));
  y = layer_norm(t, name + "/norm", y);
  y = t.gelu(name + "/gelu", dense(t, name + "/fc1", y, 4 * channels));
  y = dense(t, name + "/fc2", y, channels);
  y = t.layer_scale(name + "/layer_scale", y, t.parameter(name + "/layer_scale/factors", {channels}));
  return t.add(name + "/add", x, y);
}

}  // namespace

tape convnext_tiny(const image_options& o) {
  constexpr std::int64_t depths[] = {3, 3, 9, 3}, widths[] = {96, 192, 384, 768}, reduced = 32;
  if (o.side < reduced || o.side % reduced != 0) {
    throw error(errc::invalid_argument,
                fmt::format("convnext_tiny: side: expected a multiple of {}, got {}", reduced, o.side));
  }
  tape t("convnext_tiny");
  value x = t.image("input", {o.side, o.side, 3});
  x = layer_norm(t, "stem/norm", conv_with_bias(t, "stem", x, widths[0], 4, {.stride = 4}));
  for (std::size_t s = 0; s < std::size(depths); ++s) {
    const std::string stage = fmt::format("stage{}", s + 1);
    if (s > 0) {
      x = layer_norm(t, stage + "/downsample/norm", x);
      x = conv_with_bias(t, stage + "/downsample", x, widths[s], 2, {.stride = 2});
    }
    for (std::int64_t i = 1; i <= depths[s]; ++i)
      x = block(t, fmt::format("{}_{}", stage, i), x);
  }
  class_loss(t, "classifier", layer_norm(t, "norm", t.mean("pool", x)), o.classes);
  return t;
}

}  // namespace stash::models
