// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/input.hpp"

#include <fmt/format.h>

#include <vector>

namespace stash::bench {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a gibibyte of values
// is made in a second or two.
class generator {
 public:
  std::uint64_t next() noexcept {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_ = 7;
};

// Two independent numbers of one draw: the upper 24 bits give a size in (0, 4], the lower 32 a choice in [0,
// 1).
float size_of_draw(std::uint64_t draw) {
  return static_cast<float>((draw >> 40) + 1) * 0x1p-22F;
}

double choice_of_draw(std::uint64_t draw) {
  return static_cast<double>(draw & 0xFFFFFFFFU) * 0x1p-32;
}

void fill_independent(std::span<float> values, double density) {
  generator random;
  for (float& v : values) {
    const std::uint64_t draw = random.next();
    v = choice_of_draw(draw) < density ? size_of_draw(draw) : -size_of_draw(draw);
  }
}

void fill_dead_channels(std::span<float> values, double density, std::int64_t channels) {
  generator random;
  std::vector<float> sign(static_cast<std::size_t>(channels), -1.0F);
  // Selection sampling, so that the share is met as exactly as whole channels allow.
  auto needed = static_cast<std::int64_t>(static_cast<double>(channels) * density + 0.5);
  for (std::int64_t c = 0; c < channels; ++c) {
    if (choice_of_draw(random.next()) * static_cast<double>(channels - c) >= static_cast<double>(needed))
      continue;
    sign[static_cast<std::size_t>(c)] = 1.0F;
    --needed;
  }
  for (std::size_t pixel = 0; pixel < values.size(); pixel += sign.size()) {
    for (std::size_t c = 0; c < sign.size(); ++c)
      values[pixel + c] = sign[c] * size_of_draw(random.next());
  }
}

void fill_clustered(std::span<float> values, double density) {
  generator random;
  const double leave_zero = 1 / mean_zero_run;
  const double leave_nonzero = leave_zero * (1 - density) / density;
  bool zero = false;
  for (float& v : values) {
    const std::uint64_t draw = random.next();
    if (choice_of_draw(draw) < (zero ? leave_zero : leave_nonzero)) zero = !zero;
    v = zero ? -size_of_draw(draw) : size_of_draw(draw);
  }
}

const char* name_of(zero_pattern zeros) {
  switch (zeros) {
    case zero_pattern::independent:
      return "iid";
    case zero_pattern::dead_channels:
      return "dead_channels";
    case zero_pattern::clustered:
      return "clustered";
  }
  return "";
}

}  // namespace

std::string to_string(const map_input& input) {
  return fmt::format("{}_{}", name_of(input.zeros), input.density);
}

void fill_before_relu(std::span<float> values, const map_input& input, std::int64_t channels) {
  switch (input.zeros) {
    case zero_pattern::independent:
      return fill_independent(values, input.density);
    case zero_pattern::dead_channels:
      return fill_dead_channels(values, input.density, channels);
    case zero_pattern::clustered:
      return fill_clustered(values, input.density);
  }
}

}  // namespace stash::bench
