// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "planner/graph/graph.hpp"
#include "planner/graph/random_network.hpp"
#include "planner/graph/symbolic_step.hpp"
#include "planner/memory/placement.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::array<std::int32_t, 2> one{1, 1}, three{3, 3};

// A network with a 8x8x3 image and a convolution `c0` to 4 channels; loss() closes it.
class training_graph_test : public ::testing::Test {
 protected:
  network net{"net"};
  node_id image = net.input(8, 8, 3);
  node_id c0 = conv("c0", image);

  node_id conv(const std::string& name, node_id x, std::int64_t channels = 4) {
    return net.conv2d(name, x, channels, three, one, one);
  }

  const graph& close(const std::vector<node_id>& ends) {
    node_id logits = no_id;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const node_id d = net.dense("fc" + std::to_string(i), ends[i], 5);
      logits = !logits.valid() ? d : net.add("sum" + std::to_string(i), logits, d);
    }
    net.softmax_cross_entropy("loss", logits);
    g = make_training_graph(net, 2);
    check_graph(g);
    const auto expected = testing::reference_step(net);
    const auto got = testing::graph_step(g).run();
    EXPECT_THAT(got.complaints, IsEmpty());
    EXPECT_EQ(got.gradients, expected.gradients);
    return g;
  }

  const op& named(const std::string& name) const {
    for (const op& o : g.ops) {
      if (o.name == name) return o;
    }
    ADD_FAILURE() << "no op " << name;
    static const op missing;
    return missing;
  }
  bool has_op(const std::string& name) const {
    return std::any_of(g.ops.begin(), g.ops.end(), [&](const op& o) { return o.name == name; });
  }
  op_id position(const std::string& name) const {
    return g.ops.id_of(std::find_if(g.ops.begin(), g.ops.end(), [&](const op& o) { return o.name == name; }));
  }
  const std::string& storage_name(const tensor_ref& r) const { return g.at(r.storage).name; }
  bool in_place(const std::string& name) const {
    const op& o = named(name);
    return std::any_of(o.inputs.begin(), o.inputs.end(),
                       [&](const tensor_ref& r) { return !o.outputs.empty() && r == o.outputs[0]; });
  }
  std::vector<std::string> forms(const std::string& name) const {
    std::vector<std::string> out;
    for (const stash_alternative& a : named(name).alternatives)
      out.push_back(a.form);
    return out;
  }

  graph g;
};

// ---- forward, in place ----------------------------------------------------------------------------------

TEST_F(training_graph_test, activations_overwrite_an_output_that_nobody_else_wants) {
  const node_id r = net.relu("r", c0);
  const node_id l = net.leaky_relu("l", conv("c1", r), 0.1F);
  const node_id s = net.relu6("s", conv("c2", l));
  const node_id d = net.dropout("d", conv("c3", s), 0.5F);
  close({d});
  for (const char* const name : {"r", "l", "s", "d"})
    EXPECT_TRUE(in_place(name)) << name;
  EXPECT_EQ(storage_name(named("c0").outputs[0]), "r") << "named after the last op that writes it";
}

TEST_F(training_graph_test, nothing_overwrites_a_map_with_two_readers) {
  const node_id r = net.relu("r", c0);
  const node_id d = net.dropout("d", c0, 0.5F);
  close({r, d});
  EXPECT_FALSE(in_place("r"));
  EXPECT_FALSE(in_place("d"));
  EXPECT_NE(named("r").outputs[0], named("d").outputs[0]);
}

TEST_F(training_graph_test, nothing_overwrites_what_its_producer_needs_in_backward) {
  const node_id r = net.relu("r", c0);
  const node_id d = net.dropout("d", r, 0.5F);
  const node_id a = net.relu6("a", conv("c1", d));
  const node_id b = net.leaky_relu("b", a, 0.1F);
  const node_id p = net.max_pool("p", net.relu("rp", conv("c2", b)), 2, 2);
  const node_id e = net.dropout("e", p, 0.5F);
  const node_id n = net.relu("rn", net.batch_norm("n", conv("c3", e)));
  const node_id f = net.dropout("f", n, 0.5F);
  close({f});
  for (const char* const name : {"d", "b", "e", "f"})
    EXPECT_FALSE(in_place(name)) << name;
}

