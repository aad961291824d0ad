// SPDX-License-Identifier: Apache-2.0
#include "data/gz.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/support.hpp"

namespace stash::data::test {
namespace {

bytes noise(std::size_t size) {
  bytes made(size);
  std::uint32_t state = 1;
  for (auto& byte : made)
    byte = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  return made;
}

void expect_bad(const std::string& fragment, const bytes& content) {
  expect_error(errc::bad_format, fragment, [&] { unzip_if_gz(content, "some file"); });
  expect_error(errc::bad_format, "some file", [&] { unzip_if_gz(content, "some file"); });
}

TEST(gz, plain_content_stays_as_it_is) {
  for (const bytes& plain : {bytes{}, bytes{0x1F}, bytes{0x8B, 0x1F}, bytes{0, 0, 8, 3}, noise(1000)}) {
    EXPECT_EQ(unzip_if_gz(plain, ""), plain);
  }
}

TEST(gz, unzips_contents_of_every_size) {
  for (const std::size_t size : {0U, 1U, 1023U, 65535U, 65536U, 65537U, 131072U, 300000U}) {
    EXPECT_EQ(unzip_if_gz(gz(noise(size)), ""), noise(size)) << size;
    EXPECT_EQ(unzip_if_gz(gz(bytes(size, 7)), ""), bytes(size, 7)) << size;
  }
}

TEST(gz, joins_members) {
  bytes two = gz({1, 2});
  const bytes second = gz({3});
  two.insert(two.end(), second.begin(), second.end());
  EXPECT_EQ(unzip_if_gz(two, ""), (bytes{1, 2, 3}));
}

TEST(gz, finds_truncation_at_every_byte) {
  const bytes whole = gz(noise(500));
  for (std::size_t size = 2; size < whole.size(); ++size) {
    expect_bad("truncated", bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  // The last block of output is just full when the input ends.
  bytes full = gz(noise(65536));
  full.resize(full.size() - 8);
  expect_bad("truncated", full);
}

TEST(gz, finds_a_wrong_checksum_and_length) {
  const bytes whole = gz(noise(500));
  for (std::size_t from_end = 8; from_end > 4; --from_end) {
    bytes changed = whole;
    changed[whole.size() - from_end] ^= 1;
    expect_bad("checksum, got 'incorrect data check'", changed);
  }
  bytes changed = whole;
  changed.back() ^= 1;
  expect_bad("incorrect length check", changed);
}

TEST(gz, never_returns_other_content_than_was_zipped) {
  const bytes content = noise(500);
  const bytes whole = gz(content);
  int harmless = 0;
  for (std::size_t i = 10; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes changed = whole;
      changed[i] ^= static_cast<std::uint8_t>(1 << bit);
      try {
        EXPECT_EQ(unzip_if_gz(changed, ""), content) << i;
        ++harmless;
      } catch (const error& e) {
        EXPECT_EQ(e.code(), errc::bad_format) << e.what();
      }
    }
  }
  EXPECT_LE(harmless, 7);  // the padding bits of a block that is stored as it is
}

TEST(gz, finds_trailing_bytes) {
  bytes whole = gz({1, 2, 3});
  whole.push_back(0);
  expect_bad("1 trailing bytes", whole);
  whole.back() = 0x1F;
  expect_bad("1 trailing bytes", whole);
  whole.push_back(0x8B);
  expect_bad("truncated", whole);
}

TEST(gz, stops_at_the_limit) {
  const bytes bomb = gz(bytes(1 << 20));
  EXPECT_LT(bomb.size(), 2000U);
  EXPECT_EQ(unzip_if_gz(bomb, "", 1 << 20).size(), 1U << 20);
  expect_error(errc::bad_format, "at most 1048575 unzipped bytes",
               [&] { unzip_if_gz(bomb, "", (1 << 20) - 1); });
  expect_error(errc::bad_format, "at most 0 unzipped bytes", [&] { unzip_if_gz(gz({1}), "", 0); });
}

TEST(gz, reads_files) {
  const temporary_folder folder;
  EXPECT_EQ(read_maybe_gz(folder.write("plain.gz", noise(100))), noise(100));
  EXPECT_EQ(read_maybe_gz(folder.write("zipped", gz(noise(100)))), noise(100));
  EXPECT_EQ(read_maybe_gz(folder.write("empty", {})), bytes{});
  expect_error(errc::io_failure, "nowhere", [&] { read_maybe_gz(folder.path("nowhere")); });
  expect_error(errc::io_failure, folder.path(), [&] { read_maybe_gz(folder.path()); });
}

}  // namespace
}  // namespace stash::data::test
