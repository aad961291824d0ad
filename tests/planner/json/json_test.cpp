// SPDX-License-Identifier: Apache-2.0
#include "planner/json/json.hpp"
#include "planner/graph/id_literals.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/graph/machine.hpp"
#include "planner/graph/names.hpp"
#include "planner/graph/sample_graph.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {
namespace {

using json = nlohmann::json;

void expect_equal(const stash_alternative& a, const stash_alternative& b) {
  EXPECT_EQ(a.form, b.form);
  ASSERT_EQ(a.reads.size(), b.reads.size());
  for (std::size_t i = 0; i < a.reads.size(); ++i) {
    EXPECT_EQ(a.reads[i].storage, b.reads[i].storage);
    EXPECT_EQ(a.reads[i].what, b.reads[i].what);
    EXPECT_EQ(a.reads[i].slice, b.reads[i].slice);
  }
}

void expect_equal(const graph& a, const graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.classes, b.classes);
  ASSERT_EQ(a.storages.size(), b.storages.size());
  for (std::size_t i = 0; i < a.storages.size(); ++i) {
    const storage& x = a.storages[storage_id(i)];
    const storage& y = b.storages[storage_id(i)];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.role, y.role);
    EXPECT_EQ(x.type, y.type);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.fixed_bytes, y.fixed_bytes);
    EXPECT_EQ(x.bytes_per_sample, y.bytes_per_sample);
    EXPECT_EQ(x.density, y.density);
    EXPECT_EQ(x.window_taps, y.window_taps);
  }
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const op& x = a.ops[op_id(i)];
    const op& y = b.ops[op_id(i)];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.stage, y.stage);
    EXPECT_EQ(x.forward_op, y.forward_op);
    EXPECT_TRUE(x.attributes == y.attributes) << x.name;
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.outputs, y.outputs);
    EXPECT_EQ(x.optional_outputs, y.optional_outputs);
    EXPECT_EQ(x.parameters, y.parameters);
    EXPECT_EQ(x.parameters_written, y.parameters_written);
    ASSERT_EQ(x.alternatives.size(), y.alternatives.size());
    for (std::size_t j = 0; j < x.alternatives.size(); ++j)
      expect_equal(x.alternatives[j], y.alternatives[j]);
    EXPECT_EQ(x.workspace_bytes, y.workspace_bytes);
    EXPECT_EQ(x.seconds, y.seconds);
    EXPECT_EQ(x.batch_begin, y.batch_begin);
    EXPECT_EQ(x.batch_end, y.batch_end);
  }
  ASSERT_EQ(a.recipes.size(), b.recipes.size());
  for (std::size_t i = 0; i < a.recipes.size(); ++i) {
    EXPECT_EQ(a.recipes[recipe_id(i)].target, b.recipes[recipe_id(i)].target);
    EXPECT_EQ(a.recipes[recipe_id(i)].sources, b.recipes[recipe_id(i)].sources);
    EXPECT_EQ(a.recipes[recipe_id(i)].ops, b.recipes[recipe_id(i)].ops);
  }
}

