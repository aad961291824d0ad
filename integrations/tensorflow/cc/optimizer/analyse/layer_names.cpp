// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/layer_names.hpp"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace stash_tf {

namespace {

bool belongs_to(const std::string& node_name, const std::string& layer) {
  for (const std::string_view part : absl::StrSplit(node_name, '/')) {
    if (part == layer) return true;
    // Keras numbers the scope of a layer that is called again: conv2d_1 for the second call of conv2d.
    if (part.size() > layer.size() + 1 && absl::StartsWith(part, layer) && part[layer.size()] == '_' &&
        part.find_first_not_of("0123456789", layer.size() + 1) == std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

std::string layer_of(const std::string& node_name) {
  const std::vector<std::string> parts = absl::StrSplit(node_name, '/');
  return parts.size() < 2 ? node_name : parts[parts.size() - 2];
}

bool belongs_to_any(const std::string& node_name, const std::vector<std::string>& layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const std::string& layer) { return belongs_to(node_name, layer); });
}

std::vector<std::string> unknown_layers(const graph_view& graph, const std::vector<std::string>& layers) {
  std::vector<std::string> unknown;
  for (const std::string& layer : layers) {
    bool found = false;
    for (int i = 0; i < graph.size() && !found; ++i)
      found = belongs_to(graph.name(i), layer);
    if (!found) unknown.push_back(layer);
  }
  return unknown;
}

}  // namespace stash_tf
