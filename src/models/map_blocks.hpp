// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the planned networks of images share: convolutions with a square kernel, and the classifier.

#include <cstdint>
#include <string>

#include "models/tape.hpp"

namespace stash::models {

/// A square kernel, and no bias where a norm's shift follows.
inline value conv(tape& t, const std::string& name, value x, std::int64_t channels, std::int64_t kernel,
                  const conv2d_window& window = {}, bool bias = false) {
  const weight w =
      t.parameter(name + "/weight", {channels, t.shape(x).back() / window.groups, kernel, kernel});
  return t.conv2d(name, {{x, w}}, bias ? t.parameter(name + "/bias", {channels}) : weight{}, window);
}

inline value conv_with_bias(tape& t, const std::string& name, value x, std::int64_t channels,
                            std::int64_t kernel, const conv2d_window& window = {}) {
  return conv(t, name, x, channels, kernel, window, true);
}

/// Keeps the size of a map at stride 1; kernels are odd.
inline conv2d_window same_size(std::int64_t kernel, std::int64_t stride = 1, std::int64_t groups = 1) {
  return {stride, kernel / 2, groups};
}

inline value dense(tape& t, const std::string& name, value x, std::int64_t outputs) {
  const weight w = t.parameter(name + "/weight", {outputs, t.shape(x).back()});
  return t.linear(name, {{x, w}}, t.parameter(name + "/bias", {outputs}));
}

/// One label per image.
inline void class_loss(tape& t, const std::string& name, value x, std::int64_t classes) {
  t.softmax_cross_entropy("loss", dense(t, name, x, classes), t.ids("labels", 1), 0);
}

}  // namespace stash::models
