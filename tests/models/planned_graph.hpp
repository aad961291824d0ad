// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a graph of generic ops must satisfy, said again from the labels of its ops: shapes of operands, and
/// what each gradient reads. Knows nothing of the builder.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::models::testing {

using planner::graph;
using planner::op;
using planner::tensor_ref;
using dims = std::vector<std::int64_t>;

inline dims shape_of(const graph& g, const tensor_ref& r) {
  dims d = g.at(r.storage).shape;
  if (!r.whole()) d.back() = r.channels;
  return d;
}

inline std::int64_t product(const dims& d) {
  std::int64_t n = 1;
  for (const std::int64_t x : d)
    n *= x;
  return n;
}

inline std::int64_t elements(const graph& g, const tensor_ref& r) {
  return product(shape_of(g, r));
}

/// Checks each generic op of a graph against the rule of its label; counts the labels.
class label_rules {
 public:
  /// `shared_keys`: heads of queries for each head of keys.
  explicit label_rules(const graph& g, std::int64_t shared_keys = 1) : g_(g), shared_keys_(shared_keys) {}

  std::map<std::string, int> run() {
    for (const op& o : g_.ops) {
      if (o.kind != planner::op_kind::generic) continue;
      SCOPED_TRACE(o.name);
      o_ = &o;
      ++seen_[o.label];
      EXPECT_GT(o.flops, 0) << o.label;
      check();
    }
    return seen_;
  }

 private:
  std::int64_t in(std::size_t i) const { return elements(g_, o_->inputs.at(i)); }
  std::int64_t out(std::size_t i) const { return elements(g_, o_->outputs.at(i)); }
  const dims& parameter(std::size_t i) const { return g_.at(o_->parameters.at(i)).shape; }
  const dims& written(std::size_t i) const { return g_.at(o_->parameters_written.at(i)).shape; }
  const tensor_ref& read(std::size_t i = 0) const { return o_->alternatives.at(0).reads.at(i).slice; }
  const op& forward() const { return g_.op_at(o_->forward_op); }
  double batch() const { return static_cast<double>(g_.batch); }

  void same(std::int64_t got, std::int64_t expected, const char* what) const {
    EXPECT_EQ(got, expected) << o_->label << ": " << what;
  }

