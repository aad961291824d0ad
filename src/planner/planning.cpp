#include "stash/planning.hpp"

#include <fmt/format.h>

#include "planner/json.hpp"
#include "planner/validator.hpp"
#include "stash/error.hpp"

namespace stash {

std::string plan_graph(std::string_view graph_json, const planning_options& options) {
  planner::plan_options o;
  o.chosen_policy = planner::parse_policy(options.policy);
  o.budget_bytes = options.budget_bytes;
  o.force = options.force;
  o.slot_margin = options.slot_margin;
  o.overflow_share = options.overflow_share;
  o.threads = options.threads;
  o.machine = options.machine;
  return planner::to_json(planner::make_plan(planner::graph_from_json(graph_json), o));
}

std::string verify_plan(std::string_view plan_json) {
  std::string text;
  for (const planner::plan_finding& f : planner::validate(planner::plan_from_json(plan_json)))
    text += fmt::format("{}: {}\n", planner::to_string(f.fault), f.message);
  return text;
}

std::string explain_plan(std::string_view plan_json) {
  const planner::plan p = planner::plan_from_json(plan_json);
  if (const auto findings = planner::validate(p); !findings.empty()) {
    throw error(errc::bad_format,
                fmt::format("explain_plan: plan_json: expected a valid plan, got one with: {}",
                            findings.front().message));
  }
  return planner::explain(p);
}

}  // namespace stash
