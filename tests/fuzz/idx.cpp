// SPDX-License-Identifier: Apache-2.0
// The IDX reader, plain and gz: two files of unknown content.

#include "data/dataset.hpp"
#include "data/gz.hpp"
#include "fuzz/data_checks.hpp"

namespace stash::fuzz {
namespace {

struct idx_header {
  std::uint16_t images_bytes = 0;  ///< of the bytes after the header; the rest are the labels
};

bytes file(std::uint32_t magic, std::initializer_list<std::uint32_t> extents, std::size_t content) {
  bytes out;
  const auto append = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
      out.push_back(static_cast<std::uint8_t>(value >> shift));
  };
  append(magic);
  for (const std::uint32_t extent : extents)
    append(extent);
  for (std::size_t i = 0; i < content; ++i)
    out.push_back(static_cast<std::uint8_t>(i % 10));
  return out;
}

bytes joined(const bytes& images, const bytes& labels) {
  bytes rest = images;
  rest.insert(rest.end(), labels.begin(), labels.end());
  return with_header(idx_header{static_cast<std::uint16_t>(images.size())}, rest);
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const auto header = take<idx_header>(input);
  const std::size_t split = std::min<std::size_t>(header.images_bytes, input.size());
  const bytes images(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(split));
  const bytes labels(input.begin() + static_cast<std::ptrdiff_t>(split), input.end());
  constexpr std::size_t limit = 1 << 16;
  accepts_or_refuses([&] {
    const data::dataset d = data::parse_idx(data::unzip_if_gz(images, "images", limit),
                                            data::unzip_if_gz(labels, "labels", limit), "fuzz");
    require_consistent(d);
    require(d.image_bytes() * d.count <= static_cast<std::int64_t>(limit), "no more pixels than bytes");
  });
}

std::vector<bytes> seeds() {
  const bytes images = file(0x803, {3, 4, 2}, 24), labels = file(0x801, {3}, 3);
  return {joined(images, labels), joined(zipped(images), labels), joined(images, zipped(labels)),
          joined(file(0x803, {1, 1, 1}, 1), file(0x801, {1}, 1))};
}

}  // namespace stash::fuzz
