// SPDX-License-Identifier: Apache-2.0
// The binary version of CIFAR-10: records of one label byte and 32 x 32 pixels as three planes (red, green,
// blue).

#include <fmt/format.h>

#include "data/dataset.hpp"
#include "data/gz.hpp"
#include "stash/error.hpp"

namespace stash::data {
namespace {

constexpr std::int64_t side = 32;
constexpr std::int64_t colours = 3;
constexpr std::int64_t classes = 10;
constexpr std::size_t plane_bytes = side * side;
constexpr std::size_t record_bytes = 1 + colours * plane_bytes;

void require_capacity(const dataset& d) {
  if (d.count == 0 && d.images.empty() && d.labels.empty()) return;
  if (d.height != side || d.width != side || d.channels != colours || d.classes != classes) {
    throw error(
        errc::invalid_argument,
        fmt::format("parse_cifar10: append_to: expected an empty data set or 32 x 32 x 3 with 10 classes, "
                    "got {} x {} x {} with {}",
                    d.height, d.width, d.channels, d.classes));
  }
}

void require_records(const std::vector<std::uint8_t>& records, const std::string& source) {
  if (records.empty() || records.size() % record_bytes != 0) {
    throw error(
        errc::bad_format,
        fmt::format("parse_cifar10: {}: expected whole records of {} bytes, got {} bytes: {} records and {} "
                    "trailing bytes, or a truncated file",
                    source, record_bytes, records.size(), records.size() / record_bytes,
                    records.size() % record_bytes));
  }
  for (std::size_t at = 0; at < records.size(); at += record_bytes) {
    if (records[at] >= classes) {
      throw error(
          errc::bad_format,
          fmt::format("parse_cifar10: {}: expected labels 0..{}, got label {} out of range in record {}",
                      source, classes - 1, records[at], at / record_bytes));
    }
  }
}

}  // namespace

void parse_cifar10(const std::vector<std::uint8_t>& records, const std::string& source, dataset& append_to) {
  require_capacity(append_to);
  require_records(records, source);
  const std::size_t count = records.size() / record_bytes;
  dataset& d = append_to;
  d.images.reserve(d.images.size() + count * (record_bytes - 1));
  d.labels.reserve(d.labels.size() + count);
  if (d.source.empty()) d.source = source;
  d.count += static_cast<std::int64_t>(count);
  d.height = d.width = side;
  d.channels = colours;
  d.classes = classes;
  for (std::size_t at = 0; at < records.size(); at += record_bytes) {
    d.labels.push_back(records[at]);
    const std::uint8_t* red = records.data() + at + 1;
    for (std::size_t pixel = 0; pixel < plane_bytes; ++pixel) {
      d.images.push_back(red[pixel]);
      d.images.push_back(red[pixel + plane_bytes]);
      d.images.push_back(red[pixel + 2 * plane_bytes]);
    }
  }
}

dataset read_cifar10(const std::vector<std::string>& files) {
  if (files.empty()) {
    throw error(errc::invalid_argument, "read_cifar10: files: expected at least one file, got none");
  }
  dataset d;
  for (const std::string& file : files)
    parse_cifar10(read_maybe_gz(file), file, d);
  return d;
}

}  // namespace stash::data