void expect_equal(const plan& a, const plan& b) {
  expect_equal(a.network, b.network);
  EXPECT_EQ(a.chosen_policy, b.chosen_policy);
  EXPECT_EQ(a.budget_bytes, b.budget_bytes);
  EXPECT_EQ(a.threads, b.threads);
  EXPECT_EQ(a.machine, b.machine);
  ASSERT_EQ(a.choices.size(), b.choices.size());
  for (std::size_t i = 0; i < a.choices.size(); ++i) {
    EXPECT_EQ(a.choices[storage_id(i)].kind, b.choices[storage_id(i)].kind);
    EXPECT_TRUE(a.choices[storage_id(i)].stored == b.choices[storage_id(i)].stored) << i;
    EXPECT_EQ(a.choices[storage_id(i)].bytes_before, b.choices[storage_id(i)].bytes_before);
    EXPECT_EQ(a.choices[storage_id(i)].bytes_after, b.choices[storage_id(i)].bytes_after);
    EXPECT_EQ(a.choices[storage_id(i)].density, b.choices[storage_id(i)].density);
    EXPECT_EQ(a.choices[storage_id(i)].reason, b.choices[storage_id(i)].reason);
  }
  EXPECT_EQ(a.alternative, b.alternative);
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[buffer_id(i)].storage, b.buffers[buffer_id(i)].storage);
    EXPECT_EQ(a.buffers[buffer_id(i)].form, b.buffers[buffer_id(i)].form);
    EXPECT_EQ(a.buffers[buffer_id(i)].bytes, b.buffers[buffer_id(i)].bytes);
    EXPECT_EQ(a.buffers[buffer_id(i)].offset, b.buffers[buffer_id(i)].offset);
    EXPECT_EQ(a.buffers[buffer_id(i)].first_step, b.buffers[buffer_id(i)].first_step);
    EXPECT_EQ(a.buffers[buffer_id(i)].last_step, b.buffers[buffer_id(i)].last_step);
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].kind, b.steps[i].kind);
    EXPECT_EQ(a.steps[i].op, b.steps[i].op);
    EXPECT_EQ(a.steps[i].storage, b.steps[i].storage);
    EXPECT_EQ(a.steps[i].inputs, b.steps[i].inputs);
    EXPECT_EQ(a.steps[i].outputs, b.steps[i].outputs);
    EXPECT_EQ(a.steps[i].optional_outputs, b.steps[i].optional_outputs);
    EXPECT_EQ(a.steps[i].stash, b.steps[i].stash);
  }
  EXPECT_EQ(a.slot_margin, b.slot_margin);
  EXPECT_EQ(a.overflow_bytes, b.overflow_bytes);
  EXPECT_EQ(a.sizes.baseline_peak, b.sizes.baseline_peak);
  EXPECT_EQ(a.sizes.baseline_peak_total, b.sizes.baseline_peak_total);
  EXPECT_EQ(a.sizes.planned_peak, b.sizes.planned_peak);
  EXPECT_EQ(a.sizes.planned_peak_total, b.sizes.planned_peak_total);
  EXPECT_EQ(a.sizes.wall, b.sizes.wall);
  EXPECT_EQ(a.sizes.wall_op, b.sizes.wall_op);
  EXPECT_EQ(a.sizes.boundary, b.sizes.boundary);
  EXPECT_EQ(a.sizes.bound, b.sizes.bound);
  EXPECT_EQ(a.sizes.max_live, b.sizes.max_live);
  EXPECT_EQ(a.sizes.parameter_bytes, b.sizes.parameter_bytes);
  EXPECT_EQ(a.sizes.workspace_bytes, b.sizes.workspace_bytes);
}

