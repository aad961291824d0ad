// SPDX-License-Identifier: Apache-2.0
// Attention: products of two values, additive scores, and rotary positions.

#include "models/tape.hpp"
#include "models/tape_steps.hpp"

namespace stash::models {
namespace {

using planner::need;
using tape_record::backward_step;
using tape_record::cheap;
using tape_record::count;
using tape_record::elements;
using tape_record::elementwise;
using tape_record::node;
using tape_record::of_auxiliary;
using tape_record::of_input;
using tape_record::step;
using tape_record::transcendental;

}  // namespace

// The gradient of b reads a, that of a reads b. The one of b comes first: a is the large one of an attention,
// and dies before its gradient is born.
value tape::matmul(const std::string& name, const std::string& label, value a, value b, dims y,
                   double flops) {
  node n{.name = name, .label = label};
  n.inputs = {a.id, b.id};
  n.flops = flops;
  backward_step right = step(label + "_backward_right", {1}, flops);
  right.suffix = "/backward_right";
  right.forms = {{"from_left", {of_input(0)}}};
  backward_step left = step(label + "_backward_left", {0}, flops);
  left.suffix = "/backward_left";
  left.forms = {{"from_right", {of_input(1)}}};
  n.backward = {std::move(right), std::move(left)};
  const value out = new_value(std::move(y));
  n.outputs = {out.id};
  append(std::move(n));
  return out;
}

value tape::attention_scores(const std::string& name, value q, value k, std::int64_t heads,
                             std::int64_t key_heads) {
  const dims &a = shape(q), &b = shape(k);
  if (key_heads == 0) key_heads = heads;
  expect(a.size() == 2 && b.size() == 2 && heads >= 1 && a[1] % heads == 0, name,
         "{rows, width} and {keys, width}, and heads that divide the width");
  expect(key_heads >= 1 && heads % key_heads == 0 && b[1] == a[1] / heads * key_heads, name,
         "keys with a width of heads that divide those of the queries");
  return matmul(name, "attention_scores", q, k, {heads, a[0], b[0]},
                2 * count(a) * static_cast<double>(b[0]));
}

value tape::attention_context(const std::string& name, value p, value v, std::int64_t key_heads) {
  const dims &a = shape(p), &b = shape(v);
  expect(a.size() == 3 && b.size() == 2 && a[2] == b[0], name, "{heads, rows, keys} and {keys, width}");
  if (key_heads == 0) key_heads = a[0];
  expect(key_heads >= 1 && a[0] % key_heads == 0 && b[1] % key_heads == 0, name,
         "values with a width of heads that divide those of the weights");
  const std::int64_t width = b[1] / key_heads;
  return matmul(name, "attention_context", p, v, {a[1], a[0] * width},
                2 * count(a) * static_cast<double>(width));
}

value tape::additive_scores(const std::string& name, value keys, value query, weight v) {
  const dims k = shape(keys);
  expect(k.size() == 2 && elements(shape(query)) == k[1] && weight_shape(name, v) == dims{k[1]}, name,
         "keys {rows, n}, a query {n} and a weight {n}");
  const double hidden = (transcendental + cheap) * count(k);
  node n{.name = name, .label = "additive_scores"};
  n.inputs = {keys.id, query.id};
  n.parameters = {v.id};
  n.auxiliaries = {{".hidden", k, dtype::f32, 0}};
  n.flops = hidden + 2 * count(k);
  backward_step s = step("additive_scores_backward", {0, 1}, 6 * count(k));
  s.parameters = {0};
  s.trained = {0};
  s.forms = {{"from_hidden", {of_auxiliary(0, need::value)}},
             {"recompute", {of_input(0), of_input(1)}, hidden}};
  n.backward = {std::move(s)};
  const value y = new_value({k[0]});
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::rotary(const std::string& name, value x, std::int64_t heads) {
  const dims& in = shape(x);
  expect(in.size() == 2 && heads >= 1 && in[1] % (2 * heads) == 0, name,
         "{rows, width}, and heads of an even width");
  node n{.name = name, .label = "rotary"};
  n.inputs = {x.id};
  n.flops = 3 * cheap * count(in);
  // Turned back by the same angles.
  n.backward = {elementwise("rotary_backward", n.flops, {})};
  n.overwrites = {{0, 0}};
  n.recomputable = true;
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

}  // namespace stash::models
