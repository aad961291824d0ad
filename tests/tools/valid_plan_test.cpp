// SPDX-License-Identifier: Apache-2.0
#include "files/valid_plan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "commands.hpp"
#include "models/models.hpp"

namespace stash::tools {
namespace {

planner::plan lenet_plan() {
  return planner::make_plan(models::default_graph(models::find("lenet"), 8), {});
}

std::string finding(const planner::plan& p, const std::string& what) {
  try {
    check_valid(p, what);
  } catch (const failed_while_running& e) {
    return e.what();
  }
  return {};
}

TEST(check_valid, lets_a_valid_plan_pass) {
  EXPECT_NO_THROW(check_valid(lenet_plan()));
}

TEST(check_valid, says_what_is_wrong_with_a_plan) {
  planner::plan p = lenet_plan();
  p.sizes.planned_peak -= 64;
  const std::string said = finding(p, "the plan for 7 bytes");
  EXPECT_EQ(said.find("the plan for 7 bytes is not valid: "), 0U) << said;
  EXPECT_GT(said.size(), std::string("the plan for 7 bytes is not valid: ").size());
  EXPECT_THROW(check_valid(p), failed_while_running);
}

}  // namespace
}  // namespace stash::tools
