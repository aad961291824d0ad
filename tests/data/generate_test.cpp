// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "data/dataset.hpp"
#include "data/random.hpp"
#include "data/support.hpp"
#include "runtime/sha256.hpp"

namespace stash::data::test {
namespace {

template <class T>
std::string hash(const std::vector<T>& values) {
  runtime::sha256 h;
  h.update(std::as_bytes(std::span(values)));
  return h.hex();
}

// The published first outputs from the state 0.
TEST(splitmix64, known_answers) {
  splitmix64 random(std::initializer_list<std::uint64_t>{});
  for (const std::uint64_t expected : {0xE220A8397B1DCDAFU, 0x6E789E6AA1B965F4U, 0x06C45D188009454FU}) {
    EXPECT_EQ(random.next(), expected);
  }
}

TEST(splitmix64, differs_by_key) {
  splitmix64 a({1, 2}), same({1, 2}), b({2, 1}), c({1, 3}), d({1});
  const std::uint64_t first = a.next();
  EXPECT_EQ(first, same.next());
  EXPECT_NE(first, b.next());
  EXPECT_NE(first, c.next());
  EXPECT_NE(first, d.next());
  EXPECT_NE(first, a.next());
}

TEST(splitmix64, is_uniform_below_a_bound) {
  for (const std::uint32_t bound : {1U, 2U, 3U, 7U, 10U}) {
    std::vector<int> seen(bound);
    splitmix64 random({bound});
    for (int i = 0; i < 70000; ++i)
      ++seen[random.below(bound)];
    const int expected = 70000 / static_cast<int>(bound);
    for (const int count : seen)
      EXPECT_NEAR(count, expected, 1100) << bound;
  }
  // With a bound just above half of the range, rejection decides nearly every second draw.
  splitmix64 random({0});
  constexpr std::uint32_t bound = 0x80000001U;
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::uint32_t value = random.below(bound);
    ASSERT_LT(value, bound);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000 / bound, 0.5, 0.015);
}

TEST(generate, gives_the_same_bytes_everywhere) {
  const train_and_test grey = generate(28, 28, 1, 10, 200, 50, 1);
  EXPECT_EQ(hash(grey.train.images), "260091abafac1d67ee30e40ed3b2d4ea4f2d5f5053c6fdcda7672ce7423ae28a");
  EXPECT_EQ(hash(grey.test.images), "7e24db8f413bd82f141fd62af7b544da72874ea137f2f6c1da5d6fc54216691c");
  const train_and_test colour = generate(33, 31, 3, 7, 50, 20, 0xFFFFFFFFFFFFFFFFU);
  EXPECT_EQ(hash(colour.train.images), "50546aaebe9d6fdea58faa63e8e64173ff08b1366f02736b833ce9d636738ee9");
}

TEST(generate, fills_every_field) {
  const train_and_test both = generate(5, 6, 2, 3, 7, 4, 9);
  for (const dataset* d : {&both.train, &both.test}) {
    EXPECT_EQ(d->source, "generated (seed 9)");
    EXPECT_EQ(d->height, 5);
    EXPECT_EQ(d->width, 6);
    EXPECT_EQ(d->channels, 2);
    EXPECT_EQ(d->classes, 3);
    EXPECT_EQ(d->images.size(), static_cast<std::size_t>(d->count * 60));
    EXPECT_EQ(d->labels.size(), static_cast<std::size_t>(d->count));
  }
  EXPECT_EQ(both.train.count, 7);
  EXPECT_EQ(both.test.count, 4);
  EXPECT_EQ(both.train.labels, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(generate, balances_classes) {
  const train_and_test both = generate(1, 1, 1, 10, 1003, 99, 3);
  for (const dataset* d : {&both.train, &both.test}) {
    std::array<std::int64_t, 10> seen{};
    for (const std::int32_t label : d->labels)
      ++seen.at(static_cast<std::size_t>(label));
    const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
    EXPECT_LE(*most - *least, 1);
  }
}

TEST(generate, gives_other_images_for_another_seed_and_for_the_test) {
  const train_and_test a = generate(28, 28, 1, 10, 100, 100, 1);
  const train_and_test b = generate(28, 28, 1, 10, 100, 100, 2);
  EXPECT_NE(a.train.images, b.train.images);
  EXPECT_NE(a.train.images, a.test.images);
  for (std::ptrdiff_t i = 10; i < 100; ++i) {  // no image twice, not even of one class
    EXPECT_FALSE(std::equal(a.train.images.begin() + i * 784, a.train.images.begin() + (i + 1) * 784,
                            a.train.images.begin() + i % 10 * 784));
  }
}

TEST(generate, a_longer_set_begins_with_the_shorter_one) {
  const train_and_test few = generate(9, 9, 3, 4, 10, 5, 77);
  const train_and_test many = generate(9, 9, 3, 4, 30, 20, 77);
  EXPECT_TRUE(std::equal(few.train.images.begin(), few.train.images.end(), many.train.images.begin()));
  EXPECT_TRUE(std::equal(few.test.images.begin(), few.test.images.end(), many.test.images.begin()));
}

/// Correlation of two images around their means.
double correlation(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
  const double n = static_cast<double>(size);
  const double mean_a = std::accumulate(a, a + size, 0.0) / n;
  const double mean_b = std::accumulate(b, b + size, 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < size; ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

// The nearest of the training images by |correlation| names the class almost always: the pattern is there.
// The class means, the simplest linear rule, do much worse.
TEST(generate, can_be_learned_but_not_by_class_means) {
  const train_and_test both = generate(28, 28, 1, 10, 1000, 200, 5);
  constexpr std::size_t size = 784;
  std::vector<std::array<std::uint8_t, size>> means(10);
  for (std::size_t label = 0; label < 10; ++label) {
    for (std::size_t pixel = 0; pixel < size; ++pixel) {
      int sum = 0;
      for (std::size_t i = label; i < 1000; i += 10)
        sum += both.train.images[i * size + pixel];
      means[label][pixel] = static_cast<std::uint8_t>(sum / 100);
    }
  }
  int by_neighbour = 0, by_mean = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::uint8_t* image = both.test.images.data() + i * size;
    double best = 0, best_mean = -2;
    std::size_t neighbour = 0, mean = 0;
    for (std::size_t j = 0; j < 1000; ++j) {
      const double c = std::abs(correlation(image, both.train.images.data() + j * size, size));
      if (c > best) best = c, neighbour = j % 10;
    }
    for (std::size_t j = 0; j < 10; ++j) {
      const double c = correlation(image, means[j].data(), size);
      if (c > best_mean) best_mean = c, mean = j;
    }
    by_neighbour += neighbour == i % 10 ? 1 : 0;
    by_mean += mean == i % 10 ? 1 : 0;
  }
  EXPECT_GE(by_neighbour, 190);
  EXPECT_LE(by_mean, 150);
  EXPECT_GE(by_mean, 80);
}

TEST(generate, rejects_extents_out_of_range) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const auto expect_bad = [](const char* argument, const std::function<void()>& call) {
    expect_error(errc::invalid_argument, std::string("generate: ") + argument, call);
  };
  expect_bad("height", [] { generate(0, 1, 1, 1, 1, 1, 0); });
  expect_bad("height", [&] { generate(huge, 1, 1, 1, 1, 1, 0); });
  expect_bad("width", [] { generate(1, -1, 1, 1, 1, 1, 0); });
  expect_bad("width", [&] { generate(1, huge, 1, 1, 1, 1, 0); });
  expect_bad("channels", [] { generate(1, 1, 0, 1, 1, 1, 0); });
  expect_bad("channels", [] { generate(1, 1, 65537, 1, 1, 1, 0); });
  expect_bad("classes", [] { generate(1, 1, 1, 0, 1, 1, 0); });
  expect_bad("classes: expected 1..65536", [] { generate(1, 1, 1, 65537, 1, 1, 0); });
  expect_bad("classes: expected 1..8192", [] { generate(1, 1, 8, 8193, 1, 1, 0); });
  expect_bad("count", [] { generate(1, 1, 1, 1, -1, 1, 0); });
  expect_bad("count", [&] { generate(1, 1, 1, 1, 1, huge, 0); });
  expect_bad("count", [] { generate(65536, 65536, 65536, 1, 2147483647, 1, 0); });
  EXPECT_EQ(generate(1, 1, 1, 1, 0, 0, 0).train.count, 0);
  EXPECT_EQ(generate(1, 1, 1, 1, 1, 1, 0).train.images.size(), 1U);
}

TEST(epoch_order, is_a_permutation) {
  for (const std::int64_t count : {0, 1, 2, 3, 31, 32, 33, 1024, 60000}) {
    std::vector<std::int32_t> order = epoch_order(count, 11, 3);
    ASSERT_EQ(order.size(), static_cast<std::size_t>(count));
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(epoch_order, is_the_same_everywhere) {
  EXPECT_EQ(epoch_order(10, 1, 0), (std::vector<std::int32_t>{1, 9, 0, 7, 4, 2, 5, 3, 8, 6}));
  EXPECT_EQ(hash(epoch_order(60000, 42, 7)),
            "2eb485f344c05d57de4baa3754c0c4db42e05ce48ea8f4c15fe384553987913d");
}

TEST(epoch_order, depends_on_seed_and_epoch) {
  const auto order = epoch_order(100, 1, 2);
  EXPECT_EQ(order, epoch_order(100, 1, 2));
  EXPECT_NE(order, epoch_order(100, 2, 1));
  EXPECT_NE(order, epoch_order(100, 1, 3));
  EXPECT_NE(order, epoch_order(100, 2, 2));
}

TEST(epoch_order, puts_every_image_everywhere_equally_often) {
  constexpr int epochs = 20000;
  std::array<std::array<int, 5>, 5> seen{};
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto order = epoch_order(5, 1, epoch);
    for (std::size_t index = 0; index < 5; ++index)
      ++seen[index][static_cast<std::size_t>(order[index])];
  }
  for (const auto& counts : seen) {
    for (const int count : counts)
      EXPECT_NEAR(count, epochs / 5, 300);  // five deviations
  }
}

TEST(epoch_order, rejects_arguments_out_of_range) {
  expect_error(errc::invalid_argument, "epoch_order: count", [] { epoch_order(-1, 0, 0); });
  expect_error(errc::invalid_argument, "epoch_order: count", [] { epoch_order(2147483648, 0, 0); });
  expect_error(errc::invalid_argument, "epoch_order: epoch", [] { epoch_order(1, 0, -1); });
}

}  // namespace
}  // namespace stash::data::test
