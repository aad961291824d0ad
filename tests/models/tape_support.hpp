// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Short tapes of tests, and what their graphs say.

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "models/tape.hpp"
#include "planner/graph/graph.hpp"
#include "stash/error.hpp"

namespace stash::models::testing {

using planner::graph;
using planner::op;

inline const op& op_named(const graph& g, std::string_view name) {
  for (const op& o : g.ops) {
    if (o.name == name) return o;
  }
  throw std::out_of_range("no op " + std::string(name));
}

inline value dense(tape& t, const std::string& name, value x, std::int64_t outputs) {
  return t.linear(name, {{x, t.parameter(name + "/weight", {outputs, t.shape(x).back()})}});
}

inline void end_in_loss(tape& t, value x) {
  t.softmax_cross_entropy("loss", dense(t, "logits", x, 5), t.ids("labels", 1), 0);
}

/// "form: storage/need storage/need"
inline std::string reads_of(const graph& g, const planner::stash_alternative& a) {
  std::string text = a.form + ":";
  for (const planner::stash_read& r : a.reads)
    text += " " + g.at(r.storage).name + "/" + std::string(to_string(r.what));
  return text;
}

/// Of a backward op, one text each.
inline std::vector<std::string> alternatives(const graph& g, std::string_view name) {
  std::vector<std::string> texts;
  for (const planner::stash_alternative& a : op_named(g, name).alternatives)
    texts.push_back(reads_of(g, a));
  return texts;
}

/// Names of the storages that can be computed again.
inline std::set<std::string> recomputed(const graph& g) {
  std::set<std::string> names;
  for (const auto& rule : g.recipes)
    names.insert(g.at(rule.target).name);
  return names;
}

/// What the error says that a call throws.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::invalid_argument);
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace stash::models::testing
