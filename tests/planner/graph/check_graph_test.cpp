// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/graph/graph.hpp"
#include "planner/graph/id_literals.hpp"
#include "planner/graph/sample_graph.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

std::string refusal(const graph& g) {
  try {
    check_graph(g);
  } catch (const error& e) {
    return e.code() == errc::bad_format ? e.what() : std::string("wrong code: ") + e.what();
  }
  return "nothing was refused";
}

op_id position(const graph& g, const std::string& name) {
  for (const op_id i : g.ops.ids()) {
    if (g.ops[i].name == name) return i;
  }
  throw std::out_of_range(name);
}

op& op_named(graph& g, const std::string& name) {
  return g.ops[position(g, name)];
}

storage& output_of(graph& g, const std::string& name) {
  return g.storages[op_named(g, name).outputs[0].storage];
}

TEST(check_graph, accepts_a_made_graph) {
  EXPECT_NO_THROW(check_graph(sample_graph()));
}

TEST(check_graph, accepts_parts_of_the_batch) {
  graph g = sample_graph();
  g.ops[0_op].batch_end = 2;
  op rest = g.ops[0_op];
  rest.name += "/rest";
  rest.batch_begin = 2;
  rest.batch_end = 4;
  for (op& o : g.ops) {
    if (o.forward_op > 0_op) ++o.forward_op;
  }
  for (recipe& r : g.recipes)
    ++r.ops[0];
  g.ops.insert(g.ops.begin() + 1, rest);
  EXPECT_NO_THROW(check_graph(g));
}

struct damage {
  const char* what;
  std::function<void(graph&)> apply;
  const char* message;
};

void expect_refused(const std::vector<damage>& cases) {
  for (const damage& d : cases) {
    graph g = sample_graph();
    d.apply(g);
    const std::string message = refusal(g);
    EXPECT_NE(message.find(d.message), std::string::npos) << d.what << ": " << message;
  }
}

TEST(check_graph, storages) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused({
      {"batch 0", [](graph& g) { g.batch = 0; }, "batch: expected an integer from 1"},
      {"batch too large", [](graph& g) { g.batch = std::int64_t{1} << 31; }, "batch"},
      {"classes", [](graph& g) { g.classes = -1; }, "classes: expected at least 0"},
      {"empty name", [](graph& g) { g.storages[1_storage].name.clear(); }, "storages[1] '': name"},
      {"name twice", [](graph& g) { g.storages[3_storage].name = g.storages[1_storage].name; },
       "storages[3]"},
      {"dimension 0", [](graph& g) { g.storages[0_storage].shape[1] = 0; },
       "storages[0] 'input': shape: expected positive"},
      {"dimension -1", [](graph& g) { g.storages[0_storage].shape[1] = -1; },
       "storages[0] 'input': shape: expected positive"},
      {"nine dimensions", [](graph& g) { g.storages[0_storage].shape.assign(9, 1); },
       "storages[0] 'input': shape: expected at"},
      {"bytes", [](graph& g) { g.storages[0_storage].bytes_per_sample += 1; },
       "bytes_per_sample: expected 192"},
      {"role without a fixed size", [](graph& g) { g.storages[0_storage].fixed_bytes = 64; },
       "fixed_bytes: expected 0"},
      {"fixed size per sample",
       [](graph& g) {
         g.storages[1_storage].bytes_per_sample = g.storages[1_storage].fixed_bytes;
         g.storages[1_storage].fixed_bytes = 0;
       },
       "fixed_bytes: expected 432"},
      {"type", [](graph& g) { g.storages[0_storage].type = dtype::f32; }, "bytes_per_sample: expected 768"},
      {"unknown role", [](graph& g) { g.storages[0_storage].role = static_cast<storage_role>(77); },
       "known role"},
      {"unknown type", [](graph& g) { g.storages[0_storage].type = static_cast<dtype>(77); },
       "known role and type"},
      {"product that overflows",
       [](graph& g) {
         g.storages[0_storage].shape = {most, most, most};
       },
       "storages[0]"},
      {"total that overflows",
       [](graph& g) {
         g.batch = 1 << 30;
         g.storages[0_storage].shape = {1 << 20, 1 << 12};
         g.storages[0_storage].bytes_per_sample = std::int64_t{1} << 32;
       },
       "2^60"},
      {"density", [](graph& g) { g.storages[0_storage].density = 1.01; }, "density"},
      {"density NaN", [](graph& g) { g.storages[0_storage].density = std::nan(""); }, "density"},
      {"window_taps", [](graph& g) { g.storages[0_storage].window_taps = -1; }, "window_taps"},
  });
}

