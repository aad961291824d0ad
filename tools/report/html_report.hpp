// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Pages to look at: one plan, or the plans of a sweep (docs/reports.md).

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/plan.hpp"

namespace stash::tools {

/// `sweep`: the rows of `stash sweep --json` for the same graph, or null.
std::string html_report(const planner::plan& p, const nlohmann::ordered_json* sweep);

/// The page of a sweep alone.
std::string html_sweep(const nlohmann::ordered_json& sweep);

/// Curve and table of a sweep as a section of a page.
std::string html_sweep_section(const nlohmann::ordered_json& sweep);

/// What `stash sweep --json` wrote, checked as far as the pages read it. Throws error(bad_format) with `name`
/// and the field.
nlohmann::ordered_json sweep_from_json(const std::string& text, const std::string& name);

/// A plan's charts as sections of a page.
std::string html_memory_section(const planner::plan& p);
std::string html_timeline_section(const planner::plan& p);

}  // namespace stash::tools
