// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Blocks that several families share. A layer's followers are named after it: "conv1", "conv1/bn",
/// "conv1/relu".

#include <cstdint>
#include <string>

#include "planner/graph/network.hpp"

namespace stash::models {

/// Square kernel, equal stride and padding in both directions.
struct window {
  std::int32_t kernel = 1, stride = 1, padding = 0;
};

inline planner::node_id conv(planner::network& net, const std::string& name, planner::node_id x,
                             std::int64_t channels, const window& w, bool bias = true) {
  return net.conv2d(name, x, channels, {w.kernel, w.kernel}, {w.stride, w.stride}, {w.padding, w.padding},
                    bias);
}

inline planner::node_id conv_relu(planner::network& net, const std::string& name, planner::node_id x,
                                  std::int64_t channels, const window& w) {
  return net.relu(name + "/relu", conv(net, name, x, channels, w));
}

/// The convolution has no bias: the norm's shift replaces it.
inline planner::node_id conv_norm(planner::network& net, const std::string& name, planner::node_id x,
                                  std::int64_t channels, const window& w) {
  return net.batch_norm(name + "/bn", conv(net, name, x, channels, w, false));
}

inline planner::node_id conv_norm_relu(planner::network& net, const std::string& name, planner::node_id x,
                                       std::int64_t channels, const window& w) {
  return net.relu(name + "/relu", conv_norm(net, name, x, channels, w));
}

inline planner::node_id dense_relu(planner::network& net, const std::string& name, planner::node_id x,
                                   std::int64_t outputs) {
  return net.relu(name + "/relu", net.dense(name, x, outputs));
}

}  // namespace stash::models
