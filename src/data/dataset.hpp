// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Labelled images from files (IDX, CIFAR-10 binary) or from a seeded generator.

#include <cstdint>
#include <string>
#include <vector>

namespace stash::data {

/// Images are uint8, N x H x W x C (channels-last, whatever the file's order); labels are 0..classes-1.
struct dataset {
  std::string source;  ///< where it came from, for messages
  std::int64_t count = 0, height = 0, width = 0, channels = 0, classes = 10;
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;

  std::int64_t image_bytes() const noexcept { return height * width * channels; }
};

struct train_and_test {
  dataset train, test;
};

/// Reads a folder: MNIST/Fashion-MNIST IDX files (train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz],
/// t10k-...) or CIFAR-10 binary (data_batch_1..5.bin, test_batch.bin, each plain or .gz; also inside a
/// cifar-10-batches-bin subfolder; at least one data_batch and the test_batch). Throws error(io_failure) if
/// nothing of the kind is there (message lists what was looked for) and error(bad_format) that says what is
/// wrong with a file: magic, counts, truncated (expected and found bytes), trailing bytes, label out of
/// range, gz checksum.
train_and_test load(const std::string& folder);

/// Single files. `read_*` accept plain or gz content (recognised by its first bytes, not by its name).
dataset read_idx(const std::string& images_file, const std::string& labels_file);
dataset read_cifar10(const std::vector<std::string>& files);

/// Parsers on bytes in memory (already unzipped); any bytes are safe: extents are held against the bytes that
/// are there before anything is allocated. Throw error(bad_format) as above. `append_to` is empty or holds
/// CIFAR-10 images (else error(invalid_argument)) and is unchanged after an error.
dataset parse_idx(const std::vector<std::uint8_t>& images, const std::vector<std::uint8_t>& labels,
                  const std::string& source);
void parse_cifar10(const std::vector<std::uint8_t>& records, const std::string& source, dataset& append_to);

/// Learnable synthetic images: each class is a smooth seeded pattern; an image is its class pattern, shifted
/// by up to two pixels, scaled in contrast (light and dark swapped in a third of the images), plus noise.
/// Image i has class i % classes, and a longer set begins with the shorter one. The same bytes for a seed on
/// every platform. A LeNet learns it in an epoch of a few thousand images; a linear classifier stays near 65
/// % of ten classes. Throws error(invalid_argument) for extents outside 1..65,536, counts outside 0..2^31-1
/// and classes x channels above 65,536, and error(out_of_memory).
train_and_test generate(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes,
                        std::int64_t train_count, std::int64_t test_count, std::uint64_t seed);

/// Order of the training images in one epoch: a permutation of 0..count-1 from (seed, epoch), the same on
/// every platform. Throws error(invalid_argument) for a count outside 0..2^31-1 or a negative epoch.
std::vector<std::int32_t> epoch_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

/// Zero-pads images evenly to height x width (28x28 into 32x32); of an odd difference the larger half goes
/// below and to the right. Throws error(invalid_argument) if the new size is smaller or above 65,536, or if
/// `d` contradicts itself, and error(out_of_memory).
dataset pad_to(const dataset& d, std::int64_t height, std::int64_t width);

}  // namespace stash::data