TEST(check_graph, ids_and_slices) {
  expect_refused({
      {"input id", [](graph& g) { g.ops[2_op].inputs[0].storage = 1000_storage; },
       "ops[2] 'c0': inputs[0].storage"},
      {"negative id", [](graph& g) { g.ops[2_op].inputs[0].storage = no_id; },
       "ops[2] 'c0': inputs[0].storage"},
      {"output id", [](graph& g) { g.ops[2_op].outputs[0].storage = 1000_storage; },
       "ops[2] 'c0': outputs[0].storage"},
      {"parameter id", [](graph& g) { g.ops[2_op].parameters[0] = storage_id(-5); },
       "ops[2] 'c0': parameters[0]"},
      {"written id",
       [](graph& g) { op_named(g, "fc/backward_weights").parameters_written[0] = 1000_storage; },
       "parameters_written[0]"},
      {"optional output id", [](graph& g) { op_named(g, "p1").optional_outputs[0] = 1000_storage; },
       "optional_outputs[0]"},
      {"read id",
       [](graph& g) { op_named(g, "fc/backward_weights").alternatives[0].reads[0].storage = 1000_storage; },
       "alternatives[0].reads[0].storage"},
      {"slice of another storage",
       [](graph& g) {
         op_named(g, "fc/backward_weights").alternatives[0].reads[0].slice.storage = 0_storage;
       },
       "alternatives[0].reads[0].slice.storage"},
      {"feature map after the forward stage",
       [](graph& g) {
         op_named(g, "fc/backward_weights").inputs[0] = {op_named(g, "fc").outputs[0].storage};
       },
       "'fc/backward_weights': inputs[0]: expected no feature map after the forward stage"},
      {"feature map among the inputs of a generic op",
       [](graph& g) {
         op& o = op_named(g, "fc/backward_weights");
         o.kind = op_kind::generic;
         o.inputs.push_back({op_named(g, "fc").outputs[0].storage});
       },
       "'fc/backward_weights': inputs[1]: expected no feature map after the forward stage"},
      {"slice too long", [](graph& g) { op_named(g, "r2").inputs[0].channels = 7; }, "inputs[0].channels"},
      {"slice out of range", [](graph& g) { op_named(g, "r2").inputs[0].channel_begin = 7; },
       "inputs[0].channel_begin"},
      {"slice that overflows",
       [](graph& g) {
         op_named(g, "r2").inputs[0].channel_begin = 6;
         op_named(g, "r2").inputs[0].channels = std::numeric_limits<std::int64_t>::max();
       },
       "inputs[0].channels"},
      {"negative slice", [](graph& g) { op_named(g, "r2").inputs[0].channels = -1; }, "inputs[0].channels"},
      {"whole with a begin", [](graph& g) { op_named(g, "d1").inputs[0].channel_begin = 2; },
       "inputs[0].channels"},
      {"recipe op", [](graph& g) { g.recipes[0_recipe].ops = {1000_op}; }, "recompute[0].ops[0]"},
      {"recipe of another op", [](graph& g) { g.recipes[0_recipe].ops = {0_op}; }, "recompute[0].ops[0]"},
      {"recipe of no op", [](graph& g) { g.recipes[0_recipe].ops.clear(); },
       "recompute[0].ops: expected 1 to 8"},
      {"recipe of one op twice",
       [](graph& g) { g.recipes[0_recipe].ops.push_back(g.recipes[0_recipe].ops[0]); },
       "recompute[0].ops[1]"},
      {"recipe of many ops", [](graph& g) { g.recipes[0_recipe].ops.resize(9); },
       "recompute[0].ops: expected 1 to 8"},
      {"recipe target", [](graph& g) { g.recipes[0_recipe].target = 0_storage; }, "recompute[0].target"},
      {"recipe source", [](graph& g) { g.recipes[0_recipe].sources = {g.recipes[0_recipe].target}; },
       "recompute[0].sources"},
      {"recipe without source", [](graph& g) { g.recipes[0_recipe].sources.clear(); },
       "recompute[0].sources"},
      {"recipe with a source more", [](graph& g) { g.recipes[0_recipe].sources.push_back(0_storage); },
       "recompute[0].sources"},
  });
}

