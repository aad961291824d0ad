// SPDX-License-Identifier: Apache-2.0
// Operations on two-dimensional maps: shapes, costs, and what their gradients read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/tape.hpp"
#include "planned_graph.hpp"
#include "tape_support.hpp"

namespace stash::models {
namespace {

using testing::alternatives;
using testing::dense;
using ::testing::ElementsAre;
using testing::end_in_loss;
using testing::expect_reads_are_what_forward_saw;
using testing::graph;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::label_rules;
using testing::op;
using testing::op_named;
using testing::recomputed;
using testing::refusal;
using dims = tape::dims;

value conv(tape& t, const std::string& name, value x, const dims& w, const conv2d_window& window = {}) {
  return t.conv2d(name, {{x, t.parameter(name + "/weight", w)}}, {}, window);
}

graph checked(const tape& t) {
  graph g = t.finish(2);
  planner::check_graph(g);
  label_rules(g).run();
  expect_reads_are_what_forward_saw(g);
  return g;
}

graph ended(tape& t, value x) {
  end_in_loss(t, t.mean("mean", x));
  return checked(t);
}

// ---- convolutions ----------------------------------------------------------------------------------------

TEST(tape_maps, sides_of_convolutions) {
  struct sides {
    std::int64_t height, width, kernel, stride, padding, out_height, out_width;
  };
  const std::vector<sides> known = {{8, 6, 3, 1, 1, 8, 6}, {8, 6, 3, 2, 1, 4, 3},     {7, 9, 3, 2, 1, 4, 5},
                                    {8, 8, 1, 1, 0, 8, 8}, {8, 8, 4, 4, 0, 2, 2},     {9, 11, 4, 4, 0, 2, 2},
                                    {5, 5, 5, 1, 0, 1, 1}, {16, 16, 16, 16, 0, 1, 1}, {6, 6, 2, 2, 0, 3, 3}};
  for (const sides& s : known) {
    tape t("t");
    const value x = t.image("input", {s.height, s.width, 3});
    const value y = conv(t, "conv", x, {4, 3, s.kernel, s.kernel}, {s.stride, s.padding});
    EXPECT_EQ(t.shape(y), (dims{s.out_height, s.out_width, 4}));
    const graph g = ended(t, y);
    EXPECT_DOUBLE_EQ(op_named(g, "conv").flops, 2.0 * static_cast<double>(s.out_height * s.out_width * 4 * 3 *
                                                                          s.kernel * s.kernel * g.batch));
  }
}

TEST(tape_maps, a_gradient_of_weights_reads_x_and_one_of_data_reads_nothing) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {8, 8, 3}), {6, 3, 3, 3}, {2, 1});
  const value y = t.conv2d("conv", {{x, t.parameter("w", {4, 6, 3, 3})}}, t.parameter("b", {4}), {1, 1});
  const graph g = ended(t, y);
  EXPECT_THAT(alternatives(g, "stem/backward_weights"), ElementsAre("from_x: input/value"));
  EXPECT_THAT(alternatives(g, "conv/backward_weights"), ElementsAre("from_x: stem/value"));
  EXPECT_THAT(alternatives(g, "conv/backward_data"), IsEmpty());
  EXPECT_EQ(op_named(g, "conv/backward_weights").parameters_written.size(), 2U);
  for (const op& o : g.ops)
    EXPECT_NE(o.name, "stem/backward_data") << "the image has no gradient";
}

// A depthwise convolution has a channel's worth of the weights, and of the operations.
TEST(tape_maps, groups_divide_weights_and_operations) {
  const auto flops = [](std::int64_t groups) {
    tape t("t");
    value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
    x = conv(t, "conv", x, {6, 6 / groups, 3, 3}, {1, 1, groups});
    const graph g = ended(t, x);
    EXPECT_THAT(alternatives(g, "conv/backward_weights"), ElementsAre("from_x: stem/value"));
    return op_named(g, "conv").flops;
  };
  EXPECT_DOUBLE_EQ(flops(1), 2.0 * 4 * 4 * 6 * 6 * 9 * 2);
  EXPECT_DOUBLE_EQ(flops(2), flops(1) / 2);
  EXPECT_DOUBLE_EQ(flops(6), flops(1) / 6);
}

