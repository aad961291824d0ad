// SPDX-License-Identifier: Apache-2.0
#include "models/tape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "planned_graph.hpp"
#include "planner/verify/validator.hpp"
#include "tape_support.hpp"

namespace stash::models {
namespace {

using planner::need;
using planner::op;
using planner::op_kind;
using planner::op_stage;
using testing::alternatives;
using testing::dense;
using testing::end_in_loss;
using testing::expect_reads_are_what_forward_saw;
using testing::graph;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::label_rules;
using testing::op_named;
using testing::refusal;
using testing::tensor_ref;

// ---- in place --------------------------------------------------------------------------------------------

TEST(tape, works_in_place_where_no_gradient_reads_what_was_there) {
  tape t("t");
  value x = t.relu("relu", dense(t, "a", t.image("input", {1, 4}), 6));
  x = t.tanh("tanh", dense(t, "b", x, 6));
  x = t.dropout("dropout", dense(t, "c", x, 6), 0.5);
  x = t.gelu("gelu", dense(t, "d", x, 6));
  x = t.dropout("after_tanh", t.tanh("tanh2", x), 0.5);
  end_in_loss(t, x);
  const graph g = t.finish(2);
  planner::check_graph(g);
  for (const char* const name : {"relu", "tanh", "dropout", "tanh2"})
    EXPECT_EQ(op_named(g, name).inputs[0], op_named(g, name).outputs[0]) << name;
  // GELU's gradient reads its input, tanh's its output.
  for (const char* const name : {"gelu", "after_tanh"})
    EXPECT_NE(op_named(g, name).inputs[0].storage, op_named(g, name).outputs[0].storage) << name;
  for (const char* const name : {"relu/backward", "tanh/backward", "dropout/backward", "gelu/backward"})
    EXPECT_EQ(op_named(g, name).inputs[0], op_named(g, name).outputs[0]) << name;
  EXPECT_EQ(g.at(op_named(g, "relu").outputs[0].storage).density, 0.5);
}

TEST(tape, a_value_with_two_readers_is_not_overwritten) {
  tape t("t");
  const value a = dense(t, "a", t.image("input", {1, 4}), 6);
  const value y = t.add("sum", t.relu("relu", a), t.sigmoid("sigmoid", a));
  end_in_loss(t, y);
  const graph g = t.finish(2);
  const auto from = op_named(g, "a").outputs[0].storage;
  EXPECT_NE(op_named(g, "relu").outputs[0].storage, from);
  EXPECT_NE(op_named(g, "sigmoid").outputs[0].storage, from);
  // Both terms are read by their gradients: the sum lies elsewhere.
  EXPECT_NE(op_named(g, "sum").outputs[0].storage, op_named(g, "relu").outputs[0].storage);
  EXPECT_NE(op_named(g, "sum").outputs[0].storage, op_named(g, "sigmoid").outputs[0].storage);
  EXPECT_EQ(op_named(g, "a/accumulate").kind, op_kind::accumulate);
}

TEST(tape, a_shared_gradient_is_not_overwritten) {
  tape t("t");
  const value a = dense(t, "a", t.image("input", {1, 6}), 6);
  const value y = t.add("sum", a, t.relu("relu", dense(t, "b", a, 6)));
  end_in_loss(t, y);
  const graph g = t.finish(2);
  // The gradient of the sum is that of a too: the ReLU's backward may not work in it.
  EXPECT_NE(op_named(g, "relu/backward").inputs[0].storage, op_named(g, "relu/backward").outputs[0].storage);
}

// ---- views -----------------------------------------------------------------------------------------------

TEST(tape, concat_is_written_in_place) {
  tape t("t");
  const value x = t.image("input", {1, 4});
  const value a = t.relu("a/relu", dense(t, "a", x, 3)), b = dense(t, "b", x, 2);
  const value y = t.concat("joined", {a, b, a});
  end_in_loss(t, y);
  const graph g = t.finish(2);
  planner::check_graph(g);
  const auto whole = op_named(g, "logits").inputs[0].storage;
  EXPECT_EQ(op_named(g, "a").outputs[0], (tensor_ref{whole, 0, 3}));
  EXPECT_EQ(op_named(g, "a/relu").outputs[0], (tensor_ref{whole, 0, 3}));
  EXPECT_EQ(op_named(g, "b").outputs[0], (tensor_ref{whole, 3, 2}));
  EXPECT_EQ(op_named(g, "joined/copy").outputs[0], (tensor_ref{whole, 5, 3}));
}

TEST(tape, split_gradients_lie_in_one_storage) {
  tape t("t");
  const auto parts = t.split("split", dense(t, "a", t.image("input", {3, 4}), 12), {4, 4, 4});
  value p = t.softmax("softmax", t.attention_scores("scores", parts[0], parts[1], 2));
  const value y = t.attention_context("context", p, parts[2]);
  t.softmax_cross_entropy("loss", y, t.ids("labels", 3), 0);
  const graph g = t.finish(2);
  planner::check_graph(g);
  const auto whole = op_named(g, "a/backward_weights").inputs[0];
  EXPECT_TRUE(whole.whole());
  EXPECT_EQ(op_named(g, "scores/backward_left").outputs[0], (tensor_ref{whole.storage, 0, 4}));
  EXPECT_EQ(op_named(g, "scores/backward_right").outputs[0], (tensor_ref{whole.storage, 4, 4}));
  EXPECT_EQ(op_named(g, "context/backward_right").outputs[0], (tensor_ref{whole.storage, 8, 4}));
}

TEST(tape, volumes_need_not_be_cubes) {
  tape t("t");
  value x = t.image("input", {4, 6, 8, 2});
  x = t.conv3d("conv", {{x, t.parameter("w", {3, 2, 3, 3, 3})}}, t.parameter("b", {3}));
  EXPECT_EQ(t.shape(x), (tape::dims{4, 6, 8, 3}));
  x = t.max_pool3d("pool", x, 2);
  EXPECT_EQ(t.shape(x), (tape::dims{2, 3, 4, 3}));
  EXPECT_EQ(t.shape(t.max_pool3d("odd", x, 2)), (tape::dims{1, 1, 2, 3}));
  x = t.conv_transpose3d("up", x, t.parameter("u", {3, 5, 2, 2, 2}));
  EXPECT_EQ(t.shape(x), (tape::dims{4, 6, 8, 5}));
  t.softmax_cross_entropy("loss", x, t.ids("labels", 4 * 6 * 8), 0);
  const graph g = t.finish(1);
  planner::check_graph(g);
  label_rules(g).run();
}

// ---- order and alternatives ------------------------------------------------------------------------------

TEST(tape, gradients_read_what_they_need_and_no_more) {
  using ::testing::ElementsAre;
  tape t("t");
  const weight table = t.parameter("table", {9, 6}), v = t.parameter("v", {6});
  value x = t.embedding("embedding", t.ids("words", 4), 0, 4, table);
  x = t.norm("norm", x, norm_kind::layer);
  x = t.norm("norm_relu", dense(t, "a", x, 6), norm_kind::instance, activation::relu);
  const value m = t.multiply("product", t.sigmoid("sigmoid", dense(t, "b", x, 6)), x);
  const value keys = dense(t, "keys", m, 6);
  const value query = dense(t, "query", t.first_row("row", m), 6);
  const value p = t.softmax("softmax", t.additive_scores("scores", keys, query, v));
  const value gates = dense(t, "gates", t.dropout("dropout", p, 0.1), 8);
  const value pairs = t.attention_scores("pairs", dense(t, "query2", m, 6), keys, 2);
  t.softmax_cross_entropy("loss2", t.attention_context("context", pairs, keys), t.ids("labels2", 4), 0);
  const auto first = t.lstm_cell("cell1", gates, {});
  const auto second = t.lstm_cell("cell2", dense(t, "gates2", first.h, 8), first.c);
  end_in_loss(t, second.h);
  const graph g = t.finish(2);
  planner::check_graph(g);
  label_rules(g).run();
  expect_reads_are_what_forward_saw(g);
  EXPECT_THAT(alternatives(g, "embedding/backward_weights"), IsEmpty());
  EXPECT_THAT(alternatives(g, "norm/backward"), ElementsAre("from_x: embedding/value norm.statistics/value"));
  EXPECT_THAT(alternatives(g, "norm_relu/backward"),
              ElementsAre("from_x_and_y: a/value norm_relu/sign norm_relu.statistics/value",
                          "from_x: a/exact_value norm_relu.statistics/value"));
  EXPECT_THAT(alternatives(g, "b/backward_weights"), ElementsAre("from_x: norm_relu/value"));
  EXPECT_THAT(alternatives(g, "b/backward_data"), IsEmpty());
  EXPECT_THAT(alternatives(g, "sigmoid/backward"), ElementsAre("from_y: sigmoid/fine_value"));
  EXPECT_THAT(alternatives(g, "product/backward"),
              ElementsAre("from_a_and_b: sigmoid/value norm_relu/value"));
  EXPECT_THAT(alternatives(g, "scores/backward"),
              ElementsAre("from_hidden: scores.hidden/value", "recompute: keys/value query/value"));
  EXPECT_GT(op_named(g, "scores/backward").alternatives[1].flops, 0);
  EXPECT_THAT(alternatives(g, "softmax/backward"), ElementsAre("from_y: softmax/fine_value"));
  EXPECT_THAT(alternatives(g, "pairs/backward_left"), ElementsAre("from_right: keys/value"));
  EXPECT_THAT(alternatives(g, "pairs/backward_right"), ElementsAre("from_left: query2/value"));
  EXPECT_THAT(alternatives(g, "context/backward_left"), ElementsAre("from_right: keys/value"));
  EXPECT_THAT(alternatives(g, "context/backward_right"), ElementsAre("from_left: pairs/value"));
  EXPECT_THAT(alternatives(g, "dropout/backward"), ElementsAre("from_mask: dropout.mask/mask", "from_seed:"));
  EXPECT_THAT(alternatives(g, "cell1/backward"),
              ElementsAre("from_gates_and_states: cell1/value cell1.1/value"));
  EXPECT_THAT(alternatives(g, "cell2/backward"),
              ElementsAre("from_gates_and_states: cell2/value cell2.1/value cell1.1/value"));
  EXPECT_THAT(alternatives(g, "loss/backward"), ElementsAre("from_probabilities: loss/exact_value"));
  std::vector<std::string> recipes;
  for (const planner::recipe& r : g.recipes) {
    std::string text;
    for (const planner::op_id o : r.ops)
      text += (text.empty() ? "" : " ") + g.op_at(o).name;
    recipes.push_back(text);
  }
  EXPECT_THAT(recipes, ::testing::UnorderedElementsAre("norm", "norm_relu", "product", "norm_relu product",
                                                       "dropout"));
}

TEST(tape, weight_gradients_come_before_input_gradients) {
  tape t("t");
  const value x = dense(t, "a", t.image("input", {1, 4}), 6);
  const value h = dense(t, "b", x, 6);
  const weight w = t.parameter("w", {6, 6}), u = t.parameter("u", {6, 6});
  end_in_loss(t, t.linear("two", {{x, w}, {h, u}}));
  const graph g = t.finish(2);
  std::vector<std::string> order;
  for (const op& o : g.ops) {
    if (o.stage == op_stage::backward && o.name.starts_with("two")) order.push_back(o.name);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"two/backward_weights0", "two/backward_weights1",
                                             "two/backward_data0", "two/backward_data1"}));
}

