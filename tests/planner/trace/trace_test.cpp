// SPDX-License-Identifier: Apache-2.0
// Reading execution traces: what is read from every schema, what is let pass, what is refused; and what
// becomes of it in a training graph (docs/traces.md).

#include "planner/trace/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "planner/json/json.hpp"
#include "planner/plan.hpp"
#include "planner/trace/trace_text.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

graph graph_of_text(const std::string& text, const trace_options& options = {}) {
  return graph_of(read_trace(text), options);
}

const op& op_named(const graph& g, const std::string& label, std::size_t which = 0) {
  for (const op& o : g.ops) {
    if (o.label == label && which-- == 0) return o;
  }
  throw std::runtime_error("no " + label);
}

std::vector<std::string> labels(const graph& g, op_stage stage) {
  std::vector<std::string> list;
  for (const op& o : g.ops) {
    if (o.stage == stage) list.push_back(o.label);
  }
  return list;
}

const storage& output(const graph& g, const std::string& label, std::size_t i = 0) {
  return g.at(op_named(g, label).outputs.at(i).storage);
}

std::vector<need> needs(const op& o) {
  std::vector<need> list;
  if (o.alternatives.empty()) return list;
  for (const stash_read& r : o.alternatives[0].reads)
    list.push_back(r.what);
  return list;
}

std::vector<storage_id> ids(const std::vector<tensor_ref>& refs) {
  std::vector<storage_id> list;
  for (const tensor_ref& r : refs)
    list.push_back(r.storage);
  return list;
}