  void check() {
    const std::string& l = o_->label;
    const auto ends = [&](const char* s) { return l.ends_with(s); };
    if (l == "linear") return linear();
    if (l == "linear_backward_weights")
      return same(in(0) / written(0)[0], elements(g_, read()) / written(0)[1], "rows");
    if (l == "linear_backward_data") return same(in(0) / parameter(0)[0], out(0) / parameter(0)[1], "rows");
    if (l == "conv2d") return windows();
    if (l == "conv2d_backward_weights") return window(read(), o_->inputs[0], written(0), o_->flops);
    if (l == "conv2d_backward_data") return window(o_->outputs[0], o_->inputs[0], parameter(0), o_->flops);
    if (l == "conv3d") return convolutions();
    if (l == "conv3d_backward_weights") return convolution(read(), o_->inputs[0], written(0), 1, false);
    if (l == "conv3d_backward_data")
      return convolution(o_->outputs[0], o_->inputs[0], parameter(0), 1, false);
    if (l == "conv_transpose2d" || l == "conv_transpose3d")
      return convolution(o_->inputs[0], o_->outputs[0], parameter(0), parameter(0)[2], true);
    if (l == "conv_transpose2d_backward_weights" || l == "conv_transpose3d_backward_weights")
      return convolution(read(), o_->inputs[0], written(0), written(0)[2], true);
    if (l == "conv_transpose2d_backward_data" || l == "conv_transpose3d_backward_data")
      return convolution(o_->outputs[0], o_->inputs[0], parameter(0), parameter(0)[2], true);
    if (l.find("_norm") != std::string::npos) return norm();
    if (l == "embedding") return same(in(0) * parameter(0)[1], out(0), "rows of the table");
    if (l == "embedding_backward_weights") return same(in(1) * written(0)[1], in(0), "rows of the table");
    if (l == "add_positions") {
      EXPECT_LE(in(0), product(parameter(0)));
      return same(out(0), in(0), "output");
    }
    if (l == "add_positions_backward_weights") {
      EXPECT_LE(in(0), product(written(0)));
      return;
    }
    if (l == "max_pool2d" || l == "max_pool3d") return pool(o_->inputs[0], o_->outputs[0], *o_);
    if (l == "max_pool2d_backward" || l == "max_pool3d_backward")
      return pool(o_->outputs[0], o_->inputs[0], forward());
    if (l == "mean") return same(out(0), channels(o_->inputs[0]), "channels");
    if (l == "mean_backward") return same(in(0), channels(o_->outputs[0]), "channels");
    if (l == "scale" || l == "scale_backward" || l == "layer_scale" || l == "layer_scale_backward")
      return scales();
    if (l == "class_token") return same(out(0), in(0) + product(parameter(0)), "a row more");
    if (l == "class_token_backward") return same(in(0), out(0) + product(written(0)), "a row more");
    if (l == "first_row") return same(out(0), shape_of(g_, o_->inputs[0]).back(), "a row");
    if (l == "first_row_backward") return same(in(0), shape_of(g_, o_->outputs[0]).back(), "a row");
    if (l == "attention_scores") return scores(*o_);
    if (l == "attention_context") return context(*o_);
    if (ends("_backward_right")) return same(out(0), elements(g_, forward().inputs[1]), "right");
    if (ends("_backward_left")) return same(out(0), elements(g_, forward().inputs[0]), "left");
    if (l == "additive_scores" || l == "additive_scores_backward") return additive();
    if (l == "lstm_cell" || l == "lstm_cell_backward") return lstm();
    if (ends("softmax_cross_entropy") || ends("softmax_cross_entropy_backward")) return loss();
    elementwise();
  }

  void linear() const {
    std::int64_t rows = 0;
    double flops = 0;
    for (std::size_t i = 0; i < o_->inputs.size(); ++i) {
      const dims& w = parameter(i);
      ASSERT_EQ(w.size(), 2U);
      if (i == 0) rows = in(0) / w[1];
      same(in(i), rows * w[1], "columns");
      same(out(0), rows * w[0], "outputs");
      flops += 2.0 * static_cast<double>(rows * w[0] * w[1]) * batch();
    }
    EXPECT_DOUBLE_EQ(o_->flops, flops);
    if (o_->parameters.size() > o_->inputs.size())
      same(product(parameter(o_->inputs.size())), parameter(0)[0], "bias");
  }

  std::int64_t channels(const tensor_ref& r) const { return shape_of(g_, r).back(); }

  void windows() const {
    double flops = 0;
    for (std::size_t i = 0; i < o_->inputs.size(); ++i) {
      const dims y = shape_of(g_, o_->outputs[0]), &w = parameter(i);
      flops += 2.0 * static_cast<double>(product(y) * w[1] * w[2] * w[3]) * batch();
    }
    for (std::size_t i = 0; i < o_->inputs.size(); ++i)
      window(o_->inputs[i], o_->outputs[0], parameter(i), flops * share(i));
    EXPECT_DOUBLE_EQ(o_->flops, flops);
  }

  // Of the weights.
  double share(std::size_t term) const {
    double all = 0;
    for (std::size_t i = 0; i < o_->inputs.size(); ++i)
      all += static_cast<double>(product(parameter(i)));
    return static_cast<double>(product(parameter(term))) / all;
  }