TEST(check_graph, operands) {
  expect_refused({
      {"op name twice", [](graph& g) { g.ops[3_op].name = g.ops[1_op].name; }, "ops[3]"},
      {"op without a name", [](graph& g) { g.ops[3_op].name.clear(); }, "ops[3] '': name"},
      {"unknown kind", [](graph& g) { g.ops[3_op].kind = static_cast<op_kind>(99); }, "known kind"},
      {"unknown stage", [](graph& g) { g.ops[3_op].stage = static_cast<op_stage>(99); },
       "known kind and stage"},
      {"no input", [](graph& g) { g.ops[2_op].inputs.clear(); }, "inputs: expected 1 operands, got 0"},
      {"two inputs", [](graph& g) { g.ops[2_op].inputs.push_back(g.ops[2_op].inputs[0]); },
       "inputs: expected 1 operands, got 2"},
      {"no output", [](graph& g) { g.ops[2_op].outputs.clear(); }, "outputs: expected 1 operands, got 0"},
      {"no weight", [](graph& g) { g.ops[2_op].parameters.clear(); },
       "parameters: expected 1 to 2 operands, got 0"},
      {"norm with 3 parameters", [](graph& g) { op_named(g, "n1").parameters.pop_back(); },
       "parameters: expected 4"},
      {"relu with a mask", [](graph& g) { op_named(g, "r2").optional_outputs = {0_storage}; },
       "optional_outputs"},
      {"weight as input",
       [](graph& g) {
         g.ops[0_op].inputs[0] = {1_storage, 0, 0};
       },
       "ops[0] 'c1': inputs[0]: expected a feature map"},
      {"map as parameter", [](graph& g) { g.ops[0_op].parameters[0] = 0_storage; },
       "parameters[0]: expected a storage of fixed size"},
      {"image as output",
       [](graph& g) {
         g.ops[0_op].outputs[0] = {0_storage, 0, 0};
       },
       "outputs[0]: expected feature_map, got image"},
      {"map written in backward",
       [](graph& g) { op_named(g, "c0/backward_data").outputs[0] = op_named(g, "c0").outputs[0]; },
       "outputs[0]: expected gradient"},
      {"map as optional output", [](graph& g) { op_named(g, "p1").optional_outputs[0] = 0_storage; },
       "expected auxiliary"},
      {"gradient as stash",
       [](graph& g) {
         stash_read& r = op_named(g, "c0/backward_weights").alternatives[0].reads[0];
         r.storage = op_named(g, "loss/backward").outputs[0].storage;
         r.slice = {r.storage, 0, 0};
       },
       "alternatives[0].reads[0]: expected a feature map"},
      {"no alternative", [](graph& g) { op_named(g, "r2/backward").alternatives.clear(); },
       "alternatives: expected at least one"},
      {"window of a convolution",
       [](graph& g) {
         op_named(g, "c0/backward_weights").alternatives = op_named(g, "p1/backward").alternatives;
       },
       "alternatives[0].reads[0].need: expected one that conv2d_backward_weights can take, got "},
      {"mask of a relu",
       [](graph& g) { op_named(g, "r2/backward").alternatives[0].reads[0].what = need::mask; },
       "alternatives[0].reads[0].need: expected one that relu_backward can take, got mask"},
      {"nameless form", [](graph& g) { op_named(g, "r2/backward").alternatives[0].form.clear(); },
       "alternatives[0].form"},
      {"forward op with a choice",
       [](graph& g) { op_named(g, "r2").alternatives = op_named(g, "r2/backward").alternatives; },
       "alternatives: expected none"},
      {"convolution in place", [](graph& g) { op_named(g, "c0").outputs[0] = op_named(g, "c0").inputs[0]; },
       "outputs[0]: expected no channels of an input"},
      {"partly in place", [](graph& g) { op_named(g, "r2").outputs[0].channel_begin = 1; },
       "outputs[0]: expected channels of an input exactly or none"},
      {"workspace", [](graph& g) { g.ops[0_op].workspace_bytes = -1; }, "workspace_bytes"},
      {"seconds", [](graph& g) { g.ops[0_op].seconds = -1.0; }, "seconds"},
      {"seconds NaN", [](graph& g) { g.ops[0_op].seconds = std::nan(""); }, "seconds"},
      {"batch range beyond", [](graph& g) { g.ops[0_op].batch_end = g.batch + 1; }, "batch_end"},
      {"batch range empty",
       [](graph& g) {
         g.ops[0_op].batch_begin = 2;
         g.ops[0_op].batch_end = 2;
       },
       "batch_begin"},
      {"batch begin without end", [](graph& g) { g.ops[0_op].batch_begin = 1; }, "batch_begin"},
  });
}