TEST(tape_maps, up_and_down_through_a_pool) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {8, 12, 3}), {6, 3, 3, 3}, {1, 1});
  value y = t.max_pool2d("pool", x, 2);
  EXPECT_EQ(t.shape(y), (dims{4, 6, 6}));
  EXPECT_EQ(t.shape(t.max_pool2d("odd", y, 4)), (dims{1, 1, 6}));
  y = t.conv_transpose2d("up", y, t.parameter("u", {6, 5, 2, 2}), t.parameter("ub", {5}));
  EXPECT_EQ(t.shape(y), (dims{8, 12, 5}));
  y = t.conv2d("joined", {{x, t.parameter("w0", {4, 6, 3, 3})}, {y, t.parameter("w1", {4, 5, 3, 3})}}, {},
               {.padding = 1});
  EXPECT_EQ(t.shape(y), (dims{8, 12, 4}));
  const graph g = ended(t, y);
  EXPECT_THAT(alternatives(g, "pool/backward"),
              ElementsAre("from_x: stem/exact_value", "from_index: pool.index/window"));
  EXPECT_THAT(alternatives(g, "up/backward_weights"), ElementsAre("from_x: pool/value"));
  EXPECT_THAT(alternatives(g, "up/backward_data"), IsEmpty());
  EXPECT_THAT(alternatives(g, "joined/backward_weights0"), ElementsAre("from_x: stem/value"));
  EXPECT_THAT(alternatives(g, "joined/backward_weights1"), ElementsAre("from_x: up/value"));
  EXPECT_EQ(g.at(op_named(g, "pool").optional_outputs[0]).window_taps, 4);
}

// ---- between convolutions --------------------------------------------------------------------------------

TEST(tape_maps, silu_reads_what_it_was_given) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
  value y = t.silu("silu", t.norm("norm", x, norm_kind::batch));
  y = conv(t, "conv", y, {4, 6, 1, 1});
  const graph g = ended(t, y);
  EXPECT_THAT(alternatives(g, "silu/backward"), ElementsAre("from_x: norm/value"));
  EXPECT_THAT(alternatives(g, "norm/backward"), ElementsAre("from_x: stem/value"));
  EXPECT_THAT(alternatives(g, "conv/backward_weights"), ElementsAre("from_x: silu/value"));
  EXPECT_EQ(recomputed(g), (std::set<std::string>{"norm", "silu"}));
  EXPECT_EQ(op_named(g, "silu/backward").inputs[0], op_named(g, "silu/backward").outputs[0]);
  EXPECT_EQ(g.at(op_named(g, "silu").outputs[0].storage).density, 1.0);
}

// A channel's range says where the gradient goes through, and half of the map is zero.
TEST(tape_maps, relu6_reads_the_range_of_its_output) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
  value y = t.norm("norm", x, norm_kind::batch, activation::relu6);
  y = t.relu6("relu6", conv(t, "conv", y, {4, 6, 1, 1}));
  const graph g = ended(t, y);
  EXPECT_THAT(alternatives(g, "norm/backward"),
              ElementsAre("from_x_and_y: stem/value norm/range", "from_x: stem/exact_value"));
  EXPECT_EQ(op_named(g, "norm").label, "batch_norm_relu6");
  EXPECT_THAT(alternatives(g, "relu6/backward"), ElementsAre("from_y: relu6/range"));
  EXPECT_EQ(op_named(g, "relu6/backward").label, "relu6_backward");
  EXPECT_EQ(op_named(g, "relu6").inputs[0], op_named(g, "relu6").outputs[0]);
  EXPECT_EQ(op_named(g, "relu6/backward").inputs[0], op_named(g, "relu6/backward").outputs[0]);
  for (const char* const name : {"norm", "relu6"})
    EXPECT_EQ(g.at(op_named(g, name).outputs[0].storage).density, 0.5) << name;
  EXPECT_EQ(recomputed(g), std::set<std::string>{"norm"}) << "the other one is written over its input";
}

TEST(tape_maps, relu6_of_a_value_that_others_read_can_be_computed_again) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
  const graph g = ended(t, t.multiply("product", x, t.relu6("relu6", x)));
  EXPECT_TRUE(recomputed(g).contains("relu6"));
}

TEST(tape_maps, squeeze_and_excitation_reads_map_and_factors) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
  const value s = t.sigmoid("sigmoid", dense(t, "expand", t.mean("squeeze", x), 6));
  EXPECT_EQ(t.shape(s), dims{6});
  const graph g = ended(t, conv(t, "conv", t.scale("scale", x, s), {4, 6, 1, 1}));
  EXPECT_THAT(alternatives(g, "scale/backward"), ElementsAre("from_x_and_s: stem/value sigmoid/value"));
  EXPECT_THAT(alternatives(g, "squeeze/backward"), IsEmpty());
  EXPECT_THAT(alternatives(g, "sigmoid/backward"), ElementsAre("from_y: sigmoid/fine_value"));
  // x gets a gradient from both.
  EXPECT_EQ(op_named(g, "stem/accumulate").kind, planner::op_kind::accumulate);
}