  // w {out, in / groups, k, k}; some stride and padding lead from x to y.
  void window(const tensor_ref& xr, const tensor_ref& yr, const dims& w, double flops) const {
    const dims x = shape_of(g_, xr), y = shape_of(g_, yr);
    ASSERT_EQ(w.size(), 4U);
    ASSERT_EQ(x.size(), 3U);
    ASSERT_EQ(y.size(), 3U);
    same(w[2], w[3], "square kernel");
    same(y[2], w[0], "outputs");
    same(x[2] % w[1], 0, "groups");
    same(w[0] % (x[2] / w[1]), 0, "groups");
    bool reached = false;
    for (std::int64_t stride = 1; stride <= w[2] + 1; ++stride) {
      for (std::int64_t padding = 0; padding < w[2]; ++padding) {
        const auto from = [&](std::int64_t side) { return (side + 2 * padding - w[2]) / stride + 1; };
        reached = reached || (from(x[0]) == y[0] && from(x[1]) == y[1]);
      }
    }
    EXPECT_TRUE(reached) << o_->label << ": " << x[0] << " to " << y[0];
    EXPECT_DOUBLE_EQ(flops, 2.0 * static_cast<double>(product(y) * w[1] * w[2] * w[3]) * batch());
  }

  // Both have the factors, as an input or as a parameter, and x.
  void scales() const {
    same(out(0), in(0), "output");
    const bool learned = o_->label.starts_with("layer_scale");
    const std::int64_t factors = channels(o_->inputs[0]);
    if (learned) same(product(parameter(0)), factors, "factors");
    if (!learned && o_->stage == planner::op_stage::forward) same(in(1), factors, "factors");
    if (o_->stage == planner::op_stage::forward) return;
    same(elements(g_, read()), in(0), "x");
    if (learned) return same(product(written(0)), factors, "gradient of the factors");
    same(elements(g_, read(1)), factors, "factors");
    same(out(1), factors, "gradient of the factors");
  }

  // One convolution of all inputs next to each other.
  void convolutions() const {
    const dims y = shape_of(g_, o_->outputs[0]);
    double flops = 0;
    for (std::size_t i = 0; i < o_->inputs.size(); ++i) {
      const dims x = shape_of(g_, o_->inputs[i]), &w = parameter(i);
      ASSERT_EQ(w.size(), 5U);
      EXPECT_EQ(y, (dims{x[0], x[1], x[2], w[0]}));
      same(x[3], w[1], "channels");
      flops += 2.0 * static_cast<double>(product(y) * w[1] * w[2] * w[3] * w[4]) * batch();
    }
    EXPECT_DOUBLE_EQ(o_->flops, flops);
  }

  // w {out, in, k, k[, k]}, for the transposed one {in, out, k, k[, k]}; y is `scale` times as large.
  void convolution(const tensor_ref& xr, const tensor_ref& yr, const dims& w, std::int64_t scale,
                   bool transposed) const {
    const dims x = shape_of(g_, xr), y = shape_of(g_, yr);
    ASSERT_EQ(w.size(), o_->label.find("3d") != std::string::npos ? 5U : 4U);
    ASSERT_EQ(x.size(), w.size() - 1);
    dims expected = x;
    for (std::int64_t& side : expected)
      side *= scale;
    expected.back() = transposed ? w[1] : w[0];
    EXPECT_EQ(y, expected);
    same(x.back(), transposed ? w[0] : w[1], "channels");
    std::int64_t taps = transposed ? product(x) * w[1] : product(y) * w[1];
    for (std::size_t i = 2; i < w.size(); ++i)
      taps *= w[i];
    EXPECT_DOUBLE_EQ(o_->flops, 2.0 * static_cast<double>(taps) * batch());
  }

  void norm() const {
    same(out(0), in(0), "output");
    const std::int64_t channels = shape_of(g_, o_->inputs[0]).back();
    for (const planner::storage_id p : o_->parameters)
      same(product(g_.at(p).shape), channels, "parameter");
    for (const planner::storage_id p : o_->parameters_written)
      same(product(g_.at(p).shape), channels, "parameter");
    if (o_->label == "layer_norm")
      same(product(g_.at(o_->optional_outputs.at(0)).shape), 2 * in(0) / channels, "statistics");
    if (o_->label == "rms_norm") {
      same(product(g_.at(o_->optional_outputs.at(0)).shape), in(0) / channels, "statistics");
      same(static_cast<std::int64_t>(o_->parameters.size()), 1, "no shift");
    }
    if (o_->label == "instance_norm")
      same(product(g_.at(o_->optional_outputs.at(0)).shape), 2 * channels, "statistics");
  }

