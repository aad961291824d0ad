// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/op_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/graph/random_network.hpp"
#include "planner/graph/random_order.hpp"
#include "planner/graph/sample_graph.hpp"
#include "planner/json/json.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

id_vector<op_id, op_id> kept(const graph& g) {
  id_vector<op_id, op_id> order;
  for (const op_id o : g.ops.ids())
    order.push_back(o);
  return order;
}

op_id find(const graph& g, const std::string& name) {
  const auto at = std::find_if(g.ops.begin(), g.ops.end(), [&](const op& o) { return o.name == name; });
  EXPECT_NE(at, g.ops.end()) << name;
  return g.ops.id_of(at);
}

TEST(op_order, the_order_of_the_graph_is_legal_and_changes_nothing) {
  const graph g = sample_graph();
  EXPECT_TRUE(is_legal_order(g, dependencies_of(g), kept(g)));
  EXPECT_EQ(to_json(reordered(g, kept(g))), to_json(g));
}

TEST(op_order, an_op_waits_for_what_it_reads_and_a_writer_for_readers) {
  const graph g = sample_graph();
  const op_dependencies found = dependencies_of(g);
  for (const op_id o : g.ops.ids()) {
    for (const op_id first : found.before[o]) {
      EXPECT_LT(first, o);
      EXPECT_THAT(found.after[first], Contains(o));
    }
  }
  // Every gradient of weights reads the gradient that an op before it made.
  for (const op_id o : g.ops.ids()) {
    if (g.ops[o].stage == op_stage::backward && !g.ops[o].inputs.empty()) {
      EXPECT_THAT(found.before[o], Not(IsEmpty())) << g.ops[o].name;
    }
  }
}

TEST(op_order, branches_that_write_channels_of_one_storage_are_free) {
  network net("branches");
  const node_id image = net.input(8, 8, 3);
  const node_id a = net.conv2d("a", image, 4, {1, 1}, {1, 1}, {0, 0});
  const node_id b = net.conv2d("b", image, 4, {1, 1}, {1, 1}, {0, 0});
  const node_id joined = net.concat("joined", {a, b});
  net.softmax_cross_entropy("loss", net.dense("fc", net.flatten("flat", joined), 10));
  const graph g = make_training_graph(net, 2);
  const op_dependencies found = dependencies_of(g);
  EXPECT_THAT(found.before[find(g, "b")], Not(Contains(find(g, "a"))));
}

TEST(op_order, orders_that_break_a_dependency_or_a_stage_are_refused) {
  const graph g = sample_graph();
  const op_dependencies found = dependencies_of(g);
  for (const op_id o : g.ops.ids()) {
    for (const op_id first : found.before[o]) {
      id_vector<op_id, op_id> order = kept(g);
      std::swap(order[o], order[first]);
      EXPECT_THROW(reordered(g, order), error) << g.ops[o].name;
    }
  }
  id_vector<op_id, op_id> twice = kept(g);
  twice[op_id(1)] = op_id(0);
  EXPECT_THROW(reordered(g, twice), error);
  id_vector<op_id, op_id> shorter = kept(g);
  shorter.pop_back();
  EXPECT_THROW(reordered(g, shorter), error);
  id_vector<op_id, op_id> beyond = kept(g);
  beyond[op_id(0)] = op_id(g.ops.size());
  EXPECT_THROW(reordered(g, beyond), error);
}

TEST(op_order, random_orders_are_graphs_of_the_same_ops) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const graph g = make_training_graph(testing::random_network(seed).make(), 2);
    const id_vector<op_id, op_id> order = testing::random_order(g, seed);
    const graph other = reordered(g, order);
    check_graph(other);
    for (const op_id i : order.ids())
      EXPECT_EQ(other.ops[i].name, g.ops[order[i]].name);
    // And back again.
    id_vector<op_id, op_id> back(order.size(), no_id);
    for (const op_id i : order.ids())
      back[order[i]] = i;
    EXPECT_EQ(to_json(reordered(other, back)), to_json(g));
  }
}

}  // namespace
}  // namespace stash::planner
