// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "data/dataset.hpp"
#include "data/random.hpp"
#include "stash/error.hpp"

namespace stash::data {

std::vector<std::int32_t> epoch_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  if (count < 0 || count > std::numeric_limits<std::int32_t>::max()) {
    throw error(errc::invalid_argument,
                fmt::format("epoch_order: count: expected 0..2147483647, got {}", count));
  }
  if (epoch < 0) {
    throw error(errc::invalid_argument, fmt::format("epoch_order: epoch: expected 0 or more, got {}", epoch));
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  splitmix64 random({seed, static_cast<std::uint64_t>(epoch)});
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.below(static_cast<std::uint32_t>(left))]);
  }
  return order;
}

}  // namespace stash::data
