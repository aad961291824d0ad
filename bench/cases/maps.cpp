// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

std::int64_t height_of(std::int64_t bytes, std::int64_t width) {
  return bytes / 4 / width / map_channels;
}

/// Of images of 224 pixels after a first layer, where there is memory for half of one.
std::int64_t pool_width(std::int64_t bytes) {
  constexpr std::int64_t wide = 112;
  return height_of(bytes, wide) < wide / 2 ? 16 : wide;
}

std::shared_ptr<tensor> filled(const shape& dims, const map_input& input) {
  auto x = std::make_shared<tensor>(dims);
  fill_before_relu(x->values(), input, map_channels);
  return x;
}

}  // namespace

shape map_shape(std::int64_t bytes) {
  return {1, height_of(bytes, 16), 16, map_channels};
}

shape pool_map_shape(std::int64_t bytes) {
  const std::int64_t width = pool_width(bytes);
  return {1, height_of(bytes, width) / 2 * 2, width, map_channels};
}

shape pooled_shape(std::int64_t bytes) {
  const std::int64_t width = pool_width(bytes);
  return {1, height_of(bytes, width) / 2, width / 2, map_channels};
}

std::shared_ptr<tensor> map_before_relu(const case_setup& setup) {
  return filled(map_shape(setup.bytes), setup.input);
}

std::shared_ptr<tensor> pool_map_before_relu(const case_setup& setup) {
  return filled(pool_map_shape(setup.bytes), setup.input);
}

std::shared_ptr<tensor> map_after_relu(const case_setup& setup) {
  auto y = map_before_relu(setup);
  for (float& v : y->values())
    v = std::max(v, 0.0F);
  return y;
}

}  // namespace stash::bench
