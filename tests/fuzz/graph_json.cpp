// SPDX-License-Identifier: Apache-2.0
// The graph reader: what it accepts is written and read again as the same text, and can be planned.

#include "fuzz/json_edits.hpp"
#include "fuzz/planner_documents.hpp"
#include "planner/json/json.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

const std::vector<std::string>& documents() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (const planner::graph& g : small_graphs())
      all.push_back(to_json(g));
    return all;
  }();
  return texts;
}

/// A graph that passed all checks gets a reason why it cannot be planned, or a plan. The validator may find
/// that the graph itself asks for too little (it knows what gradients need), but nothing else.
void require_plannable(const planner::graph& g) {
  planner::plan p;
  try {
    p = make_plan(g, {});
  } catch (const error& e) {
    require(e.code() == errc::invalid_argument || e.code() == errc::unsupported ||
                e.code() == errc::infeasible_budget || e.code() == errc::bad_format,
            e.what());
    return;
  }
  for (const planner::plan_finding& found : validate(p))
    require(found.fault == planner::plan_fault::bad_graph, found.message.c_str());
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string text = edited_text(input, documents());
  planner::graph g;
  try {
    g = planner::graph_from_json(text);
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return;
  }
  if (is_examined(input, 8)) {
    const std::string written = to_json(g);
    require(to_json(planner::graph_from_json(written)) == written, "written and read again");
  }
  if (is_examined(input, 64)) require_plannable(g);
}

std::vector<bytes> seeds() {
  return document_seeds(documents());
}

}  // namespace stash::fuzz
