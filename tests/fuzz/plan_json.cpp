// SPDX-License-Identifier: Apache-2.0
// The plan reader and the validator after it: what is accepted is written and read again as the same text,
// validated whatever it says, and explained if it is valid.

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
    for (const planner::graph& g : small_graphs()) {
      for (const planner::policy chosen :
           {planner::policy::none, planner::policy::lossless, planner::policy::fp8}) {
        planner::plan_options options;
        options.chosen_policy = chosen;
        all.push_back(to_json(make_plan(g, options)));
      }
    }
    return all;
  }();
  return texts;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string text = edited_text(input, documents());
  planner::plan p;
  try {
    p = planner::plan_from_json(text);
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return;
  }
  if (is_examined(input, 8)) {
    const std::string written = to_json(p);
    require(to_json(planner::plan_from_json(written)) == written, "written and read again");
  }
  if (validate(p).empty() && is_examined(input, 8)) require(!explain(p).empty(), "a valid plan is explained");
}

std::vector<bytes> seeds() {
  return document_seeds(documents());
}

}  // namespace stash::fuzz
