// SPDX-License-Identifier: Apache-2.0
#include "gpu/harness.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace stash::gpu {
namespace {

std::string no_error() {
  return {};
}

TEST(gpu_harness, tells_what_failed) {
  EXPECT_NO_THROW(expect(true, "x"));
  EXPECT_THROW(expect(false, "x"), check_failed);
  EXPECT_NO_THROW(expect_equal(3, 3, "x"));
  try {
    expect_equal(4, 3, "count");
    FAIL();
  } catch (const check_failed& problem) {
    EXPECT_STREQ(problem.what(), "count: expected 3, got 4");
  }
  EXPECT_NO_THROW(expect_same_bytes({1, 2}, {1, 2}, "x"));
  EXPECT_THROW(expect_same_bytes({1, 2}, {1, 2, 3}, "x"), check_failed);
  try {
    expect_same_bytes({1, 2, 3}, {1, 0xfe, 3}, "mask");
    FAIL();
  } catch (const check_failed& problem) {
    EXPECT_STREQ(problem.what(), "mask: byte 1 of 3: expected fe, got 02");
  }
}

TEST(gpu_harness, every_exception_is_an_outcome) {
  EXPECT_EQ(run_check({"a", [](progress&) {}}).what, outcome::ok);
  const check_result failed = run_check(repeated("b", 5, [](std::uint32_t k) { expect(k < 3, "too many"); }));
  EXPECT_EQ(failed.what, outcome::failed);
  EXPECT_EQ(failed.detail, "attempt 3: too many");
  EXPECT_EQ(failed.trials, 3);
  EXPECT_EQ(run_check({"c", [](progress&) { throw std::bad_alloc(); }}).what, outcome::failed);
  const check_result skipped = run_check({"d", [](progress&) { throw check_not_run("no memory"); }});
  EXPECT_EQ(skipped.what, outcome::not_run);
  EXPECT_EQ(line_of(skipped), "not run  d: no memory");
}

TEST(gpu_harness, a_lost_device_ends_the_run) {
  const std::vector<named_check> checks{
      {"a", [](progress&) {}}, {"b", [](progress&) { expect(false, "wrong"); }}, {"c", [](progress&) {}}};
  std::vector<std::string> lines;
  const auto report = [&](const check_result& r) { lines.push_back(line_of(r)); };
  EXPECT_EQ(summary_of(run_checks(checks, no_error, report)), "2 ok, 1 failed, 0 not run");
  const auto results = run_checks(
      checks, [] { return std::string("illegal address"); }, report);
  EXPECT_EQ(summary_of(results), "1 ok, 1 failed, 1 not run");
  EXPECT_EQ(results[2].detail, "the device was lost in b: illegal address");
  EXPECT_EQ(lines.size(), 6U);
}

TEST(gpu_harness, json_has_every_check) {
  const std::vector<named_check> checks{{"a", [](progress& p) { p.trials = 7; }},
                                        {"b", [](progress&) { throw check_not_run("no \"memory\""); }}};
  const nlohmann::ordered_json list = json_of(run_checks(checks, no_error, [](const check_result&) {}));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["name"], "a");
  EXPECT_EQ(list[0]["result"], "ok");
  EXPECT_EQ(list[0]["trials"], 7);
  EXPECT_FALSE(list[0].contains("why"));
  EXPECT_EQ(list[1]["result"], "not run");
  EXPECT_EQ(list[1]["why"], "no \"memory\"");
}

}  // namespace
}  // namespace stash::gpu
