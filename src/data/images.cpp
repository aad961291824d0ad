// SPDX-License-Identifier: Apache-2.0
#include "data/images.hpp"

#include <fmt/format.h>

#include <limits>
#include <new>

#include "stash/error.hpp"

namespace stash::data {
namespace {

void require_extent(const char* function, const char* argument, std::int64_t value, std::int64_t least,
                    std::int64_t most) {
  if (value < least || value > most) {
    throw error(errc::invalid_argument,
                fmt::format("{}: {}: expected {}..{}, got {}", function, argument, least, most, value));
  }
}

}  // namespace

dataset make_images(const char* function, std::int64_t count, std::int64_t height, std::int64_t width,
                    std::int64_t channels) {
  require_extent(function, "count", count, 0, std::numeric_limits<std::int32_t>::max());
  require_extent(function, "height", height, 1, max_extent);
  require_extent(function, "width", width, 1, max_extent);
  require_extent(function, "channels", channels, 1, max_extent);

  dataset made;
  made.count = count;
  made.height = height;
  made.width = width;
  made.channels = channels;
  // 2^48 bytes an image at most, so only the count can take the product out of range.
  if (count > std::numeric_limits<std::ptrdiff_t>::max() / made.image_bytes()) {
    throw error(errc::invalid_argument,
                fmt::format("{}: count: expected images that can be addressed, got {} x {} x {} x {}",
                            function, count, height, width, channels));
  }
  const auto bytes = static_cast<std::size_t>(count * made.image_bytes());
  try {
    made.images.resize(bytes);
    made.labels.resize(static_cast<std::size_t>(count));
  } catch (const std::bad_alloc&) {
    throw error(errc::out_of_memory,
                fmt::format("{}: expected {} bytes for the images, got none", function, bytes));
  }
  return made;
}

}  // namespace stash::data