// ---- gradients are sums over paths -----------------------------------------------------------------------

using number = std::uint64_t;  // sums and products modulo 2^64 are exact

number coefficient(const std::string& op_name, std::size_t input) {
  return std::hash<std::string>{}(op_name + "@" + std::to_string(input)) | 1U;
}

// A random network of element-wise ops, matrix products, views and sums, and what it is made of.
struct random_tape {
  struct node {
    std::string name;
    std::string what;
    std::vector<std::size_t> inputs;
    std::int64_t width = 0, begin = 0;  // begin: of a part of a split
  };
  tape t{"random"};
  std::vector<node> nodes;
  std::vector<value> values;

  explicit random_tape(unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) {
      return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    const auto some = [&] {
      std::size_t i = 0;
      do {
        i = values.size() - 1 - below(std::min<std::size_t>(values.size(), 5));
      } while (nodes[i].what == "hidden linear");
      return i;
    };
    push({"start", "linear", {}, 4}, dense(t, "start", t.image("input", {4}), 4));
    for (int i = 0; i < 25; ++i) {
      const std::string name = std::to_string(i) + "n";
      const std::size_t a = some(), b = some();
      const std::int64_t width = nodes[a].width;
      switch (below(9)) {
        case 0:
          push({name, "unary", {a}, width}, t.relu(name, values[a]));
          break;
        case 1:
          push({name, "unary", {a}, width}, t.gelu(name, values[a]));
          break;
        case 2:
          push({name, "unary", {a}, width}, t.dropout(name, values[a], 0.5));
          break;
        case 3:
          push({name, "linear", {a}, 4}, dense(t, name, values[a], 4));
          break;
        case 4:
          if (nodes[b].width == width)
            push({name, "multiply", {a, b}, width}, t.multiply(name, values[a], values[b]));
          break;
        case 5:
        case 6:
          if (nodes[b].width == width) push({name, "add", {a, b}, width}, t.add(name, values[a], values[b]));
          break;
        case 7:
          push({name, "concat", {a, b}, width + nodes[b].width}, t.concat(name, {values[a], values[b]}));
          break;
        default: {
          push({name, "linear", {a}, 6}, dense(t, name, values[a], 6));
          const std::size_t whole = values.size() - 1;
          const auto parts = t.split(name + "/split", values[whole], {2, 4});
          for (const std::size_t part : {0U, 1U}) {
            // Both parts need a reader with a gradient.
            push({name + "/part", "part", {whole}, part == 0 ? 2 : 4, part == 0 ? 0 : 2}, parts[part]);
            const std::string reader = name + "/reader" + std::to_string(part);
            push({reader, "linear", {values.size() - 1}, 4}, dense(t, reader, parts[part], 4));
          }
          nodes[whole].what = "hidden linear";  // nobody else may read it
        }
      }
    }
    std::vector<value> all;
    joined_ = nodes.size();
    node last{"joined", "concat", {}, 0};
    std::set<std::size_t> read;
    for (const node& n : nodes)
      read.insert(n.inputs.begin(), n.inputs.end());
    for (std::size_t i = 0; i < joined_; ++i) {
      if (read.count(i) > 0) continue;
      last.inputs.push_back(i);
      last.width += nodes[i].width;
      all.push_back(values[i]);
    }
    push(last, t.concat("joined", all));
    t.softmax_cross_entropy("loss", values.back(), t.ids("labels", 1), 0);
  }

