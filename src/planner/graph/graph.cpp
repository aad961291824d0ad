// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/graph.hpp"

#include <fmt/format.h>

#include "encoders/message.hpp"
#include "planner/graph/names.hpp"
#include "planner/plan.hpp"
#include "stash/error.hpp"

namespace stash::planner {

static_assert(names_are_in_order<node_kind>() && names_are_in_order<op_kind>() &&
              names_are_in_order<storage_role>() && names_are_in_order<op_stage>() &&
              names_are_in_order<need>() && names_are_in_order<policy>() &&
              names_are_in_order<stash_kind>() && names_are_in_order<buffer_form>() &&
              names_are_in_order<step_kind>() && names_are_in_order<dtype>() &&
              names_are_in_order<encoding_kind>() && names_are_in_order<value_format>() &&
              names_are_in_order<underflow_rule>() && names_are_in_order<framework_rule>());
// A kind that is added at the end must get a name too.
static_assert(names_of<op_kind>.back().value == op_kind::generic);
static_assert(names_of<node_kind>.back().value == node_kind::softmax_cross_entropy);

std::int64_t storage::elements(std::int64_t batch) const noexcept {
  std::int64_t n = batch_proportional() ? batch : 1;
  for (const std::int64_t d : shape)
    n *= d;
  return n;
}

std::string_view to_string(node_kind kind) noexcept {
  return name_of(kind);
}
std::string_view to_string(op_kind kind) noexcept {
  return name_of(kind);
}
std::string_view to_string(storage_role role) noexcept {
  return name_of(role);
}
std::string_view to_string(op_stage stage) noexcept {
  return name_of(stage);
}
std::string_view to_string(need what) noexcept {
  return name_of(what);
}
std::string_view to_string(policy p) noexcept {
  return name_of(p);
}
std::string_view to_string(stash_kind kind) noexcept {
  return name_of(kind);
}
std::string_view to_string(buffer_form form) noexcept {
  return name_of(form);
}
std::string_view to_string(step_kind kind) noexcept {
  return name_of(kind);
}

policy parse_policy(std::string_view name) {
  if (const std::optional<policy> p = value_of_name<policy>(name)) return *p;
  throw error(errc::invalid_argument, fmt::format("parse_policy: name: expected one of {}, got '{}'",
                                                  list_of_names<policy>(), shortened(name)));
}

}  // namespace stash::planner
