// SPDX-License-Identifier: Apache-2.0
// Every step is integer arithmetic, so that a seed gives the same bytes with every compiler on every machine,
// and every image has a random stream of its own, so that a longer data set begins with the shorter one.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "data/dataset.hpp"
#include "data/images.hpp"
#include "data/random.hpp"
#include "stash/error.hpp"

namespace stash::data {
namespace {

enum stream : std::uint64_t { pattern_stream, train_stream, test_stream };

constexpr int max_shift = 2;
constexpr int cells = 8;           // the pattern is smooth over an eighth of the image
constexpr int knots = cells + 1;   // grid points along one side
constexpr int knot_range = 255;    // values -255..255
constexpr int unit = 256;          // one, in fixed-point weights and contrasts
constexpr int min_contrast = 96;   // an image keeps 3/8 ..
constexpr int max_contrast = 224;  // .. to 7/8 of its pattern's range
constexpr int noise_gain = 64;     // times a sum with deviation 148: 37 grey levels

/// The grid of one class and channel; the pattern is its bilinear interpolation.
using grid = std::array<std::array<int, knots>, knots>;

std::vector<grid> make_patterns(std::int64_t classes, std::int64_t channels, std::uint64_t seed) {
  std::vector<grid> patterns(static_cast<std::size_t>(classes * channels));
  splitmix64 random({seed, pattern_stream});
  for (grid& pattern : patterns) {
    for (auto& row : pattern) {
      for (int& knot : row) {
        knot = random.between(-knot_range, knot_range);
      }
    }
  }
  return patterns;
}

/// Where a pixel lies in the grid: the knot before it and the weight (of `unit`) of the knot after it.
struct knot_position {
  std::size_t knot;
  int weight;
};

/// Positions along one side. The grid spans the image and the margin that shifts need on either end.
std::vector<knot_position> knot_positions(std::int64_t extent) {
  std::vector<knot_position> found;
  const std::int64_t span = extent + std::int64_t{2} * max_shift;
  for (std::int64_t i = 0; i < span; ++i) {
    const std::int64_t fixed = i * (std::int64_t{cells} * unit) / span;
    found.push_back({static_cast<std::size_t>(fixed / unit), static_cast<int>(fixed % unit)});
  }
  return found;
}

int pattern_at(const grid& pattern, knot_position y, knot_position x) {
  const auto along_row = [&](std::size_t row) {
    return pattern[row][x.knot] * (unit - x.weight) + pattern[row][x.knot + 1] * x.weight;
  };
  return (along_row(y.knot) * (unit - y.weight) + along_row(y.knot + 1) * y.weight) / (unit * unit);
}

/// Close to normal: the sum of four uniform bytes, around zero. `bits` holds the four bytes.
int noise(std::uint32_t bits) {
  constexpr int mean = 4 * 255 / 2;
  const std::uint32_t sum = (bits & 0xFF) + (bits >> 8 & 0xFF) + (bits >> 16 & 0xFF) + (bits >> 24);
  return (static_cast<int>(sum) - mean) * noise_gain / unit;
}

class generator {
 public:
  generator(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes,
            std::uint64_t seed)
      : seed_(seed),
        classes_(classes),
        patterns_(make_patterns(classes, channels, seed)),
        rows_(knot_positions(height)),
        columns_(knot_positions(width)) {}

  void fill(dataset& d, stream purpose) const {
    d.source = fmt::format("generated (seed {})", seed_);
    d.classes = classes_;
    for (std::int64_t i = 0; i < d.count; ++i) {
      d.labels[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % classes_);
      draw(d, i, splitmix64({seed_, purpose, static_cast<std::uint64_t>(i)}));
    }
  }

 private:
  void draw(dataset& d, std::int64_t image, splitmix64 random) const {
    const knot_position* row = rows_.data() + random.below(2 * max_shift + 1);
    const knot_position* column = columns_.data() + random.below(2 * max_shift + 1);
    int contrast = random.between(min_contrast, max_contrast);
    // Light and dark are exchanged in a third of the images: no weighted sum of the pixels finds both kinds
    // of a class, so a linear classifier stays well below a small network.
    if (random.below(3) == 0) contrast = -contrast;
    const grid* pattern = patterns_.data() + image % classes_ * d.channels;
    std::uint8_t* pixel = d.images.data() + image * d.image_bytes();
    for (std::int64_t y = 0; y < d.height; ++y) {
      for (std::int64_t x = 0; x < d.width; ++x) {
        for (std::int64_t c = 0; c < d.channels; ++c) {
          const int signal = pattern_at(pattern[c], row[y], column[x]) * contrast / unit;
          const int grey = 128 + signal + noise(static_cast<std::uint32_t>(random.next() >> 32));
          *pixel++ = static_cast<std::uint8_t>(std::clamp(grey, 0, 255));
        }
      }
    }
  }

  std::uint64_t seed_;
  std::int64_t classes_;
  std::vector<grid> patterns_;
  std::vector<knot_position> rows_, columns_;
};

}  // namespace

train_and_test generate(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes,
                        std::int64_t train_count, std::int64_t test_count, std::uint64_t seed) {
  train_and_test made{make_images("generate", train_count, height, width, channels),
                      make_images("generate", test_count, height, width, channels)};
  if (const std::int64_t most = max_extent / channels; classes < 1 || classes > most) {
    throw error(
        errc::invalid_argument,
        fmt::format("generate: classes: expected 1..{} for {} channels, got {}", most, channels, classes));
  }
  const generator images(height, width, channels, classes, seed);
  images.fill(made.train, train_stream);
  images.fill(made.test, test_stream);
  return made;
}

}  // namespace stash::data