  void push(node n, value v) {
    nodes.push_back(std::move(n));
    values.push_back(v);
  }

  // Gradient of each linear op's weight: the sum over the channels of the gradient of its output.
  std::map<std::string, number> expected() const {
    std::vector<std::vector<number>> d;
    for (const node& n : nodes)
      d.emplace_back(static_cast<std::size_t>(n.width), 0);
    std::fill(d.back().begin(), d.back().end(), coefficient("loss", 0));
    std::map<std::string, number> weights;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const node& n = nodes[i];
      std::size_t begin = 0;
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        std::vector<number>& dx = d[n.inputs[k]];
        for (std::size_t c = 0; c < (n.what == "part" ? d[i].size() : dx.size()); ++c) {
          if (n.what == "concat") {
            dx[c] += d[i][begin + c];
          } else if (n.what == "part") {
            dx[static_cast<std::size_t>(n.begin) + c] += d[i][c];
          } else if (n.what == "add") {
            dx[c] += d[i][c];
          } else if (n.what.ends_with("linear")) {
            for (const number y : d[i])
              dx[c] += coefficient(n.name, 0) * y;
          } else {
            dx[c] += coefficient(n.name, k) * d[i][c];
          }
        }
        begin += dx.size();
      }
      if (n.what.ends_with("linear")) {
        for (const number y : d[i])
          weights[n.name + "/weight.gradient"] += coefficient(n.name, 1) * y;
      }
    }
    return weights;
  }

 private:
  std::size_t joined_ = 0;
};

