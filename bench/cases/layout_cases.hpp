// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Layout problems made from a seed, the same on every platform: what the tests and the benchmark of the
/// layout solver place.

#include <cstdint>
#include <vector>

#include "planner/layout/layout.hpp"

namespace stash::bench {

/// A rectangle of `capacity` bytes and `moments` moments, cut into blocks. So a layout within the capacity
/// exists, and max-live equals the capacity as long as `holes` leaves one moment full.
struct cut_settings {
  std::uint64_t seed = 1;
  std::int64_t blocks = 200;  ///< at least 1; holes come on top
  std::int64_t live = 40;     ///< at most so many blocks (and holes) at once; at least 1
  double holes = 0;           ///< share of the parts that are cut out and left empty, from 0 to below 1
  std::int64_t capacity = std::int64_t{1} << 20;
  std::int64_t moments = 1'000'000;
  std::int64_t grain = 512;  ///< divides all sizes and the capacity
};

/// In random order. Throws error(invalid_argument) for settings out of range, or too many blocks for the
/// moments and bytes that there are.
std::vector<planner::layout_block> cut_rectangle(const cut_settings& settings);

/// A step of a large language model under training: kept activations and gradients that live long, and
/// thousands of short-lived blocks between them.
struct step_settings {
  std::uint64_t seed = 1;
  std::int64_t layers = 32;             ///< at least 1
  std::int64_t blocks_per_layer = 580;  ///< about; forward and backward together, at least 20
  double odd = 0;  ///< share of the blocks whose size is none of those that repeat, 0 to 1
};

/// By begin. About layers * blocks_per_layer blocks; sizes are multiples of 512 bytes. Throws
/// error(invalid_argument) for settings out of range.
std::vector<planner::layout_block> model_step(const step_settings& settings);

/// The hundred problems of the benchmark: 100 to 500 blocks, 20 to 60 of them at once, a capacity of 2^20
/// bytes, a third each with no holes, 2 % and 5 %. `number` counts from 0.
cut_settings cut_number(std::int64_t number);

/// The steps of the benchmark: 16, 24 or 32 layers, up to 20,000 blocks, a third each with no odd sizes, 2 %
/// and 10 %. `number` counts from 0.
step_settings step_number(std::int64_t number);

}  // namespace stash::bench