TEST_F(training_graph_test, a_flattened_map_is_a_view_and_stays) {
  const node_id flat = net.flatten("flat", c0);
  const node_id r = net.relu("r", flat);
  const node_id again = net.flatten("again", net.flatten("more", r));
  const node_id d = net.dropout("d", again, 0.5F);
  close({d});
  EXPECT_FALSE(in_place("r")) << "the map has another name for its readers";
  EXPECT_FALSE(in_place("d")) << "a relu after two views reads its output";
  EXPECT_EQ(named("r").inputs[0], named("c0").outputs[0]);
  EXPECT_EQ(named("d").inputs[0], named("r").outputs[0]);
}

TEST_F(training_graph_test, addition_overwrites_the_operand_that_dies_and_lists_it_first) {
  const node_id c1 = conv("c1", c0);
  const node_id sum = net.add("a", c0, c1);  // c0 is read by c1 too
  close({sum});
  EXPECT_TRUE(in_place("a"));
  EXPECT_EQ(named("a").inputs[0], named("c1").outputs[0]);
  EXPECT_EQ(named("a").inputs[1], named("c0").outputs[0]);
  EXPECT_EQ(named("a").outputs[0], named("c1").outputs[0]);
}

TEST_F(training_graph_test, addition_of_two_needed_operands_has_its_own_memory) {
  const node_id r = net.relu("r", c0);
  const node_id s = net.relu("s", conv("c1", r));
  close({net.add("a", r, s)});
  EXPECT_FALSE(in_place("a"));
}

TEST_F(training_graph_test, a_map_may_be_added_to_itself) {
  close({net.add("a", c0, c0)});
  EXPECT_FALSE(in_place("a"));
  EXPECT_TRUE(has_op("c0/accumulate"));
}

// ---- joined ops -----------------------------------------------------------------------------------------

TEST_F(training_graph_test, relu_and_max_pool_are_joined) {
  close({net.max_pool("p", net.relu("r", c0), 2, 2)});
  EXPECT_FALSE(has_op("r"));
  const op& p = named("p");
  EXPECT_EQ(p.kind, op_kind::relu_max_pool);
  EXPECT_EQ(p.inputs[0], named("c0").outputs[0]);
  ASSERT_EQ(p.optional_outputs.size(), 2U);
  EXPECT_EQ(g.at(p.optional_outputs[0]).name, "p.index");
  EXPECT_EQ(g.at(p.optional_outputs[1]).name, "p.code");
  EXPECT_EQ(g.at(p.optional_outputs[0]).window_taps, 4);
  EXPECT_FALSE(has_op("r/backward"));
  EXPECT_EQ(named("p/backward").kind, op_kind::relu_max_pool_backward);
  EXPECT_THAT(forms("p/backward"), ElementsAre("from_code", "from_index_and_y", "from_x"));
}

TEST_F(training_graph_test, windows_of_more_than_15_taps_have_no_joint_code) {
  close({net.max_pool("p", net.relu("r", c0), 4, 4)});
  EXPECT_EQ(named("p").optional_outputs.size(), 1U);
  EXPECT_EQ(g.at(named("p").optional_outputs[0]).window_taps, 16);
  EXPECT_THAT(forms("p/backward"), ElementsAre("from_index_and_y", "from_x"));
}

TEST_F(training_graph_test, relu_and_max_pool_are_not_fused_if_the_relu_has_another_reader) {
  const node_id r = net.relu("r", c0);
  close({net.max_pool("p", r, 2, 2), r});
  EXPECT_EQ(named("r").kind, op_kind::relu);
  EXPECT_TRUE(in_place("r"));
  EXPECT_EQ(named("p").kind, op_kind::max_pool);
  EXPECT_THAT(forms("p/backward"), ElementsAre("from_index", "from_x"));
}

TEST_F(training_graph_test, the_input_of_a_joined_relu_may_have_other_readers) {
  const node_id p = net.max_pool("p", net.relu("r", c0), 2, 2);
  close({p, conv("c1", c0)});
  EXPECT_EQ(named("p").kind, op_kind::relu_max_pool);
  EXPECT_EQ(named("p").inputs[0], named("c1").inputs[0]);
}

