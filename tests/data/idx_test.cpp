// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "data/dataset.hpp"
#include "data/support.hpp"

namespace stash::data::test {
namespace {

void expect_bad(const std::string& fragment, const bytes& images, const bytes& labels) {
  expect_error(errc::bad_format, fragment, [&] { parse_idx(images, labels, "some file"); });
  expect_error(errc::bad_format, "some file", [&] { parse_idx(images, labels, "some file"); });
}

bytes with_fields(bytes file, std::initializer_list<std::uint32_t> fields) {
  bytes header;
  for (const std::uint32_t field : fields)
    append_u32(header, field);
  std::copy(header.begin(), header.end(), file.begin());
  return file;
}

TEST(idx, reads_what_was_written) {
  const dataset d = parse_idx(idx_images(3, 4, 5), idx_labels(3), "hand-made");
  EXPECT_EQ(d.source, "hand-made");
  EXPECT_EQ(d.count, 3);
  EXPECT_EQ(d.height, 4);
  EXPECT_EQ(d.width, 5);
  EXPECT_EQ(d.channels, 1);
  EXPECT_EQ(d.classes, 10);
  EXPECT_EQ(d.image_bytes(), 20);
  ASSERT_EQ(d.images.size(), 60U);
  for (std::size_t i = 0; i < 60; ++i)
    EXPECT_EQ(d.images[i], i);
  EXPECT_EQ(d.labels, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(idx, reads_the_smallest_file_and_every_label) {
  EXPECT_EQ(parse_idx(idx_images(1, 1, 1), idx_labels(1), "").images, bytes{0});
  EXPECT_EQ(parse_idx(idx_images(10, 1, 1), idx_labels(10), "").labels.back(), 9);
}

TEST(idx, reads_files_plain_and_zipped_whatever_their_name) {
  const temporary_folder folder;
  const auto plain = read_idx(folder.write("a", idx_images(2, 3, 3)), folder.write("b.gz", idx_labels(2)));
  const auto zipped =
      read_idx(folder.write("c", gz(idx_images(2, 3, 3))), folder.write("d", gz(idx_labels(2))));
  EXPECT_EQ(plain.images, zipped.images);
  EXPECT_EQ(plain.labels, zipped.labels);
  EXPECT_EQ(plain.source, folder.path("a"));
  expect_error(errc::io_failure, "nowhere", [&] { read_idx(folder.path("nowhere"), folder.path("b.gz")); });
}

TEST(idx, rejects_other_magic_numbers) {
  const bytes images = idx_images(2, 3, 3);
  const bytes labels = idx_labels(2);
  expect_bad("magic number 0x00000803, got 0x00000801", idx_labels(20), images);  // swapped
  expect_bad("magic number 0x00000803, got 0x00000802", with_fields(images, {0x802}), labels);
  expect_bad("magic number 0x00000803, got 0x03080000", with_fields(images, {0x03080000}), labels);
  expect_bad("magic number 0x00000801, got 0x00000803", images, images);
  expect_bad("magic number", bytes(16), labels);
}

TEST(idx, rejects_truncated_files_with_the_bytes_found) {
  const bytes images = idx_images(2, 3, 3);
  const bytes labels = idx_labels(2);
  for (std::size_t size = 0; size < images.size(); ++size) {
    expect_bad("truncated", bytes(images.begin(), images.begin() + static_cast<std::ptrdiff_t>(size)),
               labels);
  }
  for (std::size_t size = 0; size < labels.size(); ++size) {
    expect_bad("truncated", images,
               bytes(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  expect_bad("header of 16 bytes, got a truncated one of 15", bytes(images.begin(), images.begin() + 15),
             labels);
  expect_bad("16 + 2 x 3 x 3 bytes, got a truncated file of 33 bytes",
             bytes(images.begin(), images.end() - 1), labels);
  expect_bad("8 + 2 bytes, got a truncated file of 9 bytes", images, bytes(labels.begin(), labels.end() - 1));
}

TEST(idx, rejects_trailing_bytes) {
  bytes images = idx_images(2, 3, 3);
  bytes labels = idx_labels(2);
  const bytes good_images = images;
  images.push_back(0);
  expect_bad("1 trailing bytes", images, labels);
  labels.resize(labels.size() + 5);
  expect_bad("5 trailing bytes", good_images, labels);
}

TEST(idx, rejects_counts_that_do_not_agree) {
  expect_bad("one label for each of 2 images, got a count of 3", idx_images(2, 3, 3), idx_labels(3));
  expect_bad("one label for each of 2 images, got a count of 0", idx_images(2, 3, 3), idx_labels(0));
}

TEST(idx, rejects_labels_out_of_range) {
  bytes labels = idx_labels(4);
  labels[8 + 2] = 10;
  expect_bad("label 10 out of range at image 2", idx_images(4, 1, 1), labels);
  labels[8 + 2] = 255;
  expect_bad("label 255 out of range at image 2", idx_images(4, 1, 1), labels);
}

TEST(idx, rejects_empty_extents) {
  expect_bad("at least one image", idx_images(0, 3, 3), idx_labels(0));
  expect_bad("at least one image", idx_images(2, 0, 3), idx_labels(2));
  expect_bad("at least one image", idx_images(2, 3, 0), idx_labels(2));
}

// Products of these fields wrap around 32 or 64 bits, some of them to the very number of bytes that is there.
TEST(idx, rejects_huge_extents_before_it_allocates) {
  const bytes images = idx_images(2, 3, 3);
  const bytes labels = idx_labels(2);
  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  expect_bad("16 + 4294967295 x 4294967295 x 4294967295 bytes, got a truncated file",
             with_fields(images, {0x803, most, most, most}), labels);
  expect_bad("truncated", with_fields(images, {0x803, 1, most, most}), labels);
  expect_bad("truncated", with_fields(images, {0x803, most, 1, 1}), labels);
  expect_bad("truncated", with_fields(images, {0x803, 0x80000000U, 0x80000000U, 4}), labels);   // 2^64
  expect_bad("truncated", with_fields(images, {0x803, 0x40000000U, 0x40000000U, 16}), labels);  // 2^64
  expect_bad("truncated", with_fields(images, {0x803, 0x80000000U, 2, 1}), labels);             // 2^32
  expect_bad("truncated", with_fields(images, {0x803, 4294967292U, 4294967289U, 3865470568U}), labels);
  expect_bad("8 + 4294967295 bytes, got a truncated file", images, with_fields(labels, {0x801, most}));
}

}  // namespace
}  // namespace stash::data::test