TEST(check_graph, order) {
  expect_refused({
      {"input never written", [](graph& g) { g.ops.erase(g.ops.begin()); },
       "inputs[0]: expected channels written by earlier ops"},
      {"reader before writer", [](graph& g) { std::swap(g.ops[1_op], g.ops[2_op]); },
       "inputs[0]: expected channels written"},
      {"half of a concatenation missing",
       [](graph& g) {
         for (const char* name : {"c3", "r3"})
           g.ops.erase(g.ops.begin() + position(g, name).number());
       },
       "'d1': inputs[0]: expected channels written by earlier ops"},
      {"stage order",
       [](graph& g) {
         g.ops.push_back(g.ops[0_op]);
         g.ops.back().name = "late";
       },
       "stage: expected forward ops before"},
      {"forward kind in backward", [](graph& g) { op_named(g, "loss").stage = op_stage::backward; },
       "stage: expected forward"},
      {"add in update",
       [](graph& g) {
         op o;
         o.name = "late";
         o.kind = op_kind::copy;
         o.stage = op_stage::update;
         g.ops.push_back(o);
       },
       "stage: expected forward or backward"},
      {"no forward op", [](graph& g) { op_named(g, "r2/backward").forward_op = no_id; }, "forward_op"},
      {"forward op out of range", [](graph& g) { op_named(g, "r2/backward").forward_op = 1000_op; },
       "forward_op"},
      {"forward op of another kind", [](graph& g) { op_named(g, "r2/backward").forward_op = 0_op; },
       "forward_op: expected relu"},
      {"forward op of a forward op", [](graph& g) { op_named(g, "r2").forward_op = 0_op; }, "forward_op"},
      {"statistic never saved",
       [](graph& g) {
         op& n = op_named(g, "n1");
         n.parameters_written = {n.parameters[2], n.parameters[3]};
       },
       "something an earlier op wrote"},
      {"gradient of a weight never written",
       [](graph& g) {
         op& c = op_named(g, "c0/backward_weights");
         c.parameters_written[0] = op_named(g, "c0").parameters[0];
       },
       "'sgd_update': parameters["},
      {"update in the forward stage",
       [](graph& g) {
         op& f = g.ops.front();
         f.kind = op_kind::sgd_update;
       },
       "expected backward or update"},
      {"auxiliary never written", [](graph& g) { op_named(g, "d1").optional_outputs.clear(); },
       "expected a storage written in the forward stage"},
  });
}