  void pool(const tensor_ref& xr, const tensor_ref& yr, const op& f) const {
    const dims x = shape_of(g_, xr), y = shape_of(g_, yr);
    const planner::storage& codes = g_.at(f.optional_outputs.at(0));
    EXPECT_EQ(codes.shape, y);
    const bool cubes = o_->label.find("3d") != std::string::npos;
    ASSERT_EQ(x.size(), cubes ? 4U : 3U);
    std::int64_t window = 1;
    while ((cubes ? window : 1) * window * window < codes.window_taps)
      ++window;
    same((cubes ? window : 1) * window * window, codes.window_taps, "taps");
    dims expected = x;
    for (std::size_t i = 0; i + 1 < x.size(); ++i)
      expected[i] /= window;
    EXPECT_EQ(y, expected);
  }

  void scores(const op& f) const {
    const dims y = shape_of(g_, f.outputs[0]);
    ASSERT_EQ(y.size(), 3U);
    same(in(0) * y[2], shared_keys_ * in(1) * y[1], "width");
    same(in(0) / y[1] % y[0], 0, "heads");
    same(y[0] % shared_keys_, 0, "heads of keys");
    EXPECT_DOUBLE_EQ(f.flops, 2.0 * static_cast<double>(in(0) * y[2]) * batch());
  }

  void context(const op& f) const {
    // Weights may be stored flat: {heads, rows, keys} times {keys, width} gives {rows, width}.
    const std::int64_t p = in(0), v = in(1), y = out(0);
    const dims d = g_.at(f.inputs[0].storage).shape;
    const std::int64_t heads = d.size() == 3 ? d[0] : 1;
    const std::int64_t keys = d.back(), rows = p / heads / keys;
    same(shared_keys_ * v / keys, y / rows, "width");
    EXPECT_DOUBLE_EQ(f.flops, 2.0 * static_cast<double>(rows * shared_keys_ * v) * batch());
  }

  void additive() const {
    const op& f = o_->stage == planner::op_stage::forward ? *o_ : forward();
    const std::int64_t n = elements(g_, f.inputs[1]), keys = elements(g_, f.inputs[0]);
    same(product(g_.at(f.parameters.at(0)).shape), n, "v");
    same(elements(g_, f.outputs[0]), keys / n, "scores");
    same(product(g_.at(f.optional_outputs.at(0)).shape), keys, "hidden");
    if (&f == o_) return;
    same(in(0), keys / n, "scores");
    same(out(0), keys, "keys");
    same(out(1), n, "query");
  }

  void lstm() const {
    const op& f = o_->stage == planner::op_stage::forward ? *o_ : forward();
    const std::int64_t n = elements(g_, f.outputs.at(2));
    same(elements(g_, f.inputs[0]), 4 * n, "gates");
    same(elements(g_, f.outputs[0]), 4 * n, "gates");
    same(elements(g_, f.outputs[1]), n, "state");
    if (f.inputs.size() > 1) same(elements(g_, f.inputs[1]), n, "state");
    if (&f == o_) return;
    same(out(0), 4 * n, "gates");
    same(static_cast<std::int64_t>(o_->outputs.size()), static_cast<std::int64_t>(f.inputs.size()),
         "operands");
    for (const tensor_ref& r : o_->inputs)
      same(elements(g_, r), n, "gradients");
  }

