// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>

#include "data/dataset.hpp"
#include "data/support.hpp"

namespace stash::data::test {
namespace {

void write_idx(const temporary_folder& folder, const std::string& ending, bool zipped) {
  const auto write = [&](const std::string& name, const bytes& content) {
    folder.write(name + ending, zipped ? gz(content) : content);
  };
  write("train-images-idx3-ubyte", idx_images(5, 4, 3));
  write("train-labels-idx1-ubyte", idx_labels(5));
  write("t10k-images-idx3-ubyte", idx_images(2, 4, 3));
  write("t10k-labels-idx1-ubyte", idx_labels(2));
}

TEST(load, finds_idx_files_plain_or_zipped) {
  for (const bool zipped : {false, true}) {
    for (const char* ending : {"", ".gz"}) {
      const temporary_folder folder;
      write_idx(folder, ending, zipped);
      const train_and_test both = load(folder.path());
      EXPECT_EQ(both.train.count, 5);
      EXPECT_EQ(both.test.count, 2);
      EXPECT_EQ(both.train.height, 4);
      EXPECT_EQ(both.train.width, 3);
      EXPECT_EQ(both.train.labels.size(), 5U);
    }
  }
}

TEST(load, finds_cifar_here_or_in_its_folder) {
  for (const std::string inside : {"", "cifar-10-batches-bin/"}) {
    const temporary_folder folder;
    folder.write(inside + "data_batch_2.bin.gz", gz(cifar_records(2, 2)));
    folder.write(inside + "data_batch_1.bin", cifar_records(1, 9));
    expect_error(errc::io_failure, "test_batch.bin", [&] { load(folder.path()); });
    folder.write(inside + "test_batch.bin", cifar_records(1, 4));
    const train_and_test both = load(folder.path());
    EXPECT_EQ(both.train.labels, (std::vector<std::int32_t>{9, 2, 3}));
    EXPECT_EQ(both.test.labels, (std::vector<std::int32_t>{4}));
  }
}

TEST(load, joins_all_five_cifar_batches_in_order) {
  const temporary_folder folder;
  for (std::size_t i = 1; i <= 6; ++i)
    folder.write("data_batch_" + std::to_string(i) + ".bin", cifar_records(1, i));
  folder.write("test_batch.bin", cifar_records(1));
  EXPECT_EQ(load(folder.path()).train.labels, (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
}

TEST(load, lists_what_it_looked_for) {
  const temporary_folder folder;
  for (const char* name :
       {"{train,t10k}-images-idx3-ubyte", "data_batch_1..5.bin", "cifar-10-batches-bin", ".gz"}) {
    expect_error(errc::io_failure, name, [&] { load(folder.path()); });
    expect_error(errc::io_failure, name, [&] { load(folder.path("nowhere")); });
    expect_error(errc::io_failure, name, [] { load(""); });
  }
}

TEST(load, needs_all_four_idx_files) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                           "t10k-labels-idx1-ubyte"}) {
    const temporary_folder folder;
    write_idx(folder, "", false);
    std::filesystem::remove(folder.path(name));
    expect_error(errc::io_failure, "idx3-ubyte", [&] { load(folder.path()); });
  }
}

TEST(load, names_the_damaged_file) {
  const temporary_folder folder;
  write_idx(folder, "", true);
  bytes damaged = gz(idx_labels(2));
  damaged[damaged.size() - 8] ^= 1;
  const std::string file = folder.write("t10k-labels-idx1-ubyte", damaged);
  expect_error(errc::bad_format, file, [&] { load(folder.path()); });
  expect_error(errc::bad_format, "incorrect data check", [&] { load(folder.path()); });
}

TEST(load, wants_training_and_test_images_of_one_size) {
  const temporary_folder folder;
  write_idx(folder, "", false);
  folder.write("t10k-images-idx3-ubyte", idx_images(2, 3, 4));
  expect_error(errc::bad_format, "expected test images of 4 x 3 as for training, got 3 x 4",
               [&] { load(folder.path()); });
}

TEST(load, reads_the_real_fashion_mnist) {
  const char* folder = getenv("STASH_DATA");
  if (folder == nullptr) GTEST_SKIP() << "STASH_DATA names no folder with Fashion-MNIST";
  const train_and_test both = load(folder);
  EXPECT_EQ(both.train.count, 60000);
  EXPECT_EQ(both.test.count, 10000);
  for (const dataset* d : {&both.train, &both.test}) {
    EXPECT_EQ(d->height, 28);
    EXPECT_EQ(d->width, 28);
    EXPECT_EQ(d->channels, 1);
    EXPECT_EQ(d->images.size(), static_cast<std::size_t>(d->count) * 784);
    std::map<std::int32_t, std::int64_t> histogram;
    for (const std::int32_t label : d->labels)
      ++histogram[label];
    EXPECT_EQ(histogram.size(), 10U);
    for (const auto& [label, count] : histogram)
      EXPECT_EQ(count, d->count / 10) << label;
  }
}

TEST(pad_to, centres_images_among_zeros) {
  dataset d = parse_idx(idx_images(2, 2, 3), idx_labels(2), "small");
  for (auto& pixel : d.images)
    ++pixel;
  const dataset padded = pad_to(d, 5, 5);
  EXPECT_EQ(padded.source, "small");
  EXPECT_EQ(padded.labels, d.labels);
  EXPECT_EQ(padded.height, 5);
  EXPECT_EQ(padded.width, 5);
  EXPECT_EQ(padded.count, 2);
  EXPECT_EQ(padded.images,
            (bytes{0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4,  5,  6,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                   0, 0, 0, 0, 0, 0, 7, 8, 9, 0, 0, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pad_to(d, 2, 3).images, d.images);
}

TEST(pad_to, keeps_channels_together) {
  dataset d;
  parse_cifar10(cifar_records(2), "colour", d);
  const dataset padded = pad_to(d, 36, 40);
  for (std::int64_t image = 0; image < 2; ++image) {
    for (std::int64_t y = 0; y < 36; ++y) {
      for (std::int64_t x = 0; x < 40; ++x) {
        for (std::int64_t c = 0; c < 3; ++c) {
          const bool inside = y >= 2 && y < 34 && x >= 4 && x < 36;
          const auto from = static_cast<std::size_t>(((image * 32 + y - 2) * 32 + x - 4) * 3 + c);
          const auto to = static_cast<std::size_t>(((image * 36 + y) * 40 + x) * 3 + c);
          ASSERT_EQ(padded.images[to], inside ? d.images[from] : 0);
        }
      }
    }
  }
}

TEST(pad_to, rejects_what_it_cannot_do) {
  const dataset d = parse_idx(idx_images(2, 3, 4), idx_labels(2), "");
  expect_error(errc::invalid_argument, "expected at least 3 x 4, got 2 x 4", [&] { pad_to(d, 2, 4); });
  expect_error(errc::invalid_argument, "expected at least 3 x 4, got 3 x 3", [&] { pad_to(d, 3, 3); });
  expect_error(errc::invalid_argument, "expected at least 3 x 4", [&] { pad_to(d, -1, 4); });
  expect_error(errc::invalid_argument, "height", [&] { pad_to(d, std::int64_t{1} << 40, 4); });
  expect_error(errc::invalid_argument, "width", [&] { pad_to(d, 3, 65537); });
  dataset wrong = d;
  wrong.images.pop_back();
  expect_error(errc::invalid_argument, "d: expected 2 images", [&] { pad_to(wrong, 5, 5); });
  wrong = d;
  wrong.labels.push_back(0);
  expect_error(errc::invalid_argument, "3 labels", [&] { pad_to(wrong, 5, 5); });
  wrong = d;
  wrong.count = -1;
  expect_error(errc::invalid_argument, "count", [&] { pad_to(wrong, 5, 5); });
  wrong = d;
  wrong.height = -3;
  expect_error(errc::invalid_argument, "d: expected 2 images", [&] { pad_to(wrong, 5, 5); });
  expect_error(errc::invalid_argument, "channels", [] { pad_to(dataset{}, 5, 5); });
}

}  // namespace
}  // namespace stash::data::test
