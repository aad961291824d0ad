// SPDX-License-Identifier: Apache-2.0
#include "files/budget.hpp"

#include <gtest/gtest.h>

#include <string>

#include "stash/error.hpp"

namespace stash::tools {
namespace {

constexpr std::int64_t baseline = 1'000'000;

TEST(parse_budget, whole_numbers_are_bytes) {
  EXPECT_EQ(parse_budget("1", baseline), 1);
  EXPECT_EQ(parse_budget("123456", baseline), 123456);
  EXPECT_EQ(parse_budget("9007199254740992", baseline), 9007199254740992);
}

TEST(parse_budget, sizes_have_binary_units) {
  EXPECT_EQ(parse_budget("1KiB", baseline), 1024);
  EXPECT_EQ(parse_budget("64MiB", baseline), 64 * 1024 * 1024);
  EXPECT_EQ(parse_budget("1.5GiB", baseline), 3 * 512 * 1024 * 1024LL);
  EXPECT_EQ(parse_budget("0.5MiB", baseline), 512 * 1024);
}

TEST(parse_budget, decimals_and_percentages_are_shares_of_the_baseline) {
  EXPECT_EQ(parse_budget("0.5", baseline), 500'000);
  EXPECT_EQ(parse_budget("1.0", baseline), baseline);
  EXPECT_EQ(parse_budget("1.", baseline), baseline);
  EXPECT_EQ(parse_budget("50%", baseline), 500'000);
  EXPECT_EQ(parse_budget("100%", baseline), baseline);
  EXPECT_EQ(parse_budget("12.5%", baseline), 125'000);
  EXPECT_EQ(parse_budget("0.000001", baseline), 1);
}

TEST(parse_budget, shares_are_not_offered_where_there_is_no_baseline) {
  EXPECT_EQ(parse_budget("64MiB", 0, "--memory"), 64 * 1024 * 1024);
  for (const std::string text : {"0.5", "50%", "much"}) {
    try {
      const std::int64_t got = parse_budget(text, 0, "--memory");
      ADD_FAILURE() << "'" << text << "' was taken as " << got;
    } catch (const error& e) {
      EXPECT_EQ(std::string(e.what()),
                "--memory: expected bytes (123456) or a size (64MiB, 1.5GiB), got '" + text + "'");
    }
  }
}

TEST(parse_budget, refuses_everything_else_with_what_it_expected) {
  for (const std::string text : {"",
                                 "abc",
                                 "-1",
                                 "-0.5",
                                 "-5%",
                                 "0",
                                 "0.0",
                                 "0%",
                                 "0MiB",
                                 "nan",
                                 "inf",
                                 "-inf",
                                 "1e9",
                                 "0x10",
                                 "+5",
                                 " 5",
                                 "5 ",
                                 "64 MiB",
                                 "64MB",
                                 "64mib",
                                 "64M",
                                 "MiB",
                                 "%",
                                 "1%%",
                                 "50%x",
                                 "1.2.3",
                                 "1,5",
                                 "0.0000001",
                                 "99999999999999999999",
                                 "9999999999GiB",
                                 "1.0GiBGiB"}) {
    try {
      const std::int64_t got = parse_budget(text, baseline);
      ADD_FAILURE() << "'" << text << "' was taken as " << got;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument);
      const std::string message = e.what();
      EXPECT_NE(message.find("--budget: expected"), std::string::npos) << message;
      EXPECT_NE(message.find("'" + text + "'"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace stash::tools
