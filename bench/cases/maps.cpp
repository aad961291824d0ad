#include <algorithm>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr std::int64_t map_width = 16;

std::int64_t height_of(std::int64_t bytes) {
  return bytes / 4 / map_width / map_channels;
}

}  // namespace

shape map_shape(std::int64_t bytes) {
  return {1, height_of(bytes), map_width, map_channels};
}

shape pooled_shape(std::int64_t bytes) {
  return {1, height_of(bytes) / 2, map_width / 2, map_channels};
}

std::shared_ptr<tensor> map_before_relu(const case_setup& setup) {
  auto x = std::make_shared<tensor>(map_shape(setup.bytes));
  fill_before_relu(x->values(), setup.input, map_channels);
  return x;
}

std::shared_ptr<tensor> map_after_relu(const case_setup& setup) {
  auto y = map_before_relu(setup);
  for (float& v : y->values())
    v = std::max(v, 0.0F);
  return y;
}

}  // namespace stash::bench