/// No field has its default value; the graph need not make sense.
plan plan_without_defaults() {
  plan p;
  graph& g = p.network;
  g.name = "n\"\\\n\xC3\xA9";
  g.batch = 3;
  g.classes = 7;
  storage s;
  s.name = "s";
  s.role = storage_role::auxiliary;
  s.type = dtype::bf16;
  s.shape = {5, 1, 2};
  s.fixed_bytes = 11;
  s.bytes_per_sample = 13;
  s.density = 0.1 + 0.2;
  s.window_taps = 9;
  g.storages = {s, storage{}};
  g.storages[storage_id(1)].name = "t";
  op o;
  o.name = "o";
  o.kind = op_kind::sgd_update;
  o.stage = op_stage::update;
  o.forward_op = 4_op;
  op_attributes& a = o.attributes;
  a.kernel_h = 2, a.kernel_w = 3, a.stride_h = 4, a.stride_w = 5;
  a.pad_top = 6, a.pad_left = 7, a.pad_bottom = 8, a.pad_right = 9;
  a.ceil_mode = true;
  a.groups = 10;
  a.out_features = std::int64_t{1} << 40;
  a.bias = false;
  a.epsilon = 1e-3F;
  a.statistics_momentum = 0.3F;
  a.fused_relu = true;
  a.negative_slope = std::numeric_limits<float>::denorm_min();
  a.drop_probability = 1.0F / 3.0F;
  a.lrn_size = 3;
  a.lrn_alpha = std::numeric_limits<float>::max();
  a.lrn_beta = -0.7F;
  a.lrn_k = 16777217.0F;
  o.inputs = {{1_storage, 2, 3}, {0_storage, 0, 0}};
  o.outputs = {{4_storage, 0, 6}};
  o.optional_outputs = {7_storage, 8_storage};
  o.parameters = {9_storage};
  o.parameters_written = {10_storage, 11_storage};
  o.alternatives = {
      {"from_x",
       {{1_storage, need::exact_value, {1_storage, 4, 5}}, {2_storage, need::sign, {2_storage, 0, 0}}}},
      {"from_seed", {}}};
  o.workspace_bytes = 12;
  o.seconds = 1e-300;
  o.batch_begin = 1;
  o.batch_end = 2;
  g.ops = {o, op{}};
  g.ops[op_id(1)].name = "p";
  g.recipes = {{1_storage, {2_storage, 4_storage}, {3_op, 5_op, 6_op}}};
  p.chosen_policy = policy::fp8;
  p.budget_bytes = std::int64_t{1} << 53;
  p.threads = 5;
  p.machine = "some machine";
  stash_choice c;
  c.kind = stash_kind::encoded;
  c.stored = {encoding_kind::cast, value_format::fp8_e4m3, underflow_rule::keep_nonzero,
              framework_rule::pytorch, 9};
  c.bytes_before = 100;
  c.bytes_after = 50;
  c.density = 1.0 / 3.0;
  c.reason = "because";
  p.choices = {c, stash_choice{}};
  p.alternative = {-1, 0, 3};
  p.buffers = {{4_storage, buffer_form::encoded, 128, 64, 1, 2}, {no_id, buffer_form::overflow, 64, 0, 0, 9}};
  p.steps = {
      {step_kind::recompute, 3_op, 4_storage, {1_buffer, no_id}, {2_buffer}, {3_buffer, no_id}, {5_buffer}},
      {}};
  p.slot_margin = 0.04;
  p.overflow_bytes = 4096;
  p.sizes = {1, 2, 3, 4, 5, 6_op, 7, 8, 9, 10, 11};
  return p;
}

TEST(json, graph_round_trip) {
  const graph g = sample_graph();
  ASSERT_FALSE(g.recipes.empty());
  const std::string text = to_json(g);
  const graph back = graph_from_json(text);
  expect_equal(g, back);
  EXPECT_EQ(to_json(back), text);
}

TEST(json, plan_round_trip_of_every_field) {
  const plan p = plan_without_defaults();
  const std::string text = to_json(p);
  const plan back = plan_from_json(text);
  expect_equal(p, back);
  EXPECT_EQ(to_json(back), text);
}

TEST(json, round_trip_of_a_planned_step) {
  plan_options options;
  options.chosen_policy = policy::fp8;
  const plan p = make_plan(sample_graph(), options);
  ASSERT_FALSE(p.steps.empty());
  expect_equal(p, plan_from_json(to_json(p)));
}

TEST(json, empty_plan_round_trip) {
  plan p;
  p.network.batch = 1;
  expect_equal(p, plan_from_json(to_json(p)));
}

TEST(json, random_numbers_round_trip) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < 2000; ++i) {
    plan p = plan_without_defaults();
    const auto bits = static_cast<std::uint32_t>(rng());
    float f = 0;
    static_assert(sizeof f == sizeof bits);
    std::memcpy(&f, &bits, sizeof f);
    if (std::isfinite(f)) p.network.ops[op_id(0)].attributes.lrn_k = f;
    p.network.storages[storage_id(0)].density = std::generate_canonical<double, 53>(rng);
    p.choices[storage_id(0)].density = std::generate_canonical<double, 53>(rng);
    p.budget_bytes = static_cast<std::int64_t>(rng() >> 11U);
    const plan back = plan_from_json(to_json(p));
    ASSERT_TRUE(p.network.ops[op_id(0)].attributes == back.network.ops[op_id(0)].attributes) << bits;
    ASSERT_EQ(p.network.storages[storage_id(0)].density, back.network.storages[storage_id(0)].density);
    ASSERT_EQ(p.choices[storage_id(0)].density, back.choices[storage_id(0)].density);
    ASSERT_EQ(p.budget_bytes, back.budget_bytes);
  }
}