TEST_F(training_graph_test, norm_and_relu_are_joined_and_can_be_recomputed) {
  close({net.relu("r", net.batch_norm("n", c0))});
  EXPECT_FALSE(has_op("r"));
  EXPECT_TRUE(named("n").attributes.fused_relu);
  EXPECT_TRUE(named("n/backward").attributes.fused_relu);
  EXPECT_THAT(forms("n/backward"), ElementsAre("from_x", "from_x_and_y"));
  ASSERT_EQ(g.recipes.size(), 1U);
  EXPECT_THAT(g.recipes[recipe_id(0)].sources, ElementsAre(named("c0").outputs[0].storage));
  EXPECT_EQ(g.recipes[recipe_id(0)].target, named("n").outputs[0].storage);
  EXPECT_THAT(g.recipes[recipe_id(0)].ops, ElementsAre(position("n")));
}

TEST_F(training_graph_test, norm_and_relu_are_not_fused_if_somebody_reads_the_norm) {
  const node_id n = net.batch_norm("n", c0);
  close({net.relu("r", n), n});
  EXPECT_EQ(named("r").kind, op_kind::relu);
  EXPECT_FALSE(in_place("r"));
  EXPECT_FALSE(named("n").attributes.fused_relu);
  EXPECT_THAT(forms("n/backward"), ElementsAre("from_x"));
  EXPECT_THAT(g.recipes, IsEmpty());
}

TEST_F(training_graph_test, norm_relu_pool_joins_the_relu_with_the_pool_only) {
  close({net.max_pool("p", net.relu("r", net.batch_norm("n", c0)), 2, 2)});
  EXPECT_EQ(named("p").kind, op_kind::relu_max_pool);
  EXPECT_FALSE(named("n").attributes.fused_relu);
}

// ---- concatenation --------------------------------------------------------------------------------------

TEST_F(training_graph_test, concatenated_maps_are_written_into_their_slices) {
  const node_id a = net.relu("a", conv("ca", c0, 2));
  const node_id b = conv("cb", c0, 3);
  close({conv("after", net.concat("cat", {a, b}))});
  const storage_id whole = named("after").inputs[0].storage;
  EXPECT_TRUE(named("after").inputs[0].whole());
  EXPECT_EQ(g.at(whole).name, "cat");
  EXPECT_EQ(named("ca").outputs[0], (tensor_ref{whole, 0, 2}));
  EXPECT_EQ(named("a").outputs[0], (tensor_ref{whole, 0, 2}));
  EXPECT_TRUE(in_place("a"));
  EXPECT_EQ(named("cb").outputs[0], (tensor_ref{whole, 2, 3}));
  EXPECT_FALSE(has_op("cat/copy0"));
}

TEST_F(training_graph_test, nested_concatenation_shares_the_outermost_storage) {
  const node_id inner = net.concat("inner", {conv("ca", c0, 2), conv("cb", c0, 3)});
  const node_id outer = net.concat("outer", {conv("cc", c0, 1), inner});
  close({conv("reads_inner", inner), conv("reads_outer", outer)});
  const storage_id whole = named("reads_outer").inputs[0].storage;
  EXPECT_EQ(named("ca").outputs[0], (tensor_ref{whole, 1, 2}));
  EXPECT_EQ(named("cb").outputs[0], (tensor_ref{whole, 3, 3}));
  EXPECT_EQ(named("reads_inner").inputs[0], (tensor_ref{whole, 1, 5}));
}

TEST_F(training_graph_test, a_repeated_input_is_copied_once) {
  const node_id a = conv("ca", c0, 2);
  close({net.concat("cat", {a, a})});
  const storage_id whole = named("ca").outputs[0].storage;
  EXPECT_EQ(named("ca").outputs[0], (tensor_ref{whole, 0, 2}));
  ASSERT_TRUE(has_op("cat/copy0"));
  EXPECT_EQ(named("cat/copy0").inputs[0], (tensor_ref{whole, 0, 2}));
  EXPECT_EQ(named("cat/copy0").outputs[0], (tensor_ref{whole, 2, 2}));
  EXPECT_FALSE(has_op("cat/copy1"));
}

TEST_F(training_graph_test, an_input_of_two_concatenations_lives_in_one_and_is_copied_to_the_other) {
  const node_id a = conv("ca", c0, 2);
  const node_id b = conv("cb", c0, 3);
  const node_id first = net.concat("first", {a, b});
  const node_id second = net.concat("second", {b, a});
  close({first, second});
  int copies = 0;
  for (const op& o : g.ops)
    copies += o.kind == op_kind::copy && o.stage == op_stage::forward ? 1 : 0;
  EXPECT_EQ(copies, 2);
}

