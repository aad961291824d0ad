// SPDX-License-Identifier: Apache-2.0
#include "stash/planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "encoders/message.hpp"
#include "encoders/public_call.hpp"
#include "planner/json/json.hpp"
#include "planner/verify/validator.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

/// What a message says after the name of its function.
std::string_view after_function_name(std::string_view message) {
  const std::size_t end = message.find(": ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

/// make(), whose errors become those of `function`'s `argument`, which make() knows as `inner`.
template <class Make>
auto naming(std::string_view function, std::string_view argument, std::string_view inner, const Make& make) {
  try {
    return make();
  } catch (const error& e) {
    std::string_view text = after_function_name(e.what());
    if (text.starts_with(inner) && text.substr(inner.size()).starts_with(": "))
      text.remove_prefix(inner.size() + 2);
    throw error(e.code(), fmt::format("{}: {}: {}", function, argument, text));
  }
}

std::vector<value_format> parse_values(std::string_view list) {
  std::vector<value_format> values;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(name.size() + 1, list.size()));
    const encoding e = naming("plan_graph", "values", "name", [&] { return parse_encoding(name); });
    if (e.kind != encoding_kind::cast) {
      throw error(errc::invalid_argument,
                  fmt::format("plan_graph: values: expected value formats such as 'fp16,fp8', got '{}'",
                              shortened(name)));
    }
    values.push_back(e.values);
  }
  return values;
}

planner::machine parse_model(std::string_view text) {
  if (text.front() != '{')
    return naming("plan_graph", "model", "name", [&] { return planner::find_machine(text); });
  try {
    return naming("plan_graph", "model", "text", [&] { return planner::machine_from_json(text); });
  } catch (const error& e) {
    if (e.code() != errc::bad_format) throw;
    throw error(errc::invalid_argument, e.what());
  }
}

/// make_plan() knows a graph and options; its caller here has a text and other options.
planner::plan plan_of(const planner::graph& g, const planner::plan_options& options) {
  try {
    return planner::make_plan(g, options);
  } catch (const error& e) {
    std::string_view text = after_function_name(e.what());
    constexpr std::pair<std::string_view, std::string_view> names[] = {{"options.", ""},
                                                                       {"options: ", "model: "},
                                                                       {"budget: ", "budget_bytes: "},
                                                                       {"graph: ", "graph_json: "}};
    std::string_view argument;
    for (const auto& [inner, name] : names) {
      if (!text.starts_with(inner)) continue;
      argument = name;
      text.remove_prefix(inner.size());
      break;
    }
    throw error(e.code(), fmt::format("plan_graph: {}{}", argument, text));
  }
}

planner::plan parse_plan(std::string_view function, std::string_view plan_json) {
  return naming(function, "plan_json", "text", [&] { return planner::plan_from_json(plan_json); });
}

planner::plan_options parsed(const planning_options& options) {
  planner::plan_options o;
  o.chosen_policy =
      naming("plan_graph", "policy", "name", [&] { return planner::parse_policy(options.policy); });
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
  if (options.any_order) o.order = planner::op_order::memory;
  return o;
}

}  // namespace

std::string plan_graph(std::string_view graph_json, const planning_options& options) try {
  return encoders::in_default_arithmetic([&] {
    const planner::plan_options o = parsed(options);
    const planner::graph g =
        naming("plan_graph", "graph_json", "text", [&] { return planner::graph_from_json(graph_json); });
    return planner::to_json(plan_of(g, o));
  });
} catch (...) {
  encoders::rethrow("plan_graph");
}

std::string verify_plan(std::string_view plan_json) try {
  return encoders::in_default_arithmetic([&] {
    std::string text;
    for (const planner::plan_finding& f : planner::validate(parse_plan("verify_plan", plan_json)))
      text += fmt::format("{}: {}\n", planner::to_string(f.fault), f.message);
    return text;
  });
} catch (...) {
  encoders::rethrow("verify_plan");
}

std::string explain_plan(std::string_view plan_json) try {
  return encoders::in_default_arithmetic([&] {
    const planner::plan p = parse_plan("explain_plan", plan_json);
    if (const auto findings = planner::validate(p); !findings.empty()) {
      throw error(errc::bad_format,
                  fmt::format("explain_plan: plan_json: expected a valid plan, got one with: {}",
                              findings.front().message));
    }
    return planner::explain(p);
  });
} catch (...) {
  encoders::rethrow("explain_plan");
}

}  // namespace stash
