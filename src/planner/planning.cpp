// SPDX-License-Identifier: Apache-2.0
#include "stash/planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "encoders/public_call.hpp"
#include "planner/json.hpp"
#include "planner/validator.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

std::vector<value_format> parse_values(std::string_view list) {
  std::vector<value_format> values;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(name.size() + 1, list.size()));
    const encoding e = parse_encoding(name);
    if (e.kind != encoding_kind::cast) {
      throw error(
          errc::invalid_argument,
          fmt::format("plan_graph: values: expected value formats such as 'fp16,fp8', got '{}'", name));
    }
    values.push_back(e.values);
  }
  return values;
}

planner::machine parse_model(std::string_view text) {
  if (text.front() != '{') return planner::find_machine(text);
  try {
    return planner::machine_from_json(text);
  } catch (const error& e) {
    if (e.code() != errc::bad_format) throw;
    throw error(errc::invalid_argument, fmt::format("plan_graph: model: {}", e.what()));
  }
}

planner::plan_options parsed(const planning_options& options) {
  planner::plan_options o;
  o.chosen_policy = planner::parse_policy(options.policy);
  o.values = parse_values(options.values);
  o.budget_bytes = options.budget_bytes;
  o.force = options.force;
  o.slot_margin = options.slot_margin;
  o.overflow_share = options.overflow_share;
  o.threads = options.threads;
  o.machine = options.machine;
  if (!options.model.empty()) o.model = parse_model(options.model);
  o.swap = options.swap;
  if (options.evaluations != 0) o.evaluations = options.evaluations;
  o.lay_out = options.lay_out;
  return o;
}

}  // namespace

std::string plan_graph(std::string_view graph_json, const planning_options& options) try {
  return detail::in_default_rounding([&] {
    const planner::plan_options o = parsed(options);
    return planner::to_json(planner::make_plan(planner::graph_from_json(graph_json), o));
  });
} catch (...) {
  detail::rethrow("plan_graph");
}

std::string verify_plan(std::string_view plan_json) try {
  return detail::in_default_rounding([&] {
    std::string text;
    for (const planner::plan_finding& f : planner::validate(planner::plan_from_json(plan_json)))
      text += fmt::format("{}: {}\n", planner::to_string(f.fault), f.message);
    return text;
  });
} catch (...) {
  detail::rethrow("verify_plan");
}

std::string explain_plan(std::string_view plan_json) try {
  return detail::in_default_rounding([&] {
    const planner::plan p = planner::plan_from_json(plan_json);
    if (const auto findings = planner::validate(p); !findings.empty()) {
      throw error(errc::bad_format,
                  fmt::format("explain_plan: plan_json: expected a valid plan, got one with: {}",
                              findings.front().message));
    }
    return planner::explain(p);
  });
} catch (...) {
  detail::rethrow("explain_plan");
}

}  // namespace stash