TEST_F(training_graph_test, a_concatenation_is_overwritten_only_if_its_parts_may_be) {
  const node_id a = conv("ca", c0, 2), b = conv("cb", c0, 2), c = conv("cc", c0, 2);
  const node_id fresh = net.relu("fresh", net.concat("cat0", {a, net.concat("cat1", {b, c})}));
  const node_id d = conv("cd", c0, 2), r = net.relu("r", conv("ce", c0, 2));
  const node_id rectified = net.dropout("rectified", net.concat("cat2", {d, r}), 0.5F);
  const node_id e = conv("cf", c0, 2), shared = conv("cg", c0, 2);
  const node_id kept = net.relu("kept", net.concat("cat3", {e, shared}));
  close({fresh, rectified, kept, shared});
  EXPECT_TRUE(in_place("fresh"));
  EXPECT_FALSE(in_place("rectified")) << "r's backward reads a part";
  EXPECT_FALSE(in_place("kept")) << "somebody else reads a part";
}

TEST_F(training_graph_test, images_and_flattened_maps_are_copied) {
  const node_id flat = net.flatten("flat", c0);
  const node_id other = net.dense("d", c0, 7);
  close({net.concat("cat", {flat, other})});
  EXPECT_TRUE(has_op("cat/copy0"));
  EXPECT_FALSE(named("d").outputs[0].whole());
}

// ---- backward -------------------------------------------------------------------------------------------

TEST_F(training_graph_test, weight_gradients_come_before_input_gradients) {
  close({net.relu("r", conv("c1", c0))});
  for (const char* const name : {"c1", "fc0"}) {
    const std::string n = name;
    EXPECT_LT(position(n + "/backward_weights"), position(n + "/backward_data"));
    EXPECT_EQ(named(n + "/backward_weights").inputs, named(n + "/backward_data").inputs);
  }
  EXPECT_TRUE(has_op("c0/backward_weights"));
  EXPECT_FALSE(has_op("c0/backward_data")) << "nobody wants the gradient of an image";
}

TEST_F(training_graph_test, a_gradient_that_dies_is_overwritten) {
  const node_id n = net.batch_norm("n", net.relu("r", c0));
  close({net.dropout("d", net.lrn("l", n, 3), 0.5F)});
  for (const char* const name : {"d/backward", "l/backward", "n/backward", "r/backward"})
    EXPECT_TRUE(in_place(name)) << name;
}

TEST_F(training_graph_test, a_gradient_that_a_shortcut_still_wants_is_kept) {
  const node_id r = net.relu("r", conv("c1", c0));
  close({net.add("a", c0, r)});
  EXPECT_FALSE(in_place("r/backward")) << "the sum's gradient is also that of the shortcut";
  // The convolution's gradient joins the shortcut's, which nobody else wants any more.
  const op& sum = named("c0/accumulate");
  EXPECT_EQ(storage_name(sum.inputs[0]), storage_name(named("r/backward").inputs[0]));
  EXPECT_EQ(sum.inputs[1], named("c1/backward_data").outputs[0]);
  EXPECT_LT(position("c1/backward_data"), position("c0/accumulate"));
  EXPECT_LT(position("c0/accumulate"), position("c0/backward_weights"));
}

TEST_F(training_graph_test, the_last_reader_of_a_shared_gradient_may_overwrite_it) {
  const node_id left = net.relu("left", conv("c1", c0));
  const node_id right = net.relu("right", conv("c2", c0));
  close({net.add("a", left, right)});
  EXPECT_FALSE(in_place("right/backward")) << "left has not read it yet";
  EXPECT_TRUE(in_place("left/backward"));
  EXPECT_EQ(named("left/backward").inputs[0], named("right/backward").inputs[0]);
}

TEST_F(training_graph_test, a_borrowed_gradient_is_copied_before_it_grows) {
  // b's gradient is that of two sums, one of which it shares with a and the other with c.
  const node_id a = conv("a", c0), b = conv("b", c0), c = conv("c", c0);
  close({net.add("s1", a, b), net.add("s2", b, c)});
  EXPECT_TRUE(has_op("b/copy_gradient"));
  EXPECT_TRUE(has_op("b/accumulate"));
}

