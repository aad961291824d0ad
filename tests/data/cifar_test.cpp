// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "data/dataset.hpp"
#include "data/support.hpp"

namespace stash::data::test {
namespace {

void expect_bad(const std::string& fragment, const bytes& records) {
  dataset d;
  parse_cifar10(cifar_records(2), "first", d);
  const dataset before = d;
  expect_error(errc::bad_format, fragment, [&] { parse_cifar10(records, "some file", d); });
  expect_error(errc::bad_format, "some file", [&] { parse_cifar10(records, "some file", d); });
  EXPECT_EQ(d.count, before.count);
  EXPECT_EQ(d.images, before.images);
  EXPECT_EQ(d.labels, before.labels);
}

TEST(cifar10, turns_planes_into_channels_last) {
  dataset d;
  parse_cifar10(cifar_records(3, 7), "hand-made", d);
  EXPECT_EQ(d.source, "hand-made");
  EXPECT_EQ(d.count, 3);
  EXPECT_EQ(d.height, 32);
  EXPECT_EQ(d.width, 32);
  EXPECT_EQ(d.channels, 3);
  EXPECT_EQ(d.classes, 10);
  EXPECT_EQ(d.labels, (std::vector<std::int32_t>{7, 8, 9}));
  ASSERT_EQ(d.images.size(), 3U * 3072U);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t p = 0; p < 1024; ++p) {
      for (std::size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(d.images[(i * 1024 + p) * 3 + c], static_cast<std::uint8_t>(p * 3 + c * 7 + i));
      }
    }
  }
}

TEST(cifar10, appends) {
  dataset d, whole;
  parse_cifar10(cifar_records(2), "a", d);
  parse_cifar10(cifar_records(1, 5), "b", d);
  EXPECT_EQ(d.source, "a");
  EXPECT_EQ(d.count, 3);
  EXPECT_EQ(d.labels, (std::vector<std::int32_t>{0, 1, 5}));
  EXPECT_EQ(d.images.size(), 3U * 3072U);
}

TEST(cifar10, appends_only_to_its_like) {
  dataset d = parse_idx(idx_images(1, 32, 32), idx_labels(1), "grey");
  expect_error(errc::invalid_argument, "append_to", [&] { parse_cifar10(cifar_records(1), "colour", d); });
  EXPECT_EQ(d.count, 1);
}

TEST(cifar10, reads_files_plain_and_zipped) {
  const temporary_folder folder;
  const auto d =
      read_cifar10({folder.write("a.bin", cifar_records(2)), folder.write("b", gz(cifar_records(2)))});
  EXPECT_EQ(d.count, 4);
  EXPECT_TRUE(std::equal(d.images.begin(), d.images.begin() + 2 * 3072, d.images.begin() + 2 * 3072));
  expect_error(errc::invalid_argument, "files", [] { read_cifar10({}); });
  expect_error(errc::io_failure, "nowhere", [&] { read_cifar10({folder.path("nowhere")}); });
}

TEST(cifar10, rejects_what_is_not_whole_records) {
  bytes records = cifar_records(2);
  expect_bad("got 0 bytes", {});
  expect_bad("0 records and 1 trailing", {0});
  records.pop_back();
  expect_bad("1 records and 3072 trailing", records);
  records.resize(2 * 3073 + 1);
  expect_bad("2 records and 1 trailing", records);
}

TEST(cifar10, rejects_labels_out_of_range) {
  bytes records = cifar_records(3);
  records[3073] = 10;
  expect_bad("label 10 out of range in record 1", records);
  records[3073] = 255;
  expect_bad("label 255 out of range in record 1", records);
}

}  // namespace
}  // namespace stash::data::test
