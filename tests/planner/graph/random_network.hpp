// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Small random networks: every kind of node, branches, shared inputs, joins, one loss. The same seed gives
/// the same network on every machine.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "planner/graph/network.hpp"

namespace stash::planner::testing {

class random_network {
 public:
  explicit random_network(std::uint64_t seed) : net_("random" + std::to_string(seed)), random_(seed) {}

  network make() {
    const std::int64_t side = pick(4, 8);
    const node_id image = net_.input(side, side, pick(1, 3));
    values_.push_back(conv(image));
    const int nodes = static_cast<int>(pick(2, 14));
    for (int i = 0; i < nodes; ++i)
      values_.push_back(grow());
    finish();
    return std::move(net_);
  }

  /// A number from `least` to `most`, both included.
  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::string name(const char* kind) { return kind + std::to_string(net_.nodes().size()); }
  const std::vector<std::int64_t>& shape(node_id n) const { return net_.at(n).shape; }
  bool is_map(node_id n) const { return shape(n).size() == 3; }

  node_id conv(node_id x) {
    const auto kernel = static_cast<std::int32_t>(2 * pick(0, 1) + 1);
    const auto stride = static_cast<std::int32_t>(pick(0, 3) == 0 ? 2 : 1);
    const std::int64_t channels = pick(1, 6);
    const bool bias = pick(0, 1) == 1;
    return net_.conv2d(name("conv"), x, channels, {kernel, kernel}, {stride, stride},
                       {kernel / 2, kernel / 2}, bias);
  }

  // The newest values are read more often, so that networks become deep as well as wide.
  node_id any_value() {
    const auto n = static_cast<std::int64_t>(values_.size());
    const std::int64_t back = pick(0, 2) > 0 ? 0 : pick(0, n - 1);
    return values_[static_cast<std::size_t>(n - 1 - back)];
  }

  // Another value (or the same) that fits `x` in all extents, or in all but the channels.
  node_id partner(node_id x, bool channels_too) {
    std::vector<node_id> fitting;
    for (const node_id v : values_) {
      std::vector<std::int64_t> a = shape(v), b = shape(x);
      if (!channels_too) a.back() = b.back() = 0;
      if (a == b) fitting.push_back(v);
    }
    return fitting[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(fitting.size()) - 1))];
  }

  node_id pool(node_id x) {
    const bool ceil = pick(0, 1) == 1;
    const auto kernel = static_cast<std::int32_t>(pick(2, 3));
    const auto stride = static_cast<std::int32_t>(pick(1, 2));
    if (shape(x)[0] < kernel) return net_.relu6(name("relu6_"), x);
    switch (pick(0, 3)) {
      case 0:
        return net_.avg_pool(name("avg"), x, kernel, stride, 0, ceil);
      case 1:
        return net_.max_pool(name("max"), x, kernel, stride, 1, ceil);
      default:
        return net_.max_pool(name("max"), net_.relu(name("relu"), x), kernel, stride, 0, ceil);
    }
  }

  node_id grow() {
    const node_id x = any_value();
    const std::int64_t kind = pick(0, 15);
    if (kind <= 1) return net_.relu(name("relu"), x);
    if (kind == 2) return net_.leaky_relu(name("leaky"), x, 0.1F);
    if (kind == 3) return net_.relu6(name("relu6_"), x);
    if (kind == 4) return net_.dropout(name("drop"), x, 0.25F);
    if (kind == 5) return net_.add(name("add"), x, partner(x, true));
    if (kind == 6) return net_.concat(name("cat"), {x, partner(x, false)});
    if (kind == 7 && net_.at(x).kind != node_kind::flatten) return net_.batch_norm(name("norm"), x);
    if (!is_map(x)) return net_.dense(name("dense"), x, pick(1, 8));
    if (kind == 8) return net_.relu(name("relu"), net_.batch_norm(name("norm"), x));
    if (kind == 9) {
      const node_id second = partner(x, false), third = partner(x, false);
      return net_.concat(name("cat"), {x, second, third});
    }
    if (kind <= 11) return pool(x);
    if (kind == 12) return net_.lrn(name("lrn"), x, 3);
    if (kind == 13 && pick(0, 3) == 0) return net_.flatten(name("flat"), x);
    return conv(x);
  }

  // Every value that nobody reads contributes to the logits.
  void finish() {
    id_vector<node_id, bool> read(net_.nodes().size(), false);
    for (const node& n : net_.nodes()) {
      for (const node_id x : n.inputs)
        read[x] = true;
    }
    node_id logits = no_id;
    for (const node_id n : read.ids()) {
      if (read[n]) continue;
      node_id x = n;
      if (is_map(x)) {
        x = pick(0, 1) == 1 ? net_.global_avg_pool(name("mean"), x) : x;
        x = pick(0, 1) == 1 ? net_.flatten(name("flat"), x) : x;
      }
      x = net_.dense(name("logits"), x, 5);
      logits = !logits.valid() ? x : net_.add(name("sum"), logits, x);
    }
    net_.softmax_cross_entropy("loss", logits);
  }

  network net_;
  std::mt19937_64 random_;
  std::vector<node_id> values_;
};

}  // namespace stash::planner::testing
