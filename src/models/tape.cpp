// SPDX-License-Identifier: Apache-2.0
// Writing operations down: shapes, flops, and what each gradient reads.

#include "models/tape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/tape_steps.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

using planner::need;
using tape_record::backward_step;
using tape_record::cheap;
using tape_record::count;
using tape_record::elements;
using tape_record::elementwise;
using tape_record::form;
using tape_record::lstm_per_unit;
using tape_record::node;
using tape_record::node_kind;
using tape_record::normalise;
using tape_record::of_auxiliary;
using tape_record::of_input;
using tape_record::of_output;
using tape_record::read;
using tape_record::soft_maximum;
using tape_record::step;
using tape_record::transcendental;

}  // namespace

std::int64_t tape_record::elements(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    if (d <= 0) return 0;
    if (n > most_elements / d) {
      throw error(
          errc::invalid_argument,
          fmt::format("tape: expected a side and a number of steps with at most {} elements per value "
                      "and sample, got {}",
                      most_elements, fmt::join(shape, "x")));
    }
    n *= d;
  }
  return n;
}

// ---- bookkeeping -----------------------------------------------------------------------------------------

void tape::expect(bool holds, const std::string& name, const std::string& what) const {
  if (!holds)
    throw error(errc::invalid_argument, fmt::format("tape {}: '{}': expected {}", name_, name, what));
}

const tape::dims& tape::shape(value v) const {
  if (v.id < 0 || static_cast<std::size_t>(v.id) >= values_.size())
    throw error(errc::invalid_argument, fmt::format("tape {}: value: expected one of {}, got number {}",
                                                    name_, values_.size(), v.id));
  return values_[static_cast<std::size_t>(v.id)].shape;
}

const tape::dims& tape::weight_shape(const std::string& user, weight w) const {
  expect(w.id >= 0 && static_cast<std::size_t>(w.id) < parameters_.size(), user, "a parameter of this tape");
  return parameters_[static_cast<std::size_t>(w.id)].shape;
}

std::int64_t tape::parameter_count() const {
  return std::accumulate(
      parameters_.begin(), parameters_.end(), std::int64_t{0},
      [](std::int64_t sum, const tape_record::parameter& p) { return sum + elements(p.shape); });
}

value tape::new_value(dims shape) {
  tape_record::value v;
  v.shape = std::move(shape);
  values_.push_back(std::move(v));
  return {static_cast<std::int32_t>(values_.size()) - 1};
}

std::int32_t tape::append(node n) {
  expect(!n.name.empty(), n.name, "a name");
  for (std::size_t i = 0; i < n.outputs.size(); ++i) {
    tape_record::value& v = values_[static_cast<std::size_t>(n.outputs[i])];
    expect(!v.shape.empty() && *std::min_element(v.shape.begin(), v.shape.end()) >= 1, n.name,
           fmt::format("positive dimensions, got {}", fmt::join(v.shape, "x")));
    v.node = static_cast<std::int32_t>(nodes_.size());
    v.position = static_cast<std::int32_t>(i);
  }
  nodes_.push_back(std::move(n));
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

weight tape::parameter(const std::string& name, dims shape) {
  expect(!shape.empty() && *std::min_element(shape.begin(), shape.end()) >= 1, name, "positive dimensions");
  parameters_.push_back({name, std::move(shape)});
  return {static_cast<std::int32_t>(parameters_.size()) - 1};
}

// ---- inputs ----------------------------------------------------------------------------------------------

value tape::image(const std::string& name, dims shape) {
  const value v = new_value(std::move(shape));
  node n{.name = name, .kind = node_kind::input, .outputs = {v.id}};
  n.role = planner::storage_role::image;
  append(std::move(n));
  return v;
}

value tape::ids(const std::string& name, std::int64_t count) {
  const value v = new_value({count});
  node n{.name = name, .kind = node_kind::input, .outputs = {v.id}};
  n.role = planner::storage_role::label;
  n.type = dtype::s32;
  append(std::move(n));
  return v;
}

// ---- layers with weights ---------------------------------------------------------------------------------

// y = sum of x_i w_i: for each weight a gradient that reads its x, then for each x a gradient that reads
// none.
value tape::weighted(const std::string& name, const std::string& label, const std::vector<value>& xs,
                     const std::vector<weight>& ws, weight bias, dims shape, double flops) {
  const value y = new_value(std::move(shape));
  node n{.name = name, .label = label};
  n.outputs = {y.id};
  n.flops = flops;
  double weights = 0;
  for (const weight w : ws) {
    n.parameters.push_back(w.id);
    weights += count(weight_shape(name, w));
  }
  if (bias) n.parameters.push_back(bias.id);
  for (const value x : xs)
    n.inputs.push_back(x.id);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    backward_step s =
        step(label + "_backward_weights", {}, flops * count(weight_shape(name, ws[i])) / weights);
    s.suffix = xs.size() == 1 ? "/backward_weights" : fmt::format("/backward_weights{}", i);
    s.trained = {i};
    if (i == 0 && bias) s.trained.push_back(ws.size());
    s.forms = {{"from_x", {of_input(i)}}};
    n.backward.push_back(std::move(s));
  }
  for (std::size_t i = 0; i < xs.size(); ++i) {
    backward_step s = step(label + "_backward_data", {i}, flops * count(weight_shape(name, ws[i])) / weights);
    s.suffix = xs.size() == 1 ? "/backward_data" : fmt::format("/backward_data{}", i);
    s.parameters = {i};
    n.backward.push_back(std::move(s));
  }
  append(std::move(n));
  return y;
}