TEST(json, text_is_compact_and_in_stable_order) {
  const std::string text = to_json(sample_graph());
  EXPECT_EQ(text.rfind("{\n  \"format\": \"stash.graph\",\n  \"version\": 1,\n  \"name\": \"sample\",\n", 0),
            0U)
      << text;
  EXPECT_NE(text.find("\n    {\"name\":\"input\",\"role\":\"image\",\"type\":\"u8\",\"shape\":[8,8,3],"
                      "\"bytes_per_sample\":192},\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("\"density\":1"), std::string::npos) << "defaults are left out";
  EXPECT_NE(text.find("\"drop_probability\":0.25"), std::string::npos);
  EXPECT_NE(text.find("\"negative_slope\":0.1}"), std::string::npos) << "floats are short: " << text;
}

TEST(json, unknown_fields_are_ignored_and_missing_optional_ones_default) {
  json doc = json::parse(to_json(sample_graph()));
  doc["comment"] = {{"deep", {1, 2, 3}}};
  doc["ops"][0]["colour"] = "blue";
  doc["ops"][0].erase("seconds");
  doc.erase("format");
  const graph g = graph_from_json(doc.dump());
  EXPECT_FALSE(g.ops[op_id(0)].seconds.has_value());
  EXPECT_EQ(g.ops[op_id(0)].batch_end, -1);
}

TEST(json, the_former_name_of_window_taps_is_read) {
  const plan expected = plan_without_defaults();
  std::string text = to_json(expected);
  for (auto at = text.find("window_taps"); at != std::string::npos; at = text.find("window_taps", at))
    text.replace(at, std::string_view("window_taps").size(), "window_cells");
  expect_equal(plan_from_json(text), expected);
}

TEST(json, refuses_to_write_what_json_cannot_hold) {
  const auto code_of = [](const auto& value) {
    try {
      to_json(value);
    } catch (const error& e) {
      return e.code();
    }
    return errc::ok;
  };
  graph g = sample_graph();
  g.ops[op_id(0)].seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(code_of(g), errc::invalid_argument);
  g = sample_graph();
  g.ops[op_id(0)].attributes.epsilon = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(code_of(g), errc::invalid_argument);
  g = sample_graph();
  g.storages[storage_id(0)].name = "\xFF\xFE";
  EXPECT_EQ(code_of(g), errc::invalid_argument);
  plan p;
  p.slot_margin = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(code_of(p), errc::invalid_argument);
}

/// Message of error(bad_format), or a note that there was none.
template <class Read>
std::string refusal(Read read, const std::string& text) {
  try {
    read(text);
  } catch (const error& e) {
    return e.code() == errc::bad_format ? e.what() : std::string("wrong code: ") + e.what();
  }
  return "nothing was refused";
}

std::string graph_refusal(const std::string& text) {
  return refusal(graph_from_json, text);
}
std::string plan_refusal(const std::string& text) {
  return refusal(plan_from_json, text);
}

struct damage {
  const char* pointer;  ///< RFC 6901
  json value;           ///< discarded: remove the member
  const char* message;
};

const json removed = json(json::value_t::discarded);

template <class Refusal>
void expect_refused(const json& good, const std::vector<damage>& cases, Refusal refusal_of) {
  for (const damage& d : cases) {
    json doc = good;
    const json::json_pointer at(d.pointer);
    if (d.value.is_discarded()) {
      doc[at.parent_pointer()].erase(at.back());
    } else {
      doc[at] = d.value;
    }
    const std::string message = refusal_of(doc.dump());
    EXPECT_NE(message.find(d.message), std::string::npos) << d.pointer << ": " << message;
  }
}

