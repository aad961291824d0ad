// SPDX-License-Identifier: Apache-2.0
// Operations on maps: convolutions and poolings.

#include <fmt/format.h>

#include <algorithm>

#include "models/tape.hpp"
#include "models/tape_steps.hpp"

namespace stash::models {
namespace {

using planner::need;
using tape_record::backward_step;
using tape_record::cheap;
using tape_record::count;
using tape_record::node;
using tape_record::of_auxiliary;
using tape_record::of_input;
using tape_record::step;

}  // namespace

value tape::conv2d(const std::string& name, const std::vector<term>& terms, weight bias,
                   const conv2d_window& window) {
  expect(!terms.empty(), name, "at least one term");
  expect(window.stride >= 1 && window.padding >= 0 && window.groups >= 1, name,
         "a stride and groups of at least 1, and no negative padding");
  const dims& first = shape(terms[0].x);
  const dims& kernel = weight_shape(name, terms[0].w);
  expect(first.size() == 3 && kernel.size() == 4, name, "a map {H, W, C} and a weight {out, C, k, k}");
  const auto windows = [&](std::int64_t side) {
    const std::int64_t rest = side + 2 * window.padding - kernel[2];
    expect(rest >= 0, name, fmt::format("a map of a side of {} or more, padded", kernel[2]));
    return rest / window.stride + 1;
  };
  const dims y{windows(first[0]), windows(first[1]), kernel[0]};
  expect(window.groups == 1 || terms.size() == 1, name, "one term where there are groups");
  expect(y[2] % window.groups == 0, name, "groups that divide the output's channels");
  std::vector<value> xs;
  std::vector<weight> ws;
  double flops = 0;
  for (const term& t : terms) {
    const dims& in = shape(t.x);
    const dims& k = weight_shape(name, t.w);
    expect(in.size() == 3 && in[0] == first[0] && in[1] == first[1] && k.size() == 4 && k[0] == y[2] &&
               k[1] * window.groups == in[2] && k[2] == kernel[2] && k[3] == k[2],
           name, "maps {H, W, C} of one size and weights {out, C / groups, k, k}");
    xs.push_back(t.x);
    ws.push_back(t.w);
    flops += 2 * count(y) * count(k) / static_cast<double>(k[0]);
  }
  if (bias) expect(weight_shape(name, bias) == dims{y[2]}, name, fmt::format("a bias of {}", y[2]));
  return weighted(name, "conv2d", xs, ws, bias, y, flops);
}

value tape::conv3d(const std::string& name, const std::vector<term>& terms, weight bias) {
  expect(!terms.empty(), name, "at least one term");
  dims y = shape(terms[0].x);
  expect(y.size() == 4, name, "a map {D, H, W, C}");
  y.back() = weight_shape(name, terms[0].w).front();
  std::vector<value> xs;
  std::vector<weight> ws;
  double flops = 0;
  for (const term& t : terms) {
    const dims& in = shape(t.x);
    const dims& k = weight_shape(name, t.w);
    expect(in.size() == 4 && std::equal(in.begin(), in.end() - 1, y.begin()) && k.size() == 5 &&
               k[0] == y[3] && k[1] == in[3] && k[2] == k[3] && k[3] == k[4] && k[2] % 2 == 1,
           name, "maps {D, H, W, C} and weights {out, C, k, k, k} with odd k");
    xs.push_back(t.x);
    ws.push_back(t.w);
    flops += 2 * count(y) * count(k) / static_cast<double>(k[0]);
  }
  if (bias) expect(weight_shape(name, bias) == dims{y[3]}, name, fmt::format("a bias of {}", y[3]));
  return weighted(name, "conv3d", xs, ws, bias, y, flops);
}

value tape::conv_transpose(const std::string& name, const std::string& label, value x, weight w,
                           weight bias) {
  const dims& in = shape(x);
  const dims& k = weight_shape(name, w);
  const bool cubes = label == "conv_transpose3d";
  expect(in.size() == (cubes ? 4 : 3) && k.size() == in.size() + 1 && k[0] == in.back() &&
             std::equal(k.begin() + 3, k.end(), k.begin() + 2),
         name,
         cubes ? "a map {D, H, W, C} and a weight {C, out, k, k, k}"
               : "a map {H, W, C} and a weight {C, out, k, k}");
  if (bias) expect(weight_shape(name, bias) == dims{k[1]}, name, fmt::format("a bias of {}", k[1]));
  dims y = in;
  for (std::int64_t& side : y)
    side *= k[2];
  y.back() = k[1];
  return weighted(name, label, {x}, {w}, bias, y, 2 * count(in) * count(k) / static_cast<double>(k[0]));
}

value tape::conv_transpose2d(const std::string& name, value x, weight w, weight bias) {
  return conv_transpose(name, "conv_transpose2d", x, w, bias);
}

value tape::conv_transpose3d(const std::string& name, value x, weight w, weight bias) {
  return conv_transpose(name, "conv_transpose3d", x, w, bias);
}

value tape::max_pool(const std::string& name, const std::string& label, value x, std::int64_t window) {
  const dims& in = shape(x);
  dims y = in;
  std::int64_t taps = 1;
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    y[i] /= window;
    taps *= window;
  }
  node n{.name = name, .label = label};
  n.inputs = {x.id};
  n.auxiliaries = {{".index", y, dtype::u8, static_cast<std::int32_t>(taps)}};
  // The first is what TensorFlow does.
  backward_step s = step(label + "_backward", {0}, cheap * count(in));
  s.forms = {{"from_x", {of_input(0, need::exact_value)}, count(in)},
             {"from_index", {of_auxiliary(0, need::window)}}};
  n.backward = {std::move(s)};
  n.flops = cheap * count(in);
  n.pools = true;
  const value out = new_value(y);
  n.outputs = {out.id};
  append(std::move(n));
  return out;
}

// An index has one byte.
value tape::max_pool2d(const std::string& name, value x, std::int64_t window) {
  expect(shape(x).size() == 3 && window >= 1 && window <= 15, name,
         "a map {H, W, C} and a window of 1 to 15");
  return max_pool(name, "max_pool2d", x, window);
}

value tape::max_pool3d(const std::string& name, value x, std::int64_t window) {
  expect(shape(x).size() == 4 && window >= 1 && window <= 6, name,
         "a map {D, H, W, C} and a window of 1 to 6");
  return max_pool(name, "max_pool3d", x, window);
}

value tape::mean(const std::string& name, value x) {
  const dims& in = shape(x);
  node n{.name = name, .label = "mean"};
  n.inputs = {x.id};
  n.flops = cheap * count(in);
  n.backward = {step("mean_backward", {0}, cheap * count(in))};
  const value y = new_value({in.back()});
  n.outputs = {y.id};
  append(std::move(n));
  return y;
}

}  // namespace stash::models
