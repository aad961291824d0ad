// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "data/images.hpp"
#include "stash/error.hpp"

namespace stash::data {
namespace {

namespace fs = std::filesystem;

/// The file of this name, plain before gz.
std::optional<std::string> find(const fs::path& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    fs::path candidate = folder / (name + ending);
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored)) return candidate.string();
  }
  return std::nullopt;
}

std::optional<train_and_test> load_idx(const fs::path& folder) {
  const auto train_images = find(folder, "train-images-idx3-ubyte");
  const auto train_labels = find(folder, "train-labels-idx1-ubyte");
  const auto test_images = find(folder, "t10k-images-idx3-ubyte");
  const auto test_labels = find(folder, "t10k-labels-idx1-ubyte");
  if (!train_images || !train_labels || !test_images || !test_labels) return std::nullopt;
  return train_and_test{read_idx(*train_images, *train_labels), read_idx(*test_images, *test_labels)};
}

std::optional<train_and_test> load_cifar10(const fs::path& folder) {
  std::vector<std::string> batches;
  for (int i = 1; i <= 5; ++i) {
    if (auto batch = find(folder, fmt::format("data_batch_{}.bin", i))) batches.push_back(*batch);
  }
  const auto test = find(folder, "test_batch.bin");
  if (batches.empty() || !test) return std::nullopt;
  return train_and_test{read_cifar10(batches), read_cifar10({*test})};
}

void require_same_extents(const train_and_test& both, const std::string& folder) {
  const dataset& a = both.train;
  const dataset& b = both.test;
  if (a.height != b.height || a.width != b.width) {
    throw error(errc::bad_format,
                fmt::format("load: {}: expected test images of {} x {} as for training, got {} x {}", folder,
                            a.height, a.width, b.height, b.width));
  }
}

}  // namespace

train_and_test load(const std::string& folder) {
  const fs::path path(folder);
  auto found = load_idx(path);
  if (!found) found = load_cifar10(path);
  if (!found) found = load_cifar10(path / "cifar-10-batches-bin");
  if (!found) {
    throw error(
        errc::io_failure,
        fmt::format("load: {}: expected the four IDX files {{train,t10k}}-images-idx3-ubyte and "
                    "{{train,t10k}}-labels-idx1-ubyte, or CIFAR-10's test_batch.bin and at least one of "
                    "data_batch_1..5.bin, here or in cifar-10-batches-bin, each plain or .gz; got a folder "
                    "without them",
                    folder));
  }
  require_same_extents(*found, folder);
  return std::move(*found);
}

dataset pad_to(const dataset& d, std::int64_t height, std::int64_t width) {
  if (height < d.height || width < d.width) {
    throw error(errc::invalid_argument,
                fmt::format("pad_to: height, width: expected at least {} x {}, got {} x {}", d.height,
                            d.width, height, width));
  }
  dataset padded = make_images("pad_to", d.count, height, width, d.channels);
  if (d.height < 1 || d.width < 1 || d.images.size() != static_cast<std::size_t>(d.count * d.image_bytes()) ||
      d.labels.size() != padded.labels.size()) {
    throw error(
        errc::invalid_argument,
        fmt::format(
            "pad_to: d: expected {} images of {} bytes and as many labels, got {} bytes and {} labels",
            d.count, d.image_bytes(), d.images.size(), d.labels.size()));
  }
  padded.source = d.source;
  padded.classes = d.classes;
  padded.labels = d.labels;
  const std::int64_t row_bytes = d.width * d.channels;
  const std::int64_t padded_row_bytes = width * d.channels;
  const std::int64_t top = (height - d.height) / 2;
  const std::int64_t left = (width - d.width) / 2 * d.channels;
  const std::uint8_t* from = d.images.data();
  for (std::int64_t image = 0; image < d.count; ++image) {
    std::uint8_t* to = padded.images.data() + image * padded.image_bytes() + top * padded_row_bytes + left;
    for (std::int64_t row = 0; row < d.height; ++row, from += row_bytes, to += padded_row_bytes) {
      std::copy(from, from + row_bytes, to);
    }
  }
  return padded;
}

}  // namespace stash::data