TEST(json, malformed_graphs_are_refused_by_path) {
  const json good = json::parse(to_json(sample_graph()));
  const std::int64_t huge = std::int64_t{1} << 54;
  expect_refused(
      good,
      {
          {"/version", 2, "graph_from_json: version: expected version 1, got 2"},
          {"/version", removed, "version: expected a value, got nothing"},
          {"/version", "1", "version: expected an integer, got a string"},
          {"/format", "stash.plan",
           "text: expected a training graph ('stash.graph'), got a plan ('stash.plan')"},
          {"/format", "stash.bench", "format: expected 'stash.graph', got 'stash.bench'"},
          {"/name", 5, "name: expected a string, got an integer"},
          {"/batch", 0, "batch: expected an integer from 1 to 2147483647, got 0"},
          {"/batch", 2147483648, "batch: expected an integer from"},
          {"/batch", 4.0, "batch: expected an integer, got a number"},
          {"/batch", nullptr, "batch: expected an integer, got null"},
          {"/classes", -1, "classes: expected an integer from 0"},
          {"/storages", removed, "storages: expected a value, got nothing"},
          {"/storages", json::object(), "storages: expected an array, got an object"},
          {"/storages/2", 7, "storages[2]: expected an object, got an integer"},
          {"/storages/2/name", removed, "storages[2].name: expected a value"},
          {"/storages/2/role", "wieght", "storages[2].role: expected one of image, label"},
          {"/storages/2/role", "wieght", "got 'wieght'"},
          {"/storages/2/type", "f64", "storages[2].type: expected one of f32"},
          {"/storages/2/shape", 3, "storages[2].shape: expected an array"},
          {"/storages/2/shape/0", -3, "storages[2].shape[0]: expected an integer from 0"},
          {"/storages/2/shape/0", huge, "storages[2].shape[0]: expected an integer from 0"},
          {"/storages/2/fixed_bytes", true, "storages[2].fixed_bytes: expected an integer, got a boolean"},
          {"/storages/2/density", 1.5, "storages[2].density: expected a number from 0"},
          {"/storages/2/density", "x", "storages[2].density: expected a number, got a string"},
          {"/storages/2/window_taps", -1, "storages[2].window_taps: expected an integer from 0"},
          {"/ops/3/name", json::array(), "ops[3].name: expected a string, got an array"},
          {"/ops/3/kind", "convolution", "ops[3].kind: expected one of conv2d"},
          {"/ops/3/stage", "sideways", "ops[3].stage: expected one of forward, backward, update"},
          {"/ops/3/forward_op", -2, "ops[3].forward_op: expected an integer from -1"},
          {"/ops/3/attributes", 1, "ops[3].attributes: expected an object"},
          {"/ops/3/attributes/kernel_h", 0, "ops[3].attributes.kernel_h: expected an integer from 1"},
          {"/ops/3/attributes/bias", 1, "ops[3].attributes.bias: expected a boolean, got an integer"},
          {"/ops/3/attributes/drop_probability", 2, "drop_probability: expected a number from 0"},
          {"/ops/3/attributes/lrn_k", 1e39, "ops[3].attributes.lrn_k: expected a number from"},
          {"/ops/3/inputs/0/storage", "x", "ops[3].inputs[0].storage: expected an integer, got a string"},
          {"/ops/3/inputs/0/storage", 2147483648, "ops[3].inputs[0].storage: expected an integer from -1"},
          {"/ops/3/inputs/0/storage", removed, "ops[3].inputs[0].storage: expected a value"},
          {"/ops/3/outputs/0/channels", -1, "ops[3].outputs[0].channels: expected an integer from 0"},
          {"/ops/3/parameters", {"a"}, "ops[3].parameters[0]: expected an integer, got a string"},
          {"/ops/3/alternatives", {{{"form", 1}}}, "ops[3].alternatives[0].form: expected a string"},
          {"/ops/3/alternatives",
           {{{"form", "f"}, {"reads", {{{"storage", 1}, {"need", "all"}}}}}},
           "ops[3].alternatives[0].reads[0].need: expected one of sign"},
          {"/ops/3/workspace_bytes", -1, "ops[3].workspace_bytes: expected an integer from 0"},
          {"/ops/3/seconds", -0.5, "ops[3].seconds: expected a number from 0"},
          {"/ops/3/batch_end", -2, "ops[3].batch_end: expected an integer from -1"},
          {"/recompute/0/target", "r", "recompute[0].target: expected an integer"},
          // Well-formed, but inconsistent: check_graph sees it.
          {"/ops/3/inputs/0/storage", 1000, "check_graph: ops[3]"},
      },
      graph_refusal);
}

