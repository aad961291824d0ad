// SPDX-License-Identifier: Apache-2.0
// What language models of today are made of: rotary positions, groups of queries, root-mean-square norms,
// gated perceptrons.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

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
using testing::op_named;
using testing::recomputed;
using testing::refusal;
using dims = tape::dims;

TEST(tape_attention, heads_of_keys_are_shared) {
  tape t("t");
  const value x = t.image("input", {3, 4});
  const value q = dense(t, "q", x, 12), k = dense(t, "k", x, 4), v = dense(t, "v", x, 4);
  const value p = t.softmax("softmax", t.attention_scores("scores", q, k, 6, 2));
  EXPECT_EQ(t.shape(p), (dims{6, 3, 3}));
  const value y = t.attention_context("context", p, v, 2);
  EXPECT_EQ(t.shape(y), (dims{3, 12}));
  t.softmax_cross_entropy("loss", y, t.ids("labels", 3), 0);
  const graph g = t.finish(2);
  planner::check_graph(g);
  label_rules(g, 3).run();
  expect_reads_are_what_forward_saw(g);
  // As many operations as if each head had keys of its own, but the keys are there once.
  for (const char* const name : {"scores", "context"})
    EXPECT_DOUBLE_EQ(op_named(g, name).flops, 2.0 * 6 * 3 * 3 * 2 * 2) << name;
  EXPECT_THAT(alternatives(g, "scores/backward_right"), ElementsAre("from_left: q/value"));
  EXPECT_THAT(alternatives(g, "scores/backward_left"), ElementsAre("from_right: k/value"));
  EXPECT_THAT(alternatives(g, "context/backward_right"), ElementsAre("from_left: softmax/value"));
  EXPECT_THAT(alternatives(g, "context/backward_left"), ElementsAre("from_right: v/value"));
  EXPECT_EQ(g.at(op_named(g, "context/backward_right").outputs[0].storage).shape, (dims{3, 4}));
}

TEST(tape_attention, rotary_reads_nothing_and_works_in_place) {
  tape t("t");
  const value x = t.image("input", {3, 4});
  const value q = t.rotary("rotary", dense(t, "q", x, 12), 3);
  end_in_loss(t, t.first_row("row", q));
  const graph g = t.finish(2);
  planner::check_graph(g);
  EXPECT_THAT(alternatives(g, "rotary/backward"), IsEmpty());
  for (const char* const name : {"rotary", "rotary/backward"})
    EXPECT_EQ(op_named(g, name).inputs[0], op_named(g, name).outputs[0]) << name;
}

TEST(tape_attention, rotary_of_a_value_that_others_read_can_be_computed_again) {
  tape t("t");
  const value x = dense(t, "x", t.image("input", {3, 4}), 12);
  const value y = t.multiply("product", x, dense(t, "y", t.rotary("rotary", x, 3), 12));
  end_in_loss(t, t.first_row("row", y));
  EXPECT_TRUE(recomputed(t.finish(2)).contains("rotary"));
}

TEST(tape_attention, a_norm_by_the_root_mean_square_has_a_scale_only) {
  tape t("t");
  value x = dense(t, "a", t.image("input", {3, 4}), 6);
  x = t.norm("norm", x, norm_kind::rms);
  end_in_loss(t, t.first_row("row", dense(t, "b", x, 6)));
  const graph g = t.finish(2);
  planner::check_graph(g);
  label_rules(g).run();
  EXPECT_EQ(t.parameter_count(), 6 * 4 + 6 + 6 * 6 + 5 * 6);
  EXPECT_THAT(alternatives(g, "norm/backward"), ElementsAre("from_x: a/value norm.statistics/value"));
  EXPECT_EQ(g.at(op_named(g, "norm").optional_outputs.at(0)).shape, (dims{3, 1}));
  EXPECT_EQ(op_named(g, "norm/backward").parameters_written.size(), 1U);
  EXPECT_EQ(recomputed(g), std::set<std::string>{"norm"});
}

TEST(tape_attention, a_gated_perceptron_reads_gate_and_factors) {
  tape t("t");
  const value x = dense(t, "x", t.image("input", {3, 4}), 6);
  const value gate = t.silu("silu", dense(t, "gate", x, 8));
  const value product = t.multiply("product", gate, dense(t, "up", x, 8));
  end_in_loss(t, t.first_row("row", dense(t, "down", product, 6)));
  const graph g = t.finish(2);
  planner::check_graph(g);
  label_rules(g).run();
  EXPECT_THAT(alternatives(g, "silu/backward"), ElementsAre("from_x: gate/value"));
  EXPECT_THAT(alternatives(g, "product/backward"), ElementsAre("from_a_and_b: silu/value up/value"));
  EXPECT_THAT(alternatives(g, "down/backward_weights"), ElementsAre("from_x: product/value"));
  EXPECT_TRUE(recomputed(g).contains("silu"));
}

TEST(tape_attention, what_does_not_fit_is_refused) {
  tape t("t");
  const value q = t.image("q", {3, 12}), k = t.image("k", {5, 4}), p = t.image("p", {6, 3, 5});
  EXPECT_THAT(refusal([&] { t.attention_scores("a", q, k, 6); }), HasSubstr("heads that divide those"));
  EXPECT_THAT(refusal([&] { t.attention_scores("a", q, k, 6, 4); }), HasSubstr("heads that divide those"));
  EXPECT_THAT(refusal([&] { t.attention_scores("a", q, k, 6, -2); }), HasSubstr("heads that divide those"));
  EXPECT_THAT(refusal([&] { t.attention_scores("a", q, k, 5, 1); }),
              HasSubstr("heads that divide the width"));
  EXPECT_THAT(refusal([&] { t.attention_context("a", p, k); }), HasSubstr("heads that divide those"));
  EXPECT_THAT(refusal([&] { t.attention_context("a", p, k, 4); }), HasSubstr("heads that divide those"));
  EXPECT_THAT(refusal([&] { t.attention_context("a", q, k, 2); }), HasSubstr("{heads, rows, keys}"));
  EXPECT_THAT(refusal([&] { t.rotary("a", q, 4); }), HasSubstr("an even width"));
  EXPECT_THAT(refusal([&] { t.rotary("a", p, 1); }), HasSubstr("{rows, width}"));
}

}  // namespace
}  // namespace stash::models