TEST(tape_maps, layer_scale_reads_x_for_its_factors) {
  tape t("t");
  const value x = conv(t, "stem", t.image("input", {4, 4, 3}), {6, 3, 1, 1});
  const value y = t.layer_scale("layer_scale", x, t.parameter("factors", {6}));
  const graph g = ended(t, conv(t, "conv", y, {4, 6, 1, 1}));
  const op& backward = op_named(g, "layer_scale/backward");
  EXPECT_THAT(alternatives(g, "layer_scale/backward"), ElementsAre("from_x: stem/value"));
  EXPECT_EQ(g.at(backward.parameters.at(0)).name, "factors");
  EXPECT_EQ(g.at(backward.parameters_written.at(0)).name, "factors.gradient");
  EXPECT_EQ(backward.inputs[0], backward.outputs[0]);
  EXPECT_EQ(recomputed(g), std::set<std::string>{"layer_scale"});
}

TEST(tape_maps, patches_become_rows_after_a_token) {
  tape t("t");
  value x = conv(t, "patches", t.image("input", {8, 8, 3}), {6, 3, 4, 4}, {.stride = 4});
  x = t.class_token("token", t.reshape(x, {4, 6}), t.parameter("t", {6}));
  EXPECT_EQ(t.shape(x), (dims{5, 6}));
  end_in_loss(t, t.first_row("row", t.add_positions("positions", x, t.parameter("p", {5, 6}))));
  const graph g = checked(t);
  EXPECT_THAT(alternatives(g, "token/backward"), IsEmpty());
  EXPECT_EQ(g.at(op_named(g, "token/backward").parameters_written.at(0)).name, "t.gradient");
  EXPECT_EQ(op_named(g, "patches/backward_weights").inputs[0], op_named(g, "token/backward").outputs[0]);
}

// ---- refusals --------------------------------------------------------------------------------------------

TEST(tape_maps, what_does_not_fit_is_refused) {
  tape t("t");
  const value x = t.image("input", {4, 4, 6}), row = t.image("row", {4, 6});
  const weight w = t.parameter("w", {6, 6, 3, 3}), five = t.parameter("five", {5});
  const weight wide = t.parameter("wide", {6, 6, 5, 5}), oblong = t.parameter("oblong", {6, 6, 3, 1});
  const auto conv_refused = [&](value of, weight by, const conv2d_window& window = {}) {
    return refusal([&] { t.conv2d("a", {{of, by}}, {}, window); });
  };
  EXPECT_THAT(refusal([&] { t.conv2d("a", {}); }), HasSubstr("at least one term"));
  EXPECT_THAT(conv_refused(row, w), HasSubstr("{H, W, C}"));
  EXPECT_THAT(conv_refused(x, five), HasSubstr("{out, C, k, k}"));
  EXPECT_THAT(conv_refused(x, oblong), HasSubstr("{out, C / groups, k, k}"));
  EXPECT_THAT(conv_refused(x, w, {1, 1, 2}), HasSubstr("C / groups"));
  EXPECT_THAT(conv_refused(x, w, {1, 1, 4}), HasSubstr("groups that divide"));
  EXPECT_THAT(conv_refused(x, w, {0, 1, 1}), HasSubstr("stride"));
  EXPECT_THAT(conv_refused(x, w, {1, -1, 1}), HasSubstr("padding"));
  EXPECT_THAT(conv_refused(x, wide), HasSubstr("a side of 5 or more"));
  EXPECT_THAT(refusal([&] { t.conv2d("a", {{x, w}}, five); }), HasSubstr("a bias of 6"));
  EXPECT_THAT(refusal([&] { t.conv2d("a", {{x, w}, {x, w}}, {}, {1, 1, 2}); }), HasSubstr("one term"));
  EXPECT_THAT(refusal([&] { t.conv_transpose2d("a", row, w); }), HasSubstr("{C, out, k, k}"));
  EXPECT_THAT(refusal([&] { t.conv_transpose2d("a", x, oblong); }), HasSubstr("{C, out, k, k}"));
  EXPECT_THAT(refusal([&] { t.max_pool2d("a", x, 16); }), HasSubstr("a window of 1 to 15"));
  EXPECT_THAT(refusal([&] { t.max_pool2d("a", x, 5); }), HasSubstr("positive dimensions"));
  EXPECT_THAT(refusal([&] { t.scale("a", x, row); }), HasSubstr("factors {6}"));
  EXPECT_THAT(refusal([&] { t.layer_scale("a", x, five); }), HasSubstr("factors {6}"));
  EXPECT_THAT(refusal([&] { t.class_token("a", row, five); }), HasSubstr("a token {width}"));
  EXPECT_THAT(refusal([&] { t.class_token("a", x, five); }), HasSubstr("{rows, width}"));
}

}  // namespace
}  // namespace stash::models