TEST(json, sizes_that_overflow_are_refused) {
  json doc = json::parse(to_json(sample_graph()));
  const std::int64_t largest = std::int64_t{1} << 53;
  doc["batch"] = 2147483647;
  doc["storages"][0]["bytes_per_sample"] = largest;
  EXPECT_NE(graph_refusal(doc.dump()).find("storages[0]: expected at most"), std::string::npos);
  doc = json::parse(to_json(sample_graph()));
  doc["storages"][0]["shape"] = {largest, largest, largest};
  EXPECT_NE(graph_refusal(doc.dump()).find("storages[0]: expected at most"), std::string::npos);
  doc["storages"][0]["shape"] = {0, largest, largest};
  EXPECT_NE(graph_refusal(doc.dump()).find("storages[0]: expected at most"), std::string::npos);
  doc = json::parse(to_json(sample_graph()));
  for (int i = 0; i < 200; ++i) {
    doc["storages"].push_back({{"name", std::to_string(i)},
                               {"role", "weight"},
                               {"type", "u8"},
                               {"shape", {largest}},
                               {"fixed_bytes", largest}});
  }
  EXPECT_NE(graph_refusal(doc.dump()).find("in total"), std::string::npos);
  doc = json::parse(to_json(plan_without_defaults()));
  for (int i = 0; i < 200; ++i) {
    doc["buffers"].push_back({{"storage", 0},
                              {"form", "dense"},
                              {"bytes", largest},
                              {"offset", 0},
                              {"first_step", 0},
                              {"last_step", 0}});
  }
  EXPECT_NE(plan_refusal(doc.dump()).find("in total"), std::string::npos);
}

TEST(json, malformed_plans_are_refused_by_path) {
  const json good = json::parse(to_json(plan_without_defaults()));
  ASSERT_EQ(plan_refusal(good.dump()), "nothing was refused");
  expect_refused(
      good,
      {
          {"/version", 0, "plan_from_json: version: expected version 1, got 0"},
          {"/policy", "fp4",
           "policy: expected one of none, lossless, fp16, fp8, fp10, auto, gist, swap-only, lms, layrub, got "
           "'fp4'"},
          {"/policy", removed, "policy: expected a value"},
          {"/budget_bytes", -1, "budget_bytes: expected an integer from 0"},
          {"/threads", 0, "threads: expected an integer from 1"},
          {"/machine", 1, "machine: expected a string"},
          {"/slot_margin", -0.1, "slot_margin: expected a number from 0"},
          {"/overflow_bytes", 1.5, "overflow_bytes: expected an integer, got a number"},
          {"/sizes", json::array(), "sizes: expected an object, got an array"},
          {"/sizes/wall", "w", "sizes.wall: expected an integer, got a string"},
          {"/sizes/wall_op", -2, "sizes.wall_op: expected an integer from -1"},
          {"/choices", removed, "choices: expected a value"},
          {"/choices/1/kind", "lost", "choices[1].kind: expected one of none, raw, encoded, recompute"},
          {"/choices/0/stored/kind", "zip", "choices[0].stored.kind: expected one of raw"},
          {"/choices/0/stored/values", "fp4", "choices[0].stored.values: expected one of source"},
          {"/choices/0/stored/underflow", "no", "choices[0].stored.underflow: expected one of to_zero"},
          {"/choices/0/stored/rule", "jax", "choices[0].stored.rule: expected one of tensorflow"},
          {"/choices/0/stored/window_taps", -1, "choices[0].stored.window_taps: expected an integer"},
          {"/choices/0/stored/window_taps", 70000, "choices[0].stored.window_taps: expected an integer"},
          {"/choices/0/density", 1.1, "choices[0].density: expected a number"},
          {"/choices/0/bytes_after", -1, "choices[0].bytes_after: expected an integer"},
          {"/choices/0/reason", nullptr, "choices[0].reason: expected a string, got null"},
          {"/alternative/1", "a", "alternative[1]: expected an integer, got a string"},
          {"/buffers/0/form", "flat", "buffers[0].form: expected one of dense, encoded, overflow"},
          {"/buffers/0/bytes", removed, "buffers[0].bytes: expected a value"},
          {"/buffers/0/offset", -64, "buffers[0].offset: expected an integer from 0"},
          {"/buffers/0/last_step", 2147483648, "buffers[0].last_step: expected an integer"},
          {"/steps/0/kind", "jump", "steps[0].kind: expected one of run, encode, decode, recompute"},
          {"/steps/0/stash/0", false, "steps[0].stash[0]: expected an integer, got a boolean"},
          {"/steps/0/inputs", 3, "steps[0].inputs: expected an array"},
          {"/network", removed, "network: expected a value"},
          {"/network/ops/0/inputs/1/storage", "x",
           "network.ops[0].inputs[1].storage: expected an integer, got a string"},
      },
      plan_refusal);
}