template <class Call>
void expect_error(errc code, const std::string& text, Call call) {
  try {
    call();
    ADD_FAILURE() << "expected an error with " << text;
  } catch (const error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

// One forward and one backward call around what a test is about.
class tiny_step {
 public:
  tiny_step() : backward(text.thread()), top(text.main_thread()) {}
  std::int64_t backward_node(const char* name) {
    return text.label(name,
                      text.label(std::string("autograd::engine::evaluate_function: ") + name, backward));
  }
  graph make(const trace_options& options = {}) const { return graph_of_text(text.text(), options); }

  trace_text text;
  std::int64_t backward;
  std::int64_t top;
};

TEST(trace, primitive_operators_in_stages) {
  const graph g = graph_of_text(small_trace());
  EXPECT_THAT(labels(g, op_stage::forward),
              ElementsAre("aten::cudnn_convolution", "aten::clamp_min_", "aten::native_dropout",
                          "aten::addmm", "aten::_log_softmax", "aten::nll_loss_forward", "aten::ones_like"));
  EXPECT_THAT(labels(g, op_stage::backward),
              ElementsAre("aten::nll_loss_backward", "aten::_log_softmax_backward_data", "aten::mm",
                          "aten::mm", "aten::sum", "aten::native_dropout_backward",
                          "aten::threshold_backward", "aten::convolution_backward"));
  EXPECT_THAT(labels(g, op_stage::update), ElementsAre("aten::_foreach_add_", "aten::_foreach_add_"));
}

TEST(trace, roles_and_sizes) {
  const graph g = graph_of_text(small_trace());
  std::vector<std::pair<storage_role, std::int64_t>> fixed;
  for (const storage& s : g.storages) {
    if (s.fixed_bytes > 0) fixed.emplace_back(s.role, s.fixed_bytes);
  }
  using r = storage_role;
  EXPECT_THAT(fixed, UnorderedElementsAre(std::pair(r::weight, 1152), std::pair(r::weight, 40),
                                          std::pair(r::weight, 327680), std::pair(r::weight_gradient, 1152),
                                          std::pair(r::weight_gradient, 40),
                                          std::pair(r::weight_gradient, 327680), std::pair(r::momentum, 1152),
                                          std::pair(r::momentum, 40), std::pair(r::momentum, 327680)));
  const op& convolution = op_named(g, "aten::cudnn_convolution");
  EXPECT_EQ(g.at(convolution.inputs.at(0).storage).role, r::image);
  EXPECT_EQ(g.at(convolution.inputs.at(0).storage).bytes(1), 8 * 4 * 32 * 32 * 4);
  EXPECT_EQ(g.at(convolution.parameters.at(0)).role, r::weight);
  EXPECT_EQ(g.at(op_named(g, "aten::nll_loss_forward").inputs.at(1).storage).role, r::label);
  EXPECT_EQ(output(g, "aten::native_dropout", 1).type, dtype::u8);
  EXPECT_EQ(output(g, "aten::native_dropout", 1).bytes(1), 65536);
  EXPECT_EQ(output(g, "aten::nll_loss_backward").role, r::gradient);
}

TEST(trace, an_activation_in_place_keeps_one_storage) {
  const graph g = graph_of_text(small_trace());
  const storage_id y = op_named(g, "aten::cudnn_convolution").outputs.at(0).storage;
  EXPECT_THAT(ids(op_named(g, "aten::clamp_min_").inputs), ElementsAre(y));
  EXPECT_THAT(ids(op_named(g, "aten::clamp_min_").outputs), ElementsAre(y));
  EXPECT_THAT(ids(op_named(g, "aten::native_dropout").inputs), ElementsAre(y));
  EXPECT_EQ(g.at(y).density, 0.5);
  EXPECT_EQ(output(g, "aten::native_dropout", 0).density, 0.75);
}

TEST(trace, backward_operators_need_what_their_kernels_look_at) {
  const graph g = graph_of_text(small_trace());
  EXPECT_THAT(needs(op_named(g, "aten::threshold_backward")), ElementsAre(need::sign));
  EXPECT_THAT(needs(op_named(g, "aten::native_dropout_backward")), ElementsAre(need::mask));
  EXPECT_THAT(needs(op_named(g, "aten::mm", 0)), IsEmpty());
  EXPECT_THAT(needs(op_named(g, "aten::mm", 1)), ElementsAre(need::value));
  EXPECT_THAT(needs(op_named(g, "aten::convolution_backward")), ElementsAre(need::value));
  // The loss's own gradient and the labels; of the log-probabilities only the shape.
  EXPECT_THAT(needs(op_named(g, "aten::nll_loss_backward")),
              ElementsAre(need::exact_value, need::exact_value));
}

TEST(trace, small_maps_are_read_as_they_are) {
  trace_options options;
  options.least_feature_map = 8 * 8192 * 4 + 1;
  EXPECT_THAT(needs(op_named(graph_of_text(small_trace(), options), "aten::mm", 1)),
              ElementsAre(need::exact_value));
  --options.least_feature_map;
  EXPECT_THAT(needs(op_named(graph_of_text(small_trace(), options), "aten::mm", 1)),
              ElementsAre(need::value));
}

TEST(trace, an_address_that_is_used_again_is_another_storage) {
  const graph g = graph_of_text(small_trace());
  const storage_id dropped = op_named(g, "aten::native_dropout").outputs.at(0).storage;
  const storage_id through = op_named(g, "aten::threshold_backward").outputs.at(0).storage;
  EXPECT_NE(dropped, through);
  EXPECT_EQ(g.at(through).role, storage_role::gradient);
}

TEST(trace, in_the_same_stage_too) {
  tiny_step s;
  s.text.call("aten::tanh", "Tensor self", {tensor_text{1}}, {tensor_text{2}}, s.top);
  s.text.call("aten::neg", "Tensor self", {tensor_text{2}}, {tensor_text{3}}, s.top);
  const tensor_text smaller{2, {64, 512}};
  const auto second = s.text.call("aten::sum", "Tensor self", {tensor_text{3}}, {smaller}, s.top);
  s.text.call("aten::empty", "int[] size", {"[64, 512]"}, {smaller}, second);
  s.text.call("aten::mul", "Tensor self, Tensor other", {smaller, smaller}, {tensor_text{4}},
              s.backward_node("SumBackward0"));
  const graph g = s.make();
  EXPECT_EQ(output(g, "aten::tanh").bytes(1), 64 * 1024 * 4);
  EXPECT_EQ(output(g, "aten::sum").bytes(1), 64 * 512 * 4);
  EXPECT_NE(op_named(g, "aten::tanh").outputs.at(0).storage, op_named(g, "aten::sum").outputs.at(0).storage);
}

TEST(trace, backward_names_the_forward_operator) {
  const graph g = graph_of_text(small_trace());
  const op& o = op_named(g, "aten::convolution_backward");
  ASSERT_TRUE(o.forward_op.valid());
  EXPECT_EQ(g.op_at(o.forward_op).label, "aten::cudnn_convolution");
  EXPECT_EQ(g.op_at(op_named(g, "aten::threshold_backward").forward_op).label, "aten::clamp_min_");
}

TEST(trace, operations_from_shapes) {
  const graph g = graph_of_text(small_trace());
  const double convolution = 2.0 * 8 * 8 * 32 * 32 * (4 * 3 * 3);
  EXPECT_EQ(op_named(g, "aten::cudnn_convolution").flops, convolution);
  EXPECT_EQ(op_named(g, "aten::convolution_backward").flops,
            convolution);  // nobody wants the image's gradient
  EXPECT_EQ(op_named(g, "aten::addmm").flops, 2.0 * 8 * 8192 * 10);
  EXPECT_EQ(op_named(g, "aten::clamp_min_").flops, 0.0);
}

TEST(trace, every_schema_gives_the_same_graph) {
  const std::string expected = to_json(graph_of_text(small_trace()));
  EXPECT_EQ(to_json(graph_of_text(small_trace(trace_style::flat, "1.0.1"))), expected);
  EXPECT_EQ(to_json(graph_of_text(small_trace(trace_style::nested, "1.0.2-chakra.0.0.4"))), expected);
  EXPECT_EQ(to_json(graph_of_text(small_trace(trace_style::nested, "1.0.3-chakra.0.0.4"))), expected);
  EXPECT_EQ(to_json(graph_of_text(small_trace(trace_style::strides, "1.1.1-chakra.0.0.4"))), expected);
}

TEST(trace, damage_that_pytorch_is_known_for_is_let_pass) {
  const std::string text = small_trace();
  const std::string expected = to_json(graph_of_text(text));
  std::string damaged = std::regex_replace(text, std::regex("\\},\n"), "}\n");  // no commas between nodes
  EXPECT_NE(damaged, text);
  EXPECT_EQ(to_json(graph_of_text(damaged)), expected);
  damaged = std::regex_replace(text, std::regex(R"(\}\n\],)"), "},\n],");  // one past the last
  EXPECT_NE(damaged, text);
  EXPECT_EQ(to_json(graph_of_text(damaged)), expected);
  damaged = std::regex_replace(text, std::regex(R"("1\.0")"), "NaN");
  damaged = std::regex_replace(damaged, std::regex(R"(1\.3333)"), "-Infinity");
  damaged =
      std::regex_replace(damaged, std::regex(R"("pid": 7)"), R"("new": {"a": [null, {}]}, "pid": null)");
  EXPECT_EQ(to_json(graph_of_text(damaged)), expected);
}

TEST(trace, other_damage_is_refused_with_its_position) {
  const std::string text = small_trace();
  const auto refused = [](const std::string& damaged, const std::string& says) {
    expect_error(errc::bad_format, says, [&] { read_trace(damaged); });
  };
  refused("", "read_trace: byte 0: expected an object, got the end");
  refused("[]", "byte 0: expected an object");
  refused("{\"schema\": \"1.1.0\"}", "expected a list 'nodes'");
  refused("{\"schema\": \"2.0\", \"nodes\": []}", "schema of version 1");
  refused(text.substr(0, text.size() / 2), fmt::format("byte {}", text.size() / 2));
  refused(text + "x", fmt::format("byte {}: expected the end", text.size()));
  refused("{\"nodes\": [{\"name\": \"x\"}]}", "a node with an id and a name");
  refused("{\"nodes\": [{\"id\": \"x\", \"name\": \"x\"}]}", "expected an id");
  refused("{\"nodes\": [{\"id\": 1, \"name\": \"x\"}, {\"id\": 1, \"name\": \"y\"}]}", "got 1 twice");
  refused("{\"nodes\": [{\"id\": 9223372036854775807, \"name\": \"x\"}]}", "expected ids below 2^63 - 1");
  refused("{\"other\": " + std::string(70, '['), "nesting of at most 64");
  refused(R"({"nodes": [{"id": 3, "name": "x", "inputs": [[1, 2, 0, 9007199254740993, 4, "cpu"]]}]})",
          "node 3");
  refused(R"({"nodes": [{"id": 3, "name": "x", "inputs": [[1, 2, -1, 4, 4, "cpu"]]}]})", "node 3");
}

TEST(trace, every_cut_is_refused_or_read) {
  const std::string text = small_trace(trace_style::flat, "1.0.1");
  for (std::size_t n = 0; n < text.size(); n += 61) {
    expect_error(errc::bad_format, "read_trace", [&] { read_trace(text.substr(0, n)); });
  }
}

TEST(trace, the_middle_complete_iteration_unless_told) {
  trace_text t;
  for (const char* const step : {"ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7"})
    add_small_step(t, step);
  t.label("ProfilerStep#8", t.main_thread());
  const trace read = read_trace(t.text());
  ASSERT_EQ(read.iterations.size(), 4U);
  EXPECT_TRUE(read.iterations[2].complete);
  EXPECT_FALSE(read.iterations[3].complete);
  EXPECT_EQ(graph_of(read).name, "iteration 6");
  trace_options options;
  options.iteration = 7;
  const graph g = graph_of(read, options);
  EXPECT_EQ(g.name, "iteration 7");
  EXPECT_EQ(g.ops.size(), graph_of(read).ops.size());
  options.iteration = 9;
  expect_error(errc::invalid_argument, "got 9", [&] { graph_of(read, options); });
  options.iteration = 8;
  expect_error(errc::bad_format, "backward stage", [&] { graph_of(read, options); });
}

TEST(trace, without_markers_the_whole_trace_is_the_iteration) {
  trace_text t;
  add_small_step(t, "");
  const trace read = read_trace(t.text());
  ASSERT_EQ(read.iterations.size(), 1U);
  EXPECT_EQ(graph_of(read).ops.size(), graph_of_text(small_trace()).ops.size());
}

TEST(trace, a_trace_without_a_backward_stage_is_refused) {
  trace_text t;
  t.call("aten::neg", "Tensor self", {tensor_text{1}}, {tensor_text{2}}, t.main_thread());
  expect_error(errc::bad_format, "backward stage", [&] { graph_of_text(t.text()); });
  expect_error(errc::bad_format, "backward stage", [&] { graph_of_text("{\"nodes\": []}"); });
}

TEST(trace, devices) {
  const trace read = read_trace(small_trace());
  trace_options options;
  options.device = "cuda:0";
  EXPECT_EQ(to_json(graph_of(read, options)), to_json(graph_of(read)));
  options.device = "cuda:1";
  expect_error(errc::invalid_argument, "'cuda:1'", [&] { graph_of(read, options); });
}

TEST(trace, a_circle_of_parents_is_not_followed) {
  std::string text = small_trace();
  const std::string nodes = "\"nodes\": [";
  text.insert(
      text.find(nodes) + nodes.size(),
      R"({"id": 900, "name": "aten::a", "ctrl_deps": 901}, {"id": 901, "name": "aten::b", "ctrl_deps": 900},)");
  EXPECT_EQ(to_json(graph_of_text(text)), to_json(graph_of_text(small_trace())));
}

TEST(trace, a_forward_map_that_backward_overwrites_becomes_two) {
  tiny_step s;
  s.text.call("aten::tanh", "Tensor self", {tensor_text{1}}, {tensor_text{2}}, s.top);
  const auto node = s.backward_node("TanhBackward0");
  s.text.call("aten::mul_", "Tensor(a!) self, Tensor other", {tensor_text{2}, tensor_text{1}},
              {tensor_text{2}}, node);
  s.text.call("aten::neg", "Tensor self", {tensor_text{2}}, {tensor_text{3}}, node);
  const graph g = s.make();
  const op& mul = op_named(g, "aten::mul_");
  const storage_id kept = op_named(g, "aten::tanh").outputs.at(0).storage;
  ASSERT_EQ(mul.alternatives.size(), 1U);
  EXPECT_EQ(mul.alternatives[0].reads.at(0).storage, kept);
  EXPECT_NE(mul.outputs.at(0).storage, kept);
  EXPECT_EQ(g.at(mul.outputs.at(0).storage).role, storage_role::gradient);
  EXPECT_THAT(ids(op_named(g, "aten::neg").inputs), ElementsAre(mul.outputs.at(0).storage));
}

TEST(trace, a_view_that_repeats_elements_does_not_enlarge_its_storage) {
  tiny_step s;
  const tensor_text small{1, {1, 1024}}, wide{1, {64, 1024}, "float", 4, 0, "cuda:0", 77};
  s.text.call("aten::expand", "Tensor(a) self, int[] size", {small, "[64, -1]"}, {wide}, s.top);
  s.text.call("aten::view", "Tensor(a) self, int[] size", {wide, "[64, 1024]"},
              {tensor_text{1, {65536}, "float", 4, 0, "cuda:0", 78}}, s.top);
  s.text.call("aten::neg", "Tensor self", {tensor_text{1, {65536}, "float", 4, 0, "cuda:0", 78}},
              {tensor_text{2}}, s.top);
  s.text.call("aten::mul", "Tensor self, Tensor other", {tensor_text{2}, tensor_text{2}}, {tensor_text{3}},
              s.backward_node("NegBackward0"));
  const graph g = s.make();
  EXPECT_EQ(g.at(op_named(g, "aten::neg").inputs.at(0).storage).bytes(1), 4096);
}

TEST(trace, slices_count_from_their_offset) {
  tiny_step s;
  s.text.call("aten::neg", "Tensor self", {tensor_text{1, {10}, "float", 4, 90}}, {tensor_text{2}}, s.top);
  s.text.call("aten::neg", "Tensor self", {tensor_text{2}}, {tensor_text{3}},
              s.backward_node("NegBackward0"));
  EXPECT_EQ(s.make().storages.front().bytes(1), 400);
}

TEST(trace, what_only_fills_makes_its_caller_primitive) {
  tiny_step s;
  s.text.call("aten::max_pool2d_with_indices",
              "Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool "
              "ceil_mode=False",
              {tensor_text{1, {64, 4096}}, "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "false"},
              {tensor_text{2}, tensor_text{3, {64, 1024}, "long", 8}}, s.top);
  const tensor_text dx{5, {64, 4096}};
  const auto pool =
      s.text.call("aten::max_pool2d_with_indices_backward",
                  "Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, "
                  "int[2] dilation, bool ceil_mode, Tensor indices",
                  {tensor_text{2}, tensor_text{1, {64, 4096}}, "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]",
                   "false", tensor_text{3, {64, 1024}, "long", 8}},
                  {dx}, s.backward_node("MaxPool2DWithIndicesBackward0"));
  s.text.call("aten::empty_like", "Tensor self", {tensor_text{1, {64, 4096}}}, {dx}, pool);
  s.text.call("aten::zero_", "Tensor(a!) self", {dx}, {dx}, pool);
  const graph g = s.make();
  EXPECT_THAT(labels(g, op_stage::backward), ElementsAre("aten::max_pool2d_with_indices_backward"));
  // The index as it is, or a code of the tap; the pooled map for its shape only.
  const op& o = op_named(g, "aten::max_pool2d_with_indices_backward");
  ASSERT_EQ(o.alternatives.size(), 2U);
  const storage& index = g.at(o.alternatives[0].reads.back().storage);
  EXPECT_EQ(index.bytes(1), 64 * 1024 * 8);
  EXPECT_EQ(o.alternatives[0].reads.back().what, need::exact_value);
  const storage& code = g.at(o.alternatives[1].reads.back().storage);
  EXPECT_EQ(code.role, storage_role::auxiliary);
  EXPECT_EQ(code.bytes(1), 64 * 1024);
  EXPECT_EQ(code.window_taps, 4);
  EXPECT_EQ(o.alternatives[1].reads.back().what, need::window);
}

TEST(trace, copies_inside_a_kernel_are_not_all_of_it) {
  tiny_step s;
  const auto product = s.text.call(
      "aten::addmm", "Tensor self, Tensor mat1, Tensor mat2",
      {tensor_text{1, {1024}}, tensor_text{2, {64, 8}}, tensor_text{3, {8, 1024}}}, {tensor_text{4}}, s.top);
  s.text.call("aten::copy_", "Tensor(a!) self, Tensor src", {tensor_text{4}, tensor_text{1, {1024}}},
              {tensor_text{4}}, product);
  s.text.call("aten::mul", "Tensor self, Tensor other", {tensor_text{4}, tensor_text{4}}, {tensor_text{5}},
              s.backward_node("AddmmBackward0"));
  EXPECT_THAT(labels(s.make(), op_stage::forward), ElementsAre("aten::addmm"));
}

TEST(trace, a_threshold_other_than_zero_needs_exact_values) {
  for (const auto& [threshold, expected] :
       {std::pair("0.0", need::sign), std::pair("0.5", need::exact_value)}) {
    tiny_step s;
    s.text.call("aten::threshold", "Tensor self, Scalar threshold, Scalar value",
                {tensor_text{1}, threshold, "0"}, {tensor_text{2}}, s.top);
    s.text.call("aten::threshold_backward", "Tensor grad_output, Tensor self, Scalar threshold",
                {tensor_text{9}, tensor_text{2}, threshold}, {tensor_text{3}},
                s.backward_node("ThresholdBackward0"));
    EXPECT_THAT(needs(op_named(s.make(), "aten::threshold_backward")), ElementsAre(expected));
  }
}

TEST(trace, derivatives_that_vanish_and_shares_need_fine_values) {
  for (const auto& [name, schema] :
       {std::pair("aten::sigmoid_backward", "Tensor grad_output, Tensor output"),
        std::pair("aten::tanh_backward", "Tensor grad_output, Tensor output"),
        std::pair("aten::_softmax_backward_data", "Tensor grad_output, Tensor output, int dim")}) {
    tiny_step s;
    s.text.call("aten::relu", "Tensor self", {tensor_text{1}}, {tensor_text{2}}, s.top);
    s.text.call(name, schema, {tensor_text{9}, tensor_text{2}}, {tensor_text{3}},
                s.backward_node("SlopeBackward0"));
    EXPECT_THAT(needs(op_named(s.make(), name)), ElementsAre(need::fine_value));
  }
}

TEST(trace, a_relu6_needs_the_range_and_other_bounds_exact_values) {
  for (const auto& [upper, expected] : {std::pair("6.0", need::range), std::pair("20", need::exact_value)}) {
    tiny_step s;
    s.text.call("aten::hardtanh", "Tensor self, Scalar min_val, Scalar max_val", {tensor_text{1}, "0", upper},
                {tensor_text{2}}, s.top);
    s.text.call("aten::hardtanh_backward", "Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val",
                {tensor_text{9}, tensor_text{2}, "0", upper}, {tensor_text{3}},
                s.backward_node("HardtanhBackward0"));
    EXPECT_THAT(needs(op_named(s.make(), "aten::hardtanh_backward")), ElementsAre(expected));
  }
}

TEST(trace, cheap_operators_become_recipes) {
  tiny_step s;
  const auto one = [&](const char* name, std::vector<argument_text> inputs, std::int64_t made,
                       std::int64_t where) {
    s.text.call(name, inputs.size() > 1 ? "Tensor self, Tensor other" : "Tensor self", inputs,
                {tensor_text{made}}, where);
  };
  one("aten::bmm", {tensor_text{1}}, 2, s.top);
  s.text.call("aten::native_layer_norm", "Tensor input", {tensor_text{2}},
              {tensor_text{3}, tensor_text{4, {64}}, tensor_text{5, {64}}}, s.top);
  one("aten::gelu", {tensor_text{3}}, 6, s.top);
  one("aten::bmm", {tensor_text{6}}, 7, s.top);
  one("aten::add", {tensor_text{6}, tensor_text{7}}, 8, s.top);
  one("aten::add", {tensor_text{6}, "1.0"}, 9, s.top);
  for (const std::int64_t read : {2, 3, 6, 7, 8, 9}) {
    s.text.call("aten::bmm", "Tensor self, Tensor other", {tensor_text{20}, tensor_text{read}},
                {tensor_text{30 + read}}, s.backward_node("BmmBackward0"));
  }
  const graph g = s.make();
  std::vector<std::string> recipes;
  for (const recipe& r : g.recipes) {
    std::string text;
    for (const op_id o : r.ops)
      text += g.op_at(o).label.substr(6) + " ";
    recipes.push_back(text + "of " + g.at(r.sources.at(0)).name.substr(0, 4));
    EXPECT_EQ(r.sources.size(), 1U) << "a residual connection is no recipe";
  }
  EXPECT_THAT(recipes, UnorderedElementsAre("native_layer_norm of bmm.", "gelu of nati",
                                            "native_layer_norm gelu of bmm.", "add of gelu",
                                            "gelu add of nati", "native_layer_norm gelu add of bmm."));
  const plan p = make_plan(g, {});
  EXPECT_THAT(validate(p), IsEmpty());
  EXPECT_EQ(std::count_if(p.choices.begin(), p.choices.end(),
                          [](const stash_choice& c) { return c.kind == stash_kind::recompute; }),
            3);
}

TEST(trace, what_it_gives_can_be_planned) {
  const graph g = graph_of_text(small_trace());
  plan_options options;
  options.chosen_policy = policy::none;
  const plan none = make_plan(g, options);
  options.chosen_policy = policy::lossless;
  const plan lossless = make_plan(g, options);
  EXPECT_THAT(validate(none), IsEmpty());
  EXPECT_THAT(validate(lossless), IsEmpty());
  EXPECT_LT(lossless.sizes.planned_peak, none.sizes.planned_peak);
}

}  // namespace
}  // namespace stash::planner
