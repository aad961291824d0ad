// SPDX-License-Identifier: Apache-2.0
#include "files/valid_plan.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "planner/verify/validator.hpp"

namespace stash::tools {

void check_valid(const planner::plan& p, const std::string& what) {
  const auto findings = planner::validate(p);
  if (findings.empty()) return;
  throw failed_while_running(fmt::format("{} is not valid: {}", what, findings.front().message));
}

}  // namespace stash::tools