  void loss() const {
    if (o_->label == "softmax_cross_entropy")
      return same(in(0) % in(1), 0, "rows of logits"), same(out(0), in(0), "probabilities");
    if (o_->label == "softmax_cross_entropy_backward") return same(out(0), elements(g_, read()), "logits");
    const op& f = o_->stage == planner::op_stage::forward ? *o_ : forward();
    same(elements(g_, f.inputs[0]), elements(g_, f.inputs[1]) * g_.at(f.parameters[0]).shape[1], "x");
    if (&f != o_) same(out(0), elements(g_, f.inputs[0]), "dx");
    EXPECT_EQ(o_->workspace_bytes % (g_.at(f.parameters[0]).shape[0] * 4 * g_.batch), 0);
    EXPECT_GT(o_->workspace_bytes, 0);
  }

  void elementwise() const {
    static const char* const labels[] = {"relu",    "relu6",   "gelu", "silu",     "tanh",  "sigmoid",
                                         "softmax", "dropout", "add",  "multiply", "rotary"};
    const bool known = std::any_of(std::begin(labels), std::end(labels), [&](const std::string& l) {
      return o_->label == l || o_->label == l + "_backward";
    });
    EXPECT_TRUE(known) << "no rule for " << o_->label;
    for (const tensor_ref& r : o_->inputs)
      same(elements(g_, r), in(0), "inputs");
    for (const tensor_ref& r : o_->outputs)
      same(elements(g_, r), in(0), "outputs");
    for (const planner::stash_alternative& a : o_->alternatives) {
      for (const planner::stash_read& r : a.reads)
        same(elements(g_, r.slice), in(0), "reads");
    }
  }

  const graph& g_;
  std::int64_t shared_keys_;
  const op* o_ = nullptr;
  std::map<std::string, int> seen_;
};

/// Every read names an operand of the forward op that nobody has overwritten since.
inline void expect_reads_are_what_forward_saw(const graph& g) {
  using writers = std::vector<planner::op_id>;  // of each channel
  planner::id_vector<planner::storage_id, writers> now;
  for (const planner::storage& s : g.storages)
    now.emplace_back(static_cast<std::size_t>(s.shape.back()), planner::op_id());
  const auto seen_at = [&](const tensor_ref& r) {
    const writers& w = now[r.storage];
    const auto first = w.begin() + (r.whole() ? 0 : r.channel_begin);
    return writers(first, r.whole() ? w.end() : first + r.channels);
  };
  std::map<planner::op_id, std::vector<std::pair<tensor_ref, writers>>> inputs;
  for (const planner::op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    const auto id = planner::op_id(i);
    if (o.stage != planner::op_stage::forward) break;
    for (const tensor_ref& r : o.inputs)
      inputs[id].emplace_back(r, seen_at(r));
    for (const tensor_ref& r : o.outputs) {
      writers& w = now[r.storage];
      const auto first = w.begin() + (r.whole() ? 0 : r.channel_begin);
      std::fill(first, r.whole() ? w.end() : first + r.channels, id);
    }
  }
  for (const op& o : g.ops) {
    for (const planner::stash_alternative& a : o.alternatives) {
      for (const planner::stash_read& r : a.reads) {
        SCOPED_TRACE(o.name + " " + a.form + " " + g.at(r.storage).name);
        const op& f = g.op_at(o.forward_op);
        if (g.at(r.storage).role == planner::storage_role::auxiliary) {
          EXPECT_EQ(std::count(f.optional_outputs.begin(), f.optional_outputs.end(), r.storage), 1);
          continue;
        }
        const writers last = seen_at(r.slice);
        const bool output = std::find(f.outputs.begin(), f.outputs.end(), r.slice) != f.outputs.end() &&
                            last == writers(last.size(), o.forward_op);
        const auto& before = inputs[o.forward_op];
        const bool input = std::any_of(before.begin(), before.end(),
                                       [&](const auto& x) { return x.first == r.slice && x.second == last; });
        EXPECT_TRUE(output || input);
      }
    }
  }
}

}  // namespace stash::models::testing
