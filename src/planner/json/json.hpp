// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Graphs and plans as JSON text (docs/graph.md, docs/plan.md). Readers check everything; any text is safe.

#include <string>
#include <string_view>

#include "planner/plan.hpp"

namespace stash::planner {

/// One line per storage, op, choice, buffer and step; keys in a fixed order; defaults left out. Reading the
/// text gives back an equal value. Throws error(invalid_argument) for what JSON cannot hold: text that is
/// not UTF-8, numbers that are not finite.
std::string to_json(const graph& g);
std::string to_json(const plan& p);

/// Throw error(bad_format) with the path of the offending field, e.g. "ops[3].inputs[0].storage".
/// graph_from_json runs check_graph. plan_from_json checks types and ranges only; validate() does the rest.
graph graph_from_json(std::string_view text);
plan plan_from_json(std::string_view text);

}  // namespace stash::planner