value tape::linear(const std::string& name, const std::vector<term>& terms, weight bias) {
  expect(!terms.empty(), name, "at least one term");
  const std::int64_t out = weight_shape(name, terms[0].w).front();
  dims y = shape(terms[0].x);
  y.back() = out;
  const double rows = count(y) / static_cast<double>(out);
  std::vector<value> xs;
  std::vector<weight> ws;
  double flops = 0;
  for (const term& t : terms) {
    const dims& w = weight_shape(name, t.w);
    const dims& x = shape(t.x);
    expect(w.size() == 2 && w[0] == out && w[1] == x.back() && count(x) == rows * static_cast<double>(w[1]),
           name, fmt::format("weights {{{}, {}}}, got {{{}}}", out, x.back(), fmt::join(w, ", ")));
    xs.push_back(t.x);
    ws.push_back(t.w);
    flops += 2 * rows * count(w);
  }
  if (bias) expect(weight_shape(name, bias) == dims{out}, name, fmt::format("a bias of {}", out));
  return weighted(name, "linear", xs, ws, bias, y, flops);
}

value tape::norm(const std::string& name, value x, norm_kind kind, activation end) {
  const dims& in = shape(x);
  const std::int64_t channels = in.back();
  const char* const labels[] = {"batch_norm", "instance_norm", "layer_norm", "rms_norm"};
  const char* const ends[] = {"", "_relu", "_relu6"};
  const std::string label =
      std::string(labels[static_cast<std::size_t>(kind)]) + ends[static_cast<std::size_t>(end)];
  const double flops = normalise * count(in);
  node n{.name = name, .label = label, .inputs = {x.id}};
  n.parameters = {parameter(name + "/scale", {channels}).id};
  if (kind != norm_kind::rms) n.parameters.push_back(parameter(name + "/shift", {channels}).id);
  std::vector<read> saved;
  if (kind == norm_kind::batch) {
    n.statistics = n.saved_statistics = {{channels}, {channels}};
  } else {
    const std::int64_t rows = kind == norm_kind::instance ? channels : elements(in) / channels;
    n.auxiliaries = {{".statistics", {rows, kind == norm_kind::rms ? 1 : 2}, dtype::f32, 0}};
    saved = {of_auxiliary(0, need::value)};
  }
  const auto with = [&](std::vector<read> reads) {
    reads.insert(reads.end(), saved.begin(), saved.end());
    return reads;
  };
  std::vector<form> forms;
  if (end != activation::none) {
    const need of_y = end == activation::relu6 ? need::range : need::sign;
    forms = {{"from_x_and_y", with({of_input(0), of_output(0, of_y)})},
             {"from_x", with({of_input(0, need::exact_value)}), 2 * count(in)}};
  } else {
    forms = {{"from_x", with({of_input(0)})}};
  }
  backward_step s = elementwise(label + "_backward", 2 * flops, std::move(forms));
  s.parameters = s.trained = {0};
  if (kind != norm_kind::rms) s.parameters = s.trained = {0, 1};
  n.backward = {std::move(s)};
  n.flops = flops;
  n.recomputable = true;
  n.zeroes = end != activation::none;
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::embedding(const std::string& name, value ids, std::int64_t first, std::int64_t rows,
                      weight table) {
  const dims& t = weight_shape(name, table);
  expect(t.size() == 2, name, "a table {vocabulary, width}");
  expect(first >= 0 && rows >= 1 && first + rows <= shape(ids).back(), name,
         fmt::format("ids within {}", shape(ids).back()));
  node n{.name = name, .label = "embedding"};
  n.inputs = {ids.id};
  n.input_slices = {{first, rows}};
  n.parameters = {table.id};
  backward_step s = step("embedding_backward_weights", {}, cheap * static_cast<double>(rows * t[1]));
  s.suffix = "/backward_weights";
  s.trained = {0};
  s.id_inputs = {0};
  n.backward = {std::move(s)};
  n.flops = cheap * static_cast<double>(rows * t[1]);
  const value y = new_value({rows, t[1]});
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::add_positions(const std::string& name, value x, weight table) {
  const dims& in = shape(x);
  const dims& t = weight_shape(name, table);
  expect(in.size() == 2 && t.size() == 2 && in[1] == t[1] && in[0] <= t[0], name,
         "no more rows than the table has, of its width");
  node n{.name = name, .label = "add_positions", .kind = node_kind::sum};
  n.inputs = {x.id};
  n.parameters = {table.id};
  n.overwrites = {{0, 0}};
  backward_step s = step("add_positions_backward_weights", {}, cheap * count(in));
  s.suffix = "/backward_weights";
  s.trained = {0};
  n.backward = {std::move(s)};
  n.flops = cheap * count(in);
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::class_token(const std::string& name, value x, weight token) {
  const dims& in = shape(x);
  expect(in.size() == 2 && weight_shape(name, token) == dims{in[1]}, name,
         "a value {rows, width} and a token {width}");
  const dims out{in[0] + 1, in[1]};
  node n{.name = name, .label = "class_token"};
  n.inputs = {x.id};
  n.parameters = {token.id};
  n.flops = cheap * count(out);
  backward_step s = step("class_token_backward", {0}, cheap * count(out));
  s.trained = {0};
  n.backward = {std::move(s)};
  const value y = new_value(out);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::layer_scale(const std::string& name, value x, weight factors) {
  const dims& in = shape(x);
  expect(weight_shape(name, factors) == dims{in.back()}, name, fmt::format("factors {{{}}}", in.back()));
  node n{.name = name, .label = "layer_scale"};
  n.inputs = {x.id};
  n.parameters = {factors.id};
  n.flops = cheap * count(in);
  // The gradient of the factors reads x, that of x the factors.
  backward_step s = elementwise("layer_scale_backward", 3 * n.flops, {{"from_x", {of_input(0)}}});
  s.parameters = {0};
  s.trained = {0};
  n.backward = {std::move(s)};
  n.recomputable = true;
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

// ---- without weights -------------------------------------------------------------------------------------

value tape::unary(const std::string& name, const std::string& label, value x, double flops,
                  bool reads_output) {
  node n{.name = name, .label = label};
  n.inputs = {x.id};
  n.flops = flops * count(shape(x));
  n.backward = {elementwise(
      label + "_backward", n.flops,
      {reads_output ? form{"from_y", {of_output(0, need::fine_value)}} : form{"from_x", {of_input(0)}}})};
  if (reads_output) n.overwrites = {{0, 0}};
  const value y = new_value(shape(x));
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::relu(const std::string& name, value x) {
  const value y = unary(name, "relu", x, cheap, true);
  node& n = nodes_.back();
  n.backward[0].forms[0].reads[0].what = need::sign;
  n.zeroes = true;
  return y;
}

value tape::relu6(const std::string& name, value x) {
  const value y = relu(name, x);
  node& n = nodes_.back();
  n.label = "relu6";
  n.backward[0].label = "relu6_backward";
  n.backward[0].forms[0].reads[0].what = need::range;
  n.recomputable = true;
  return y;
}

value tape::gelu(const std::string& name, value x) {
  const value y = unary(name, "gelu", x, transcendental, false);
  nodes_.back().recomputable = true;
  return y;
}

value tape::silu(const std::string& name, value x) {
  const value y = unary(name, "silu", x, transcendental, false);
  nodes_.back().recomputable = true;
  return y;
}

value tape::tanh(const std::string& name, value x) {
  return unary(name, "tanh", x, transcendental, true);
}

value tape::sigmoid(const std::string& name, value x) {
  return unary(name, "sigmoid", x, transcendental, true);
}

value tape::softmax(const std::string& name, value x) {
  return unary(name, "softmax", x, soft_maximum, true);
}

value tape::dropout(const std::string& name, value x, double probability) {
  expect(probability >= 0 && probability < 1, name, "a probability from 0 to below 1");
  if (probability == 0) return x;
  const dims& in = shape(x);
  node n{.name = name, .label = "dropout"};
  n.inputs = {x.id};
  n.auxiliaries = {{".mask", in, dtype::u8, 0}};
  n.flops = 2 * cheap * count(in);
  n.backward = {
      elementwise("dropout_backward", n.flops,
                  {{"from_mask", {of_auxiliary(0, need::mask)}}, {"from_seed", {}, 4 * count(in)}})};
  n.overwrites = {{0, 0}};
  n.recomputable = true;
  n.density_factor = 1 - probability;
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::add(const std::string& name, value a, value b) {
  expect(shape(a) == shape(b), name, "two values of one shape");
  node n{.name = name, .label = "add", .kind = node_kind::sum};
  n.inputs = {a.id, b.id};
  n.flops = cheap * count(shape(a));
  n.overwrites = {{0, 0}, {0, 1}};
  const value y = new_value(shape(a));
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::multiply(const std::string& name, value a, value b) {
  expect(shape(a) == shape(b), name, "two values of one shape");
  node n{.name = name, .label = "multiply"};
  n.inputs = {a.id, b.id};
  n.flops = cheap * count(shape(a));
  backward_step s = step("multiply_backward", {0, 1}, 2 * n.flops);
  s.forms = {{"from_a_and_b", {of_input(0), of_input(1)}}};
  n.backward = {std::move(s)};
  n.recomputable = true;
  const value y = new_value(shape(a));
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::scale(const std::string& name, value x, value s) {
  const dims& in = shape(x);
  expect(shape(s) == dims{in.back()}, name, fmt::format("factors {{{}}}", in.back()));
  node n{.name = name, .label = "scale"};
  n.inputs = {x.id, s.id};
  n.flops = cheap * count(in);
  // dx = dy s, and ds is a sum of dy x.
  backward_step b =
      elementwise("scale_backward", 3 * n.flops, {{"from_x_and_s", {of_input(0), of_input(1)}}});
  b.targets = {0, 1};
  n.backward = {std::move(b)};
  n.recomputable = true;
  const value y = new_value(in);
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

value tape::first_row(const std::string& name, value x) {
  const dims& in = shape(x);
  expect(in.size() == 2, name, "a value {rows, width}");
  node n{.name = name, .label = "first_row"};
  n.inputs = {x.id};
  n.flops = cheap * static_cast<double>(in[1]);
  n.backward = {step("first_row_backward", {0}, cheap * count(in))};
  const value y = new_value({1, in[1]});
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

// ---- views -----------------------------------------------------------------------------------------------

value tape::concat(const std::string& name, const std::vector<value>& parts) {
  expect(!parts.empty(), name, "at least one part");
  dims y = shape(parts[0]);
  y.back() = 0;
  node n{.name = name, .kind = node_kind::concat};
  for (const value p : parts) {
    dims in = shape(p);
    y.back() += in.back();
    in.back() = y.back();
    expect(in == y, name, "parts that differ in the last dimension only");
    n.inputs.push_back(p.id);
  }
  const value out = new_value(y);
  n.outputs = {out.id};
  append(std::move(n));
  return out;
}

std::vector<value> tape::split(const std::string& name, value x, const dims& channels) {
  const dims in = shape(x);
  expect(std::accumulate(channels.begin(), channels.end(), std::int64_t{0}) == in.back(), name,
         fmt::format("parts of {} channels in all", in.back()));
  node n{.name = name, .kind = node_kind::split};
  n.inputs = {x.id};
  std::vector<value> parts;
  for (const std::int64_t c : channels) {
    dims part = in;
    part.back() = c;
    parts.push_back(new_value(part));
    n.outputs.push_back(parts.back().id);
  }
  append(std::move(n));
  return parts;
}

value tape::reshape(value x, dims new_shape) {
  expect(elements(new_shape) == elements(shape(x)), "reshape",
         fmt::format("{} elements, got {}", elements(shape(x)), elements(new_shape)));
  const value y = new_value(std::move(new_shape));
  tape_record::value& v = values_[static_cast<std::size_t>(y.id)];
  const tape_record::value& base = values_[static_cast<std::size_t>(x.id)];
  v.alias_of = base.alias_of >= 0 ? base.alias_of : x.id;
  return y;
}

// ---- recurrence ------------------------------------------------------------------------------------------

tape::lstm_state tape::lstm_cell(const std::string& name, value gates, value c) {
  const std::int64_t n4 = elements(shape(gates));
  expect(n4 % 4 == 0 && (!c || elements(shape(c)) == n4 / 4), name, "gates {4 n} and a state {n}");
  const dims unit{n4 / 4};
  node n{.name = name, .label = "lstm_cell"};
  n.inputs = {gates.id};
  if (c) n.inputs.push_back(c.id);
  n.flops = lstm_per_unit * count(unit);
  const value activated = new_value(shape(gates)), next = new_value(unit), h = new_value(unit);
  n.outputs = {activated.id, next.id, h.id};
  n.overwrites = {{0, 0}};
  backward_step s = step("lstm_cell_backward", {0}, n.flops);
  s.forms = {{"from_gates_and_states", {of_output(0), of_output(1)}}};
  if (c) {
    s.targets.push_back(1);
    s.forms[0].reads.push_back(of_input(1));
    s.in_place_target = 1;
    s.in_place_output = 1;
  }
  n.backward = {std::move(s)};
  append(std::move(n));
  return {h, next};
}

// ---- losses ----------------------------------------------------------------------------------------------

void tape::softmax_cross_entropy(const std::string& name, value logits, value labels, std::int64_t first) {
  const dims& x = shape(logits);
  const std::int64_t rows = elements(x) / x.back();
  expect(first >= 0 && first + rows <= shape(labels).back(), name,
         fmt::format("labels within {}", shape(labels).back()));
  node n{.name = name, .label = "softmax_cross_entropy"};
  n.inputs = {logits.id, labels.id};
  n.input_slices = {{}, {first, rows}};
  n.overwrites = {{0, 0}};
  n.flops = soft_maximum * count(x);
  backward_step s = step("softmax_cross_entropy_backward", {0}, 2 * cheap * count(x));
  s.id_inputs = {1};
  s.forms = {{"from_probabilities", {of_output(0, need::exact_value)}}};
  n.backward = {std::move(s)};
  n.loss = true;
  n.classes = x.back();
  const value p = new_value(x);
  n.outputs = {p.id};
  append(std::move(n));
}

void tape::linear_softmax_cross_entropy(const std::string& name, value x, weight w, weight bias, value labels,
                                        std::int64_t first, std::int64_t chunk) {
  const dims& in = shape(x);
  const dims& k = weight_shape(name, w);
  expect(k.size() == 2 && k[1] == in.back(), name, fmt::format("a weight {{classes, {}}}", in.back()));
  if (bias) expect(weight_shape(name, bias) == dims{k[0]}, name, fmt::format("a bias of {}", k[0]));
  const std::int64_t rows = elements(in) / in.back();
  expect(first >= 0 && first + rows <= shape(labels).back(), name,
         fmt::format("labels within {}", shape(labels).back()));
  expect(chunk >= 1, name, fmt::format("a chunk of at least 1, got {}", chunk));
  const double logits = static_cast<double>(rows) * static_cast<double>(k[0]);
  const double matrix = 2 * static_cast<double>(rows) * count(k);
  node n{.name = name, .label = "linear_softmax_cross_entropy"};
  n.inputs = {x.id, labels.id};
  n.input_slices = {{}, {first, rows}};
  n.parameters = {w.id};
  if (bias) n.parameters.push_back(bias.id);
  n.flops = matrix + soft_maximum * logits;
  n.workspace = elements({std::min(chunk, rows), k[0]}) * static_cast<std::int64_t>(sizeof(float));
  backward_step s =
      step("linear_softmax_cross_entropy_backward", {0}, 3 * matrix + (soft_maximum + 2) * logits);
  s.id_inputs = {1};
  s.parameters = s.trained = {0};
  if (bias) s.parameters = s.trained = {0, 1};
  s.forms = {{"from_x", {of_input(0)}}};
  s.workspace = n.workspace;
  n.backward = {std::move(s)};
  n.loss = true;
  n.classes = k[0];
  const value losses = new_value({rows});
  n.outputs = {losses.id};
  append(std::move(n));
}

}  // namespace stash::models
