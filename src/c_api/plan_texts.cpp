// SPDX-License-Identifier: Apache-2.0
// The planner: text in, text out.

#include "stash/planning.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#include "c_api/guard.hpp"
#include "c_api/structs.hpp"
#include "stash/c_api.h"

using namespace stash::c_api;

namespace {

constexpr renamed options_of_plan[] = {{"policy", "options.policy"},
                                       {"swap", "options.swap"},
                                       {"values", "options.values"},
                                       {"budget_bytes", "options.budget_bytes"},
                                       {"force", "options.force"},
                                       {"slot_margin", "options.slot_margin"},
                                       {"overflow_share", "options.overflow_share"},
                                       {"threads", "options.threads"},
                                       {"model", "options.model"},
                                       {"evaluations", "options.evaluations"}};

/// A copy that the caller gives back with stash_free_text().
char* to_text(const std::string& text) {
  auto copy = std::make_unique<char[]>(text.size() + 1);
  std::memcpy(copy.get(), text.c_str(), text.size() + 1);
  return copy.release();
}

/// A share of the caller's: zero is the default, a negative one is none at all. By the bits: the thread may
/// take denormals for zeros.
double to_share(double share, double otherwise) {
  if (std::bit_cast<std::uint64_t>(share) << 1 == 0) return otherwise;
  return std::signbit(share) && !std::isnan(share) ? 0 : share;
}

stash::planning_options to_options(std::string_view function, const stash_plan_options* options) {
  stash::planning_options result;
  if (options == nullptr) return result;
  const stash_plan_options c = read(function, "options", options);
  if (c.policy != nullptr) result.policy = c.policy;
  if (c.force != nullptr) result.force = c.force;
  if (c.machine != nullptr) result.machine = c.machine;
  if (c.values != nullptr) result.values = c.values;
  result.budget_bytes = c.budget_bytes;
  result.slot_margin = to_share(c.slot_margin, result.slot_margin);
  result.overflow_share = to_share(c.overflow_share, result.overflow_share);
  if (c.threads != 0) result.threads = c.threads;
  if (c.model != nullptr) result.model = c.model;
  result.swap = c.swap != 0;
  result.evaluations = c.evaluations;
  if (c.no_layout != 0 && c.no_layout != 1) {
    refuse(function, "options.no_layout", "0 or 1", std::to_string(c.no_layout));
  }
  result.lay_out = c.no_layout == 0;
  if (c.any_order != 0 && c.any_order != 1) {
    refuse(function, "options.any_order", "0 or 1", std::to_string(c.any_order));
  }
  result.any_order = c.any_order == 1;
  return result;
}

}  // namespace

int32_t stash_plan(const char* graph_json, const stash_plan_options* options, char** plan_json) {
  return guard(__func__, {options_of_plan}, [&](std::string_view function) {
    char*& result = checked(function, "plan_json", plan_json);
    result = to_text(
        stash::plan_graph(&checked(function, "graph_json", graph_json), to_options(function, options)));
  });
}

int32_t stash_verify_plan(const char* plan_json, char** findings) {
  return guard(__func__, [&](std::string_view function) {
    const std::string text = stash::verify_plan(&checked(function, "plan_json", plan_json));
    if (text.empty()) return;
    const std::string first = text.substr(0, text.find('\n'));
    std::string message = std::string(function) + ": plan_json: expected a valid plan, got: " + first;
    if (findings != nullptr) *findings = to_text(text);
    throw stash::error(stash::errc::verification_failed, message);
  });
}

int32_t stash_explain_plan(const char* plan_json, char** text) {
  return guard(__func__, [&](std::string_view function) {
    char*& result = checked(function, "text", text);
    result = to_text(stash::explain_plan(&checked(function, "plan_json", plan_json)));
  });
}

// What is freed is not const.
void stash_free_text(char* text) {  // NOLINT(readability-non-const-parameter)
  delete[] text;
}