TEST_F(training_graph_test, a_gradient_that_a_node_hands_down_twice_stays_until_both_have_it) {
  // twice's gradient is also that of c0, which it is added to two more times.
  const node_id twice = net.add("twice", c0, c0);
  close({net.add("thrice", twice, c0)});
  EXPECT_TRUE(has_op("c0/copy_gradient"));
}

TEST_F(training_graph_test, swapped_halves_of_one_gradient_are_not_mixed_up) {
  const node_id a = conv("ca", c0, 2), b = conv("cb", c0, 2), c = conv("cc", c0, 1);
  const node_id ab = net.concat("ab", {a, b}), ba = net.concat("ba", {b, a});
  const node_id ac = net.concat("ac", {a, c}), ca = net.concat("ca_", {c, a});
  close({net.add("s", ab, ba), net.add("t", ac, ca)});
}

TEST_F(training_graph_test, gradients_of_concatenated_maps_are_slices) {
  const node_id a = conv("ca", c0, 2), b = net.relu("rb", conv("cb", c0, 3));
  close({conv("after", net.concat("cat", {a, b}))});
  const storage_id whole = named("after/backward_data").outputs[0].storage;
  EXPECT_EQ(named("ca/backward_weights").inputs[0], (tensor_ref{whole, 0, 2}));
  EXPECT_EQ(named("rb/backward").inputs[0], (tensor_ref{whole, 2, 3}));
  EXPECT_TRUE(in_place("rb/backward"));
}

TEST_F(training_graph_test, gradients_of_flattened_maps_have_the_shape_of_the_map) {
  const node_id c1 = conv("c1", c0, 2), c2 = conv("c2", c0, 3), c3 = conv("c3", c0, 1);
  const node_id dropped = net.dropout("d", net.flatten("f1", c1), 0.5F);
  const node_id sum = net.add("sum", net.flatten("f2", c2), net.dense("wide", c0, 192));
  const node_id normed = net.batch_norm("n", net.relu("r", net.flatten("f3", c3)));
  close({dropped, net.concat("cat", {sum, net.flatten("f4", c1)}), normed});
  EXPECT_TRUE(in_place("d/backward"));
  for (const op& o : g.ops) {
    if (o.kind != op_kind::conv2d_backward_weights) continue;
    const storage& dy = g.at(o.inputs[0].storage);
    EXPECT_THAT(dy.shape, ElementsAre(8, 8, g.op_at(o.forward_op).attributes.out_features)) << o.name;
  }
}

TEST_F(training_graph_test, every_parameter_is_updated_once) {
  close({net.relu("r", net.batch_norm("n", c0))});
  const op& update = g.ops.back();
  EXPECT_EQ(update.kind, op_kind::sgd_update);
  std::vector<std::string> weights;
  for (std::size_t i = 0; i < update.parameters.size(); i += 3) {
    weights.push_back(g.at(update.parameters[i]).name);
    EXPECT_EQ(g.at(update.parameters[i + 1]).role, storage_role::weight_gradient);
    EXPECT_EQ(g.at(update.parameters[i + 2]).role, storage_role::momentum);
  }
  EXPECT_THAT(weights, ElementsAre("c0/weight", "c0/bias", "n/scale", "n/shift", "fc0/weight", "fc0/bias"));
}

TEST_F(training_graph_test, fused_updates_follow_the_last_reader_of_old_weights) {
  const node_id normed = net.relu("r", net.batch_norm("n", c0));
  net.softmax_cross_entropy("loss", net.dense("fc", conv("c1", normed), 5));
  training_graph_options options;
  options.fused_update = true;
  g = make_training_graph(net, 2, options);
  check_graph(g);
  std::vector<std::string> backward;
  for (const op& o : g.ops) {
    EXPECT_NE(o.stage, op_stage::update) << o.name;
    if (o.stage == op_stage::backward) backward.push_back(o.name);
  }
  EXPECT_THAT(backward, ElementsAre("loss/backward", "fc/backward_weights", "fc/backward_data", "fc/update",
                                    "c1/backward_weights", "c1/backward_data", "c1/update", "n/backward",
                                    "n/update", "c0/backward_weights", "c0/update"));
  // fc is the largest: 8 x 8 x 4 inputs of 5 outputs, and 5 biases in 64 bytes.
  const graph plain = make_training_graph(net, 2);
  std::int64_t gradients = 0;
  for (const storage& s : plain.storages) {
    if (s.role == storage_role::weight_gradient) gradients += (s.fixed_bytes + 63) / 64 * 64;
  }
  EXPECT_EQ(parameter_bytes(g), parameter_bytes(plain) - gradients + (256 * 5 * 4 + 64));
  EXPECT_TRUE(passing_gradients(plain).empty());
}

