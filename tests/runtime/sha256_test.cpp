// SPDX-License-Identifier: Apache-2.0
#include "runtime/sha256.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace {

using stash::runtime::sha256;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string hash(const std::string& text) {
  sha256 h;
  h.update(bytes_of(text));
  return h.hex();
}

// The examples of FIPS 180-4.
TEST(sha256, known_answers) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256, does_not_depend_on_how_the_bytes_are_cut) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += static_cast<char>(i * 31 % 251);
  for (const std::size_t part : {1U, 7U, 63U, 64U, 65U, 1024U, 4999U}) {
    sha256 h;
    for (std::size_t at = 0; at < text.size(); at += part)
      h.update(bytes_of(text.substr(at, part)));
    EXPECT_EQ(h.hex(), hash(text)) << part;
  }
}

TEST(sha256, goes_on_after_a_digest_and_a_move) {
  sha256 h;
  EXPECT_EQ(h.hex(), hash(""));
  h.update({});
  h.update(bytes_of("a"));
  EXPECT_EQ(h.hex(), hash("a"));
  EXPECT_EQ(h.hex(), hash("a"));
  sha256 moved(std::move(h));
  moved.update(bytes_of("bc"));
  EXPECT_EQ(moved.hex(), hash("abc"));
  h = std::move(moved);
  EXPECT_EQ(h.hex(), hash("abc"));
}

TEST(sha256, distinguishes_single_bits) {
  const std::string text(100, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_NE(hash(changed), hash(text));
  }
}

}  // namespace
