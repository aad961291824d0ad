// SPDX-License-Identifier: Apache-2.0
#include "encoders/message.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using stash::shortened;

TEST(shortened, keeps_what_is_short) {
  EXPECT_EQ(shortened(""), "");
  EXPECT_EQ(shortened("conv1/weight"), "conv1/weight");
  EXPECT_EQ(shortened(std::string(160, 'x')), std::string(160, 'x'));
  EXPECT_EQ(shortened("abc", 3), "abc");
}

TEST(shortened, says_how_long_the_rest_is) {
  EXPECT_EQ(shortened(std::string(161, 'x')), std::string(160, 'x') + "... (161 bytes)");
  EXPECT_EQ(shortened(std::string(1'000'000, 'x')), std::string(160, 'x') + "... (1000000 bytes)");
  EXPECT_EQ(shortened("abcd", 3), "abc... (4 bytes)");
  EXPECT_EQ(shortened("abcd", 0), "... (4 bytes)");
}

TEST(shortened, cuts_between_characters) {
  EXPECT_EQ(shortened("ab\xc3\xa9z", 3), "ab... (5 bytes)");
  EXPECT_EQ(shortened("ab\xc3\xa9z", 4), "ab\xc3\xa9... (5 bytes)");
  EXPECT_EQ(shortened("abcde\xf0\x9f\x98\x80", 8), "abcde... (9 bytes)");
  const std::string no_text(20, '\x80');
  EXPECT_EQ(shortened(no_text, 10), no_text.substr(0, 10) + "... (20 bytes)");
}

}  // namespace