TEST_F(training_graph_test, densities_follow_the_values) {
  const node_id r = net.relu("r", c0);
  const node_id c1 = conv("c1", r);
  const node_id d = net.dropout("d", net.leaky_relu("l", conv("c2", c1), 0.1F), 0.25F);
  net.softmax_cross_entropy("loss", net.dense("fc", d, 5));
  g = make_training_graph(net, 2, {.relu_density = 0.4});
  const auto density = [&](const std::string& name) {
    for (const storage& s : g.storages) {
      if (s.name == name) return s.density;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(density("r"), 0.4);
  EXPECT_DOUBLE_EQ(density("c1"), 1.0);
  EXPECT_DOUBLE_EQ(density("d"), 0.75);
}

// ---- arguments ------------------------------------------------------------------------------------------

template <class Call>
void expect_refused(const Call& call, const std::string& detail) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected a complaint about " << detail;
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::invalid_argument) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(detail));
  }
}

TEST_F(training_graph_test, refuses_what_cannot_be_trained) {
  expect_refused([&] { make_training_graph(network("empty"), 1); }, "softmax_cross_entropy");
  expect_refused([&] { make_training_graph(net, 1); }, "c0");
  net.softmax_cross_entropy("loss", net.dense("fc", c0, 5));
  for (const std::int64_t batch : {std::int64_t{0}, std::int64_t{-1}})
    expect_refused([&] { make_training_graph(net, batch); }, "batch");
  for (const double density : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    expect_refused([&] { make_training_graph(net, 1, {.relu_density = density}); }, "relu_density");
  make_training_graph(net, 1, {.relu_density = 0.0});
  make_training_graph(net, 1, {.relu_density = 1.0});
}

TEST_F(training_graph_test, refuses_nodes_that_do_not_lead_to_the_loss) {
  conv("dead", c0);
  net.softmax_cross_entropy("loss", net.dense("fc", c0, 5));
  expect_refused([&] { make_training_graph(net, 1); }, "dead");
}

TEST_F(training_graph_test, refuses_to_norm_a_flattened_map) {
  const node_id n = net.batch_norm("norm", net.flatten("flat", c0));
  net.softmax_cross_entropy("loss", net.dense("fc", n, 5));
  expect_refused([&] { make_training_graph(net, 1); }, "norm");
}

// ---- random networks ------------------------------------------------------------------------------------

TEST(training_graph, random_networks_compute_the_same_step) {
  std::size_t in_place = 0, copies = 0, slices = 0, accumulated = 0, joined = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(5000); ++seed) {
    SCOPED_TRACE(seed);
    const network net = testing::random_network(seed).make();
    const graph g = make_training_graph(net, 3);
    ASSERT_NO_THROW(check_graph(g));
    const auto expected = testing::reference_step(net);
    const auto got = testing::graph_step(g).run();
    ASSERT_THAT(got.complaints, IsEmpty());
    ASSERT_EQ(got.gradients, expected.gradients);
    for (const op& o : g.ops) {
      if (!o.outputs.empty() && !o.inputs.empty() && o.inputs[0] == o.outputs[0]) ++in_place;
      if (!o.outputs.empty() && !o.outputs[0].whole()) ++slices;
      if (o.kind == op_kind::copy) ++copies;
      if (o.kind == op_kind::accumulate) ++accumulated;
      if (o.kind == op_kind::relu_max_pool || o.attributes.fused_relu) ++joined;
    }
  }
  // The networks must really contain what they are meant to test.
  for (const std::size_t count : {in_place, copies, accumulated, slices, joined})
    EXPECT_GT(count, stash_test::cases(1000));
}

}  // namespace
}  // namespace stash::planner