TEST(json, text_that_is_no_document) {
  for (const char* text :
       {"", " ", "{", "[]", "null", "3", "\"x\"", "{}x", "{\"version\":1", "{\"a\":\"\xFF\"}", "// c\n{}",
        "\xEF\xBB\xBF", "{'version':1}", "NaN", "{\"version\":NaN}", "{\"version\":1,}"}) {
    EXPECT_EQ(graph_refusal(text).rfind("graph_from_json: ", 0), 0U) << text << ": " << graph_refusal(text);
    EXPECT_EQ(plan_refusal(text).rfind("plan_from_json: ", 0), 0U) << text << ": " << plan_refusal(text);
  }
  EXPECT_NE(
      graph_refusal("{\"version\":1e999}").find("expected finite numbers, got 1e999, which ends at byte 16"),
      std::string::npos)
      << graph_refusal("{\"version\":1e999}");
  EXPECT_NE(graph_refusal(std::string("{\"version\":1\0}", 14)).find("syntax error at byte"),
            std::string::npos);
}

TEST(json, huge_numbers_are_refused) {
  const std::string good = to_json(sample_graph());
  for (const char* number : {"1e400", "-1e400", "1e308", "99999999999999999999999999", "18446744073709551615",
                             "9223372036854775808", "-9223372036854775809", "4.5", "1E2147483647"}) {
    std::string text = good;
    const std::size_t at = text.find("\"batch\": 4");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 10, std::string("\"batch\": ") + number);
    EXPECT_EQ(graph_refusal(text).rfind("graph_from_json: ", 0), 0U) << number << ": " << graph_refusal(text);
  }
}

TEST(json, deep_nesting_is_refused) {
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 1000000; ++i)
      text += bracket;
    EXPECT_NE(graph_refusal(text).find("levels of nesting"), std::string::npos);
  }
  const std::string brackets = std::string(200, '[');
  json doc = json::parse(to_json(sample_graph()));
  doc["note"] = brackets + "\"" + brackets;
  EXPECT_EQ(graph_refusal(doc.dump()), "nothing was refused") << "brackets in strings are no nesting";
  std::string text = doc.dump();
  text.insert(text.size() - 1, ",\"deep\":" + brackets + std::string(200, ']'));
  EXPECT_NE(graph_refusal(text).find("levels of nesting"), std::string::npos);
}

