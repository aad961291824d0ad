// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the planner and the validator say, as tests read it.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner::testing {

/// One line for each; empty for a valid plan.
inline std::string findings_of(const plan& p) {
  std::string text;
  for (const plan_finding& f : validate(p))
    text += std::string(to_string(f.fault)) + ": " + f.message + "\n";
  return text;
}

/// The N of "budget: expected at least N bytes"; expects that the error says so.
inline std::int64_t budget_in(const error& e) {
  EXPECT_EQ(e.code(), errc::infeasible_budget) << e.what();
  constexpr std::string_view before = "expected at least ";
  const std::string_view text = e.what();
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string_view::npos) << text;
  return at == std::string_view::npos ? 0 : std::stoll(std::string(text.substr(at + before.size())));
}

}  // namespace stash::planner::testing
