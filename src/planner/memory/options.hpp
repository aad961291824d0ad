// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What can be chosen: storages whose choices depend on each other (through the alternatives of an op or
/// through recompute) form a *component*; a component has a short list of complete, legal configurations.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/graph/ticks.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

/// One backward read of a storage under the chosen alternatives.
struct reader {
  op_id op = no_id;
  need what = need::value;
  bool whole = true;
};

/// A complete decision for one component.
struct configuration {
  std::vector<std::int32_t> alternatives;  ///< parallel to component::ops
  std::vector<stash_choice> choices;       ///< parallel to component::storages
  std::int64_t kept_bytes = 0;             ///< sum of bytes_after
  std::int64_t codec_bytes = 0;            ///< dense bytes that encoders, decoders and recompute pass over
  /// With a machine: per storage, ms of its encoder and its decoders.
  std::vector<double> codec_ms;
};

struct component {
  std::vector<storage_id> storages;
  std::vector<op_id> ops;  ///< ops with more than one alternative
  /// Without those that keep at least as much of every storage as another one that reads and computes again
  /// the same, with no less codec work.
  id_vector<std::int32_t, configuration> configurations;
  /// Not empty: there are too many configurations, and those above are some of them. Then no legal one keeps
  /// less of a storage for the ops with a single alternative.
  std::vector<std::int64_t> least_bytes;
};

struct option_set {
  id_vector<component_number, component> components;
  /// Per storage: reads by ops that have a single alternative.
  id_vector<storage_id, std::vector<reader>> fixed_readers;
};

/// All components of `g` under the options' policy and `force`; `margin` is added to the payload of sparse
/// slots (0 for bounds). A component with thousands of combinations (dozens of norms that read one
/// concatenation) gets only those that decide alike for all its storages but the one with the most readers;
/// bounds then hold for these. Throws error(invalid_argument) if `force` is unknown or legal nowhere.
option_set make_options(const graph& g, const plan_options& options, double margin);

/// The last rule whose pattern fits the name; null if none does.
const tensor_rule* rule_for(const std::vector<tensor_rule>& rules, std::string_view name);

/// Per storage its reads under a full selection of alternatives (per op).
id_vector<storage_id, std::vector<reader>> readers_of(const graph& g,
                                                      const id_vector<op_id, std::int32_t>& alternative);

/// Whether values of this format take less than the elements of a map: 16 bits do so for f32 only.
constexpr bool is_narrower(value_format format, dtype element) {
  return (format != value_format::fp16 && format != value_format::bf16) || element == dtype::f32;
}

}  // namespace stash::planner