// Runs the backward ops of a graph with the coefficients in place of derivatives.
std::map<std::string, number> run_backward(const graph& g) {
  planner::id_vector<planner::storage_id, std::vector<number>> memory;
  for (const planner::storage& s : g.storages)
    memory.emplace_back(static_cast<std::size_t>(s.shape.back()), 0xdeadbeef);
  std::map<std::string, number> weights;
  const auto part = [&](const tensor_ref& r) {
    std::vector<number>& m = memory[r.storage];
    return r.whole() ? std::span(m)
                     : std::span(m).subspan(static_cast<std::size_t>(r.channel_begin),
                                            static_cast<std::size_t>(r.channels));
  };
  for (const op& o : g.ops) {
    if (o.stage != op_stage::backward) continue;
    std::vector<std::vector<number>> in;
    for (const tensor_ref& r : o.inputs)
      in.emplace_back(part(r).begin(), part(r).end());
    number sum = 0;
    for (const number x : in[0])
      sum += x;
    if (o.label == "linear_backward_weights") {
      weights[g.at(o.parameters_written[0]).name] += coefficient(g.op_at(o.forward_op).name, 1) * sum;
      continue;
    }
    for (std::size_t k = 0; k < o.outputs.size(); ++k) {
      const auto out = part(o.outputs[k]);
      for (std::size_t c = 0; c < out.size(); ++c) {
        if (o.kind == op_kind::accumulate || o.kind == op_kind::add) {
          out[c] = in[0][c] + in[1][c];
        } else if (o.kind == op_kind::copy) {
          out[c] = in[0][c];
        } else if (o.label == "softmax_cross_entropy_backward") {
          out[c] = coefficient("loss", 0);
        } else {
          const std::string& name = g.op_at(o.forward_op).name;
          out[c] = coefficient(name, k) * (o.label == "linear_backward_data" ? sum : in[0][c]);
        }
      }
    }
  }
  return weights;
}

