// SPDX-License-Identifier: Apache-2.0
// IDX, the format of MNIST and Fashion-MNIST: a magic number 0 0 <type> <dimensions>, each dimension as a
// big-endian u32, then the elements, last dimension fastest.

#include <fmt/format.h>

#include "data/dataset.hpp"
#include "data/gz.hpp"
#include "stash/error.hpp"

namespace stash::data {
namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t images_magic = 0x00000803;  // u8, three dimensions
constexpr std::uint32_t labels_magic = 0x00000801;  // u8, one dimension
constexpr std::size_t images_header = 16;
constexpr std::size_t labels_header = 8;

[[noreturn]] void fail(const std::string& source, const char* part, const std::string& expected_and_got) {
  throw error(errc::bad_format,
              fmt::format("parse_idx: {}: {}: expected {}", source, part, expected_and_got));
}

std::uint32_t big_endian_u32(const bytes& file, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = (value << 8) | file[offset + i];
  return value;
}

void require_header(const bytes& file, std::size_t header, std::uint32_t magic, const std::string& source,
                    const char* part) {
  if (file.size() < header) {
    fail(source, part, fmt::format("a header of {} bytes, got a truncated one of {}", header, file.size()));
  }
  if (const std::uint32_t got = big_endian_u32(file, 0); got != magic) {
    fail(source, part, fmt::format("magic number {:#010x}, got {:#010x}", magic, got));
  }
}

/// Sets the extents of `d` from the header after having held them against the bytes that are there. The
/// products are written out in messages, not computed: three fields of a bad header need 96 bits.
void parse_images(const bytes& file, const std::string& source, dataset& d) {
  require_header(file, images_header, images_magic, source, "images");
  const std::uint64_t count = big_endian_u32(file, 4);
  const std::uint64_t height = big_endian_u32(file, 8);
  const std::uint64_t width = big_endian_u32(file, 12);
  const std::string extents = fmt::format("{} + {} x {} x {} bytes", images_header, count, height, width);
  if (count == 0 || height == 0 || width == 0) {
    fail(source, "images", fmt::format("at least one image of at least one pixel, got {}", extents));
  }
  const std::uint64_t pixels = height * width;
  const std::uint64_t available = file.size() - images_header;
  if (available / pixels < count) {
    fail(source, "images", fmt::format("{}, got a truncated file of {} bytes", extents, file.size()));
  }
  if (const std::uint64_t trailing = available - count * pixels; trailing != 0) {
    fail(source, "images", fmt::format("{}, got {} trailing bytes", extents, trailing));
  }
  d.count = static_cast<std::int64_t>(count);
  d.height = static_cast<std::int64_t>(height);
  d.width = static_cast<std::int64_t>(width);
  d.channels = 1;
  d.images.assign(file.begin() + images_header, file.end());
}

void parse_labels(const bytes& file, const std::string& source, dataset& d) {
  require_header(file, labels_header, labels_magic, source, "labels");
  const std::uint64_t count = big_endian_u32(file, 4);
  const std::uint64_t available = file.size() - labels_header;
  if (available < count) {
    fail(source, "labels",
         fmt::format("{} + {} bytes, got a truncated file of {} bytes", labels_header, count, file.size()));
  }
  if (available > count) {
    fail(source, "labels",
         fmt::format("{} + {} bytes, got {} trailing bytes", labels_header, count, available - count));
  }
  if (count != static_cast<std::uint64_t>(d.count)) {
    fail(source, "labels", fmt::format("one label for each of {} images, got a count of {}", d.count, count));
  }
  d.labels.assign(file.begin() + labels_header, file.end());
  for (std::size_t i = 0; i < d.labels.size(); ++i) {
    if (d.labels[i] >= d.classes) {
      fail(source, "labels",
           fmt::format("labels 0..{}, got label {} out of range at image {}", d.classes - 1, d.labels[i], i));
    }
  }
}

}  // namespace

dataset parse_idx(const bytes& images, const bytes& labels, const std::string& source) {
  dataset d;
  d.source = source;
  parse_images(images, source, d);
  parse_labels(labels, source, d);
  return d;
}

dataset read_idx(const std::string& images_file, const std::string& labels_file) {
  return parse_idx(read_maybe_gz(images_file), read_maybe_gz(labels_file), images_file);
}

}  // namespace stash::data
