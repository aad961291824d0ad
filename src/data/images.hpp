// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory for the images of a data set whose extents come from a caller.

#include "data/dataset.hpp"

namespace stash::data {

/// Largest height, width or channel count accepted from a caller.
inline constexpr std::int64_t max_extent = 65536;

/// An all-zero data set of these extents, labels included. Throws error(invalid_argument) that names
/// `function` and the extent that is out of range (1..max_extent, count 0..2^31-1) or if the bytes cannot be
/// counted, and error(out_of_memory) with the size.
dataset make_images(const char* function, std::int64_t count, std::int64_t height, std::int64_t width,
                    std::int64_t channels);

}  // namespace stash::data