/// One random edit: bytes, cuts, repeats, numbers, tokens.
std::string mutated(std::string text, std::mt19937& rng) {
  static const std::vector<std::string> tokens = {"{",           "}",          "[",     "]",
                                                  ",",           ":",          "\"",    "null",
                                                  "true",        "-1",         "1e99",  "0.5",
                                                  "\\u",         "\\",         "1e400", "\xFF",
                                                  "-",           "2147483648", "",      "9223372036854775807",
                                                  "\"storage\"", "\"kind\":"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng()) % n; };
  const std::size_t edits = 1 + below(3);
  for (std::size_t i = 0; i < edits && !text.empty(); ++i) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(rng() & 0xFFU);
        break;
      case 1:
        text.erase(at, 1 + below(20));
        break;
      case 2:
        text.insert(at, tokens[below(tokens.size())]);
        break;
      case 3:
        text.insert(below(text.size()), text.substr(at, below(60)));
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
      }
    }
  }
  return text;
}

template <class Read>
void mutate_many(const std::string& good, Read read, std::uint64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  int accepted = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text = mutated(good, rng);
    try {
      const auto value = read(text);
      ++accepted;
      const std::string again = to_json(value);
      EXPECT_EQ(to_json(read(again)), again);
    } catch (const error& e) {
      ASSERT_EQ(e.code(), errc::bad_format) << e.what() << '\n' << text;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, count);
}

TEST(json, mutated_text_parses_or_is_refused) {
  mutate_many(to_json(sample_graph()), graph_from_json, stash_test::cases(10000), 1);
  mutate_many(to_json(plan_without_defaults()), plan_from_json, stash_test::cases(10000), 2);
}

TEST(names, every_name_reads_back) {
  for (const auto& e : names_of<op_kind>) {
    EXPECT_EQ(to_string(e.value), e.name);
    EXPECT_EQ(value_of_name<op_kind>(e.name), e.value);
  }
  EXPECT_EQ(to_string(node_kind::softmax_cross_entropy), "softmax_cross_entropy");
  EXPECT_EQ(to_string(storage_role::saved_statistic), "saved_statistic");
  EXPECT_EQ(to_string(op_stage::update), "update");
  EXPECT_EQ(to_string(need::exact_value), "exact_value");
  EXPECT_EQ(to_string(need::fine_value), "fine_value");
  EXPECT_EQ(to_string(stash_kind::recompute), "recompute");
  EXPECT_EQ(to_string(step_kind::decode), "decode");
  EXPECT_EQ(to_string(buffer_form::overflow), "overflow");
  EXPECT_EQ(to_string(static_cast<op_kind>(200)), "unknown");
  EXPECT_FALSE(value_of_name<op_kind>("unknown").has_value());
  EXPECT_FALSE(value_of_name<op_kind>("").has_value());
}

TEST(names, parse_policy) {
  for (const auto& e : names_of<policy>)
    EXPECT_EQ(parse_policy(to_string(e.value)), e.value);
  for (const char* name : {"", "FP8", "fp4", "none "}) {
    try {
      parse_policy(name);
      ADD_FAILURE() << name;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("none, lossless, fp16, fp8"), std::string::npos) << e.what();
    }
  }
}

TEST(storage, elements_of_the_dense_form) {
  storage s;
  s.shape = {4, 3, 2};
  s.fixed_bytes = 96;
  EXPECT_EQ(s.elements(7), 24) << "fixed size: the batch does not count";
  s.fixed_bytes = 0;
  s.bytes_per_sample = 96;
  EXPECT_EQ(s.elements(7), 168);
  EXPECT_EQ(s.bytes(7), 672);
  s.shape.clear();
  EXPECT_EQ(s.elements(7), 7) << "a scalar per sample";
}

TEST(json, every_known_machine_comes_back) {
  for (const machine& m : known_machines()) {
    const machine back = machine_from_json(to_json(m));
    EXPECT_EQ(to_json(back), to_json(m)) << m.name;
    EXPECT_EQ(back.flops_per_second, m.flops_per_second) << m.name;
  }
}

}  // namespace
}  // namespace stash::planner