TEST(check_graph, shapes_of_operands) {
  expect_refused({
      {"convolution's height", [](graph& g) { op_named(g, "c1").attributes.pad_top = 0; },
       "'c1': outputs[0]: expected 7 x 8"},
      {"stride 0", [](graph& g) { op_named(g, "c1").attributes.stride_w = 0; }, "'c1': attributes"},
      {"negative padding", [](graph& g) { op_named(g, "c1").attributes.pad_left = -1; }, "'c1': attributes"},
      {"convolution's channels", [](graph& g) { op_named(g, "c1").attributes.out_features = 5; },
       "5 channels"},
      {"groups", [](graph& g) { op_named(g, "c0").attributes.groups = 3; }, "attributes.groups"},
      {"groups 0", [](graph& g) { op_named(g, "c0").attributes.groups = 0; }, "attributes.groups"},
      {"weights", [](graph& g) { op_named(g, "c0").attributes.groups = 2; },
       "'c0': parameters[0]: expected 8 elements, got 16"},
      {"bias", [](graph& g) { op_named(g, "c0").parameters[1] = op_named(g, "c0").parameters[0]; },
       "'c0': parameters[1]"},
      {"pool's windows", [](graph& g) { op_named(g, "p1").attributes.stride_h = 1; },
       "'p1': outputs[0]: expected 7 x 4"},
      {"pool's padding",
       [](graph& g) {
         op_attributes& a = op_named(g, "p1").attributes;
         a.pad_top = a.kernel_h;
         a.stride_h = 3;
       },
       "'p1': "},
      {"window_taps", [](graph& g) { g.storages[op_named(g, "p1").optional_outputs[0]].window_taps = 9; },
       "'p1': optional_outputs[0]: expected the window_taps"},
      {"dense outputs", [](graph& g) { op_named(g, "fc").attributes.out_features = 6; },
       "'fc': outputs[0]: expected 6"},
      {"dense weights",
       [](graph& g) { std::swap(op_named(g, "fc").parameters[0], op_named(g, "fc").parameters[1]); },
       "'fc': parameters[0]"},
      {"statistics", [](graph& g) { op_named(g, "n1").parameters[2] = op_named(g, "fc").parameters[1]; },
       "'n1': parameters[2]: expected 4"},
      {"relu of another size",
       [](graph& g) {
         output_of(g, "c1").shape[0] = 4;
         output_of(g, "c1").bytes_per_sample /= 2;
       },
       "'c1': outputs[0]: expected 8 x 8 windows, got 4 x 8"},
      {"classes", [](graph& g) { g.classes = 6; }, "'loss': inputs[0]: expected 6 classes, got 5"},
      {"labels", [](graph& g) { std::swap(op_named(g, "loss").inputs[0], op_named(g, "loss").inputs[1]); },
       "'loss'"},
      {"gradient of another size",
       [](graph& g) {
         op_named(g, "c0/backward_data").inputs[0] = op_named(g, "fc/backward_data").outputs[0];
       },
       "'c0/backward_data': inputs[0]"},
      {"weight gradient of another size",
       [](graph& g) {
         op_named(g, "c0/backward_weights").parameters_written[0] =
             op_named(g, "fc/backward_weights").parameters_written[0];
       },
       "'c0/backward_weights': parameters_written[0]"},
      {"more weight gradients than weights",
       [](graph& g) {
         op& b = op_named(g, "c1/backward_weights");
         b.parameters_written.push_back(b.parameters_written[0]);
       },
       "'c1/backward_weights': parameters_written: expected at most the 1"},
      {"accumulate elsewhere",
       [](graph& g) {
         std::swap(op_named(g, "p1/accumulate").inputs[0], op_named(g, "p1/accumulate").inputs[1]);
       },
       "'p1/accumulate': outputs[0]: expected inputs[0]"},
  });
}

}  // namespace
}  // namespace stash::planner
