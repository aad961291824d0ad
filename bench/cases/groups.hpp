// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The cases by theme, as cases.cpp puts them together, and the map that they have in common.

#include <memory>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/tensors.hpp"

namespace stash::bench {

std::vector<bench_case> encode_cases();
std::vector<bench_case> relu_cases();
std::vector<bench_case> pool_cases();
std::vector<bench_case> dropout_cases();
std::vector<bench_case> batch_cases();

/// As encode_cases() names them. What narrows values keeps signs exact (keep_nonzero).
std::vector<encoding> benched_encodings();

/// Those that batches are measured with, and a batch: so many maps of so many f32.
std::vector<encoding> batched_encodings();
inline constexpr std::int64_t batch_items = 32, batch_item_elements = 64 << 10;

inline constexpr std::int64_t map_channels = 64;

/// (1, H, 16, 64).
shape map_shape(std::int64_t bytes);
/// What is pooled: large maps have rows as long as those of networks, which decides how memory is read. The
/// last row of windows is whole, so a few bytes may be missing.
shape pool_map_shape(std::int64_t bytes);
/// The same after pooling by two.
shape pooled_shape(std::int64_t bytes);

/// The map before and after the ReLU. Shared, because prepared calls are copied.
std::shared_ptr<tensor> map_before_relu(const case_setup& setup);
std::shared_ptr<tensor> pool_map_before_relu(const case_setup& setup);
std::shared_ptr<tensor> map_after_relu(const case_setup& setup);

}  // namespace stash::bench