TEST(tape, gradients_of_random_networks_are_sums_over_paths) {
  int accumulated = 0, added = 0, copied = 0, in_place = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const random_tape r(seed);
    const graph g = r.t.finish(2);
    planner::check_graph(g);
    label_rules(g).run();
    expect_reads_are_what_forward_saw(g);
    EXPECT_EQ(run_backward(g), r.expected());
    for (const op& o : g.ops) {
      accumulated += o.kind == op_kind::accumulate;
      added += o.kind == op_kind::add;
      copied += o.kind == op_kind::copy && o.stage == op_stage::backward;
      in_place += o.kind == op_kind::generic && o.stage == op_stage::backward && !o.outputs.empty() &&
                  o.outputs[0] == o.inputs[0];
    }
    if (seed % 10 != 0) continue;
    for (const auto chosen : {planner::policy::none, planner::policy::fp8}) {
      planner::plan_options options;
      options.chosen_policy = chosen;
      EXPECT_THAT(planner::validate(planner::make_plan(g, options)), IsEmpty());
    }
  }
  EXPECT_GT(accumulated, 100);
  EXPECT_GT(added, 10);
  EXPECT_GT(in_place, 100);
  static_cast<void>(copied);
}

// ---- refusals --------------------------------------------------------------------------------------------

TEST(tape, refuses_what_does_not_fit) {
  tape t("t");
  const value x = t.image("input", {3, 4}), words = t.ids("words", 3);
  const weight w = t.parameter("w", {6, 5});
  EXPECT_THAT(refusal([&] {
                t.linear("a", {{x, w}});
              }),
              HasSubstr("'a': expected weights {6, 4}, got {6, 5}"));
  EXPECT_THAT(refusal([&] { t.linear("a", {}); }), HasSubstr("at least one term"));
  EXPECT_THAT(refusal([&] { t.add("a", x, words); }), HasSubstr("one shape"));
  EXPECT_THAT(refusal([&] { t.embedding("a", words, 1, 3, w); }), HasSubstr("ids within 3"));
  EXPECT_THAT(refusal([&] { t.split("a", x, {1, 2}); }), HasSubstr("4 channels in all"));
  EXPECT_THAT(refusal([&] { t.concat("a", {x, words}); }), HasSubstr("last dimension"));
  EXPECT_THAT(refusal([&] { t.reshape(x, {5}); }), HasSubstr("12"));
  EXPECT_THAT(refusal([&] { t.dropout("a", x, 1.0); }), HasSubstr("probability"));
  EXPECT_THAT(refusal([&] { t.max_pool3d("a", x, 2); }), HasSubstr("{D, H, W, C}"));
  EXPECT_THAT(refusal([&] { t.attention_scores("a", x, x, 3); }), HasSubstr("heads"));
  EXPECT_THAT(refusal([&] { t.lstm_cell("a", t.image("gates", {6}), {}); }), HasSubstr("gates {4 n}"));
  EXPECT_THAT(refusal([&] { t.softmax_cross_entropy("a", x, words, 1); }), HasSubstr("labels within 3"));
  EXPECT_THAT(refusal([&] { t.shape(value{99}); }), HasSubstr("number 99"));
  EXPECT_THAT(refusal([&] { t.parameter("p", {0}); }), HasSubstr("positive"));
  EXPECT_THAT(refusal([&] { t.finish(1); }), HasSubstr("a loss"));
}

TEST(tape, a_weight_that_leads_nowhere_is_refused) {
  tape t("t");
  const value x = t.image("input", {1, 4});
  dense(t, "dangling", x, 3);
  end_in_loss(t, x);
  EXPECT_THAT(refusal([&] { t.finish(1); }), HasSubstr("'dangling/weight'"));
}

TEST(tape, parts_of_a_split_need_readers) {
  tape t("t");
  const auto parts = t.split("split", dense(t, "a", t.image("input", {1, 4}), 6), {2, 4});
  end_in_loss(t, parts[1]);
  EXPECT_THAT(refusal([&] { t.finish(1); }), HasSubstr("'split'"));
}

}  // namespace
}  // namespace stash::models
