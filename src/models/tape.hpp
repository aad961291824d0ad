// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Networks that are planned and not run: forward operations are written down one after the other, and
/// finish() derives the training graph of generic ops from them, backward pass and update included.
///
/// Shapes are per sample, slowest dimension first, f32. Functions throw error(invalid_argument) that names
/// the operation where shapes do not fit, and return the value that the operation makes. Needs of the
/// backward pass follow docs/needs.md; docs/models.md lists labels, operands and alternatives.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/tape_record.hpp"
#include "planner/graph/graph.hpp"

namespace stash::models {

/// A trainable parameter; several operations may share one.
struct weight {
  std::int32_t id = -1;
  explicit operator bool() const noexcept { return id >= 0; }
};

/// A forward value.
struct value {
  std::int32_t id = -1;
  explicit operator bool() const noexcept { return id >= 0; }
};

enum class norm_kind : std::uint8_t {
  batch,     ///< per channel over the batch; running statistics
  instance,  ///< per channel and sample
  layer,     ///< per row, over the last dimension
  rms,       ///< the same by the root mean square: no mean, no shift
};

/// What a norm may end with.
enum class activation : std::uint8_t { none, relu, relu6 };

/// How a 2-D convolution goes over its map, the same in both directions.
struct conv2d_window {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;  ///< as many as channels: depthwise
};

struct tape_options {
  /// Density assumed for the output of a ReLU and for maps that are zero only where such a map is.
  double relu_density = 0.5;
};

class tape {
 public:
  using dims = std::vector<std::int64_t>;

  explicit tape(std::string name) : name_(std::move(name)) {}

  // ---- inputs --------------------------------------------------------------------------------------------

  value image(const std::string& name, dims shape);
  /// `count` integers per sample: tokens or labels. Nothing is differentiated with regard to them.
  value ids(const std::string& name, std::int64_t count);
  weight parameter(const std::string& name, dims shape);

  // ---- layers with weights -------------------------------------------------------------------------------

  struct term {
    value x;   ///< {..., in}
    weight w;  ///< {out, in}
  };
  /// The sum of x w^T over the terms, plus bias {out}: one matrix product over the concatenated inputs.
  value linear(const std::string& name, const std::vector<term>& terms, weight bias = {});
  /// x {H, W, in}, w {out, in / groups, k, k}; what is left of a map at its end is dropped. Several terms, in
  /// one group: as conv3d.
  value conv2d(const std::string& name, const std::vector<term>& terms, weight bias = {},
               const conv2d_window& window = {});
  /// x {D, H, W, in}, w {out, in, k, k, k} with odd k; stride 1, padded so that the map keeps its size. The
  /// sum over the terms, plus bias {out}: one convolution of the concatenated inputs, without making them.
  value conv3d(const std::string& name, const std::vector<term>& terms, weight bias = {});
  /// x {H, W, in}, w {in, out, k, k}; stride k.
  value conv_transpose2d(const std::string& name, value x, weight w, weight bias = {});
  /// x {D, H, W, in}, w {in, out, k, k, k}; stride k.
  value conv_transpose3d(const std::string& name, value x, weight w, weight bias = {});
  /// Norm with scale and shift of its own, in one op with what it ends with. The output can be recomputed.
  value norm(const std::string& name, value x, norm_kind kind, activation end = activation::none);
  /// Rows of `table` {vocabulary, width} for ids [first, first + rows): {rows, width}.
  value embedding(const std::string& name, value ids, std::int64_t first, std::int64_t rows, weight table);
  /// x {rows, width} plus the first rows of `table` {most rows, width}.
  value add_positions(const std::string& name, value x, weight table);
  /// `token` {width} as the first row, then x {rows, width}.
  value class_token(const std::string& name, value x, weight token);
  /// Each channel of x times its entry of `factors` {channels}. The output can be recomputed.
  value layer_scale(const std::string& name, value x, weight factors);

  // ---- without weights -----------------------------------------------------------------------------------

  /// Non-overlapping square or cubic windows (stride = kernel); partial ones are dropped.
  value max_pool2d(const std::string& name, value x, std::int64_t window);
  value max_pool3d(const std::string& name, value x, std::int64_t window);
  value mean(const std::string& name, value x);  ///< of each channel of x {..., channels}: {channels}
  value relu(const std::string& name, value x);
  value relu6(const std::string& name, value x);  ///< the output can be recomputed, as those of the next two
  value gelu(const std::string& name, value x);
  value silu(const std::string& name, value x);
  value tanh(const std::string& name, value x);
  value sigmoid(const std::string& name, value x);
  value softmax(const std::string& name, value x);  ///< over the last dimension
  /// The output can be recomputed from the seed. Probability 0 returns x.
  value dropout(const std::string& name, value x, double probability);
  value add(const std::string& name, value a, value b);
  value multiply(const std::string& name, value a, value b);  ///< the output can be recomputed
  /// x {..., channels} times s {channels} at every position. The output can be recomputed.
  value scale(const std::string& name, value x, value s);
  /// Turns pairs of channels of each head of x {rows, width} by angles that only their places decide. The
  /// output can be recomputed.
  value rotary(const std::string& name, value x, std::int64_t heads);
  /// The first row of x {rows, width}.
  value first_row(const std::string& name, value x);

  // ---- views: no operation of their own ------------------------------------------------------------------

  /// Along the last dimension. A value that is written elsewhere already is copied.
  value concat(const std::string& name, const std::vector<value>& parts);
  /// Parts of the last dimension that cover it. Nobody else may read x, and every part needs a reader.
  std::vector<value> split(const std::string& name, value x, const dims& channels);
  value reshape(value x, dims new_shape);

  // ---- attention and recurrence --------------------------------------------------------------------------

  /// q {rows, width} times k {keys, width}, per head: {heads, rows, keys}. With fewer `key_heads` (0: as many
  /// as heads) k has a width of as many heads, and consecutive heads of q share one of k.
  value attention_scores(const std::string& name, value q, value k, std::int64_t heads,
                         std::int64_t key_heads = 0);
  /// p {heads, rows, keys} times v {keys, width}: {rows, width}. `key_heads` as above, of v.
  value attention_context(const std::string& name, value p, value v, std::int64_t key_heads = 0);
  /// v . tanh(keys + query) for each row of keys {rows, n}; query {n}, v {n}: {rows}. The tanh is kept, or
  /// recomputed from keys and query.
  value additive_scores(const std::string& name, value keys, value query, weight v);
  struct lstm_state {
    value h, c;
  };
  /// Everything of an LSTM cell but the matrix product: gates {4 n}; c {n}, or none at the first step.
  lstm_state lstm_cell(const std::string& name, value gates, value c);

  // ---- losses: at least one ------------------------------------------------------------------------------

  /// Mean over rows and batch; logits {rows, classes}, labels [first, first + rows).
  void softmax_cross_entropy(const std::string& name, value logits, value labels, std::int64_t first);
  /// The same of x w^T + bias as one op that makes the logits of `chunk` rows at a time in its workspace, in
  /// the forward pass and again in the backward pass, which makes all three gradients of it.
  void linear_softmax_cross_entropy(const std::string& name, value x, weight w, weight bias, value labels,
                                    std::int64_t first, std::int64_t chunk);

  // --------------------------------------------------------------------------------------------------------

  const dims& shape(value v) const;
  std::int64_t parameter_count() const;

  /// The graph of one training step. In-place operations, concatenation as views, backward in reverse order
  /// with weight gradients before input gradients, momentum for every weight. Throws
  /// error(invalid_argument) if the batch is < 1, there is no loss, or a weight gets no gradient.
  planner::graph finish(std::int64_t batch, const tape_options& options = {}) const;

 private:
  std::int32_t append(tape_record::node n);
  value new_value(dims shape);
  value unary(const std::string& name, const std::string& label, value x, double flops, bool reads_output);
  value max_pool(const std::string& name, const std::string& label, value x, std::int64_t window);
  value conv_transpose(const std::string& name, const std::string& label, value x, weight w, weight bias);
  value matmul(const std::string& name, const std::string& label, value a, value b, dims y, double flops);
  value weighted(const std::string& name, const std::string& label, const std::vector<value>& xs,
                 const std::vector<weight>& ws, weight bias, dims shape, double flops);
  const dims& weight_shape(const std::string& user, weight w) const;
  void expect(bool holds, const std::string& name, const std::string& what) const;

  std::string name_;
  planner::id_vector<tape_record::node_number, tape_record::node> nodes_;
  planner::id_vector<tape_record::value_number, tape_record::value> values_;
  planner::id_vector<tape_record::parameter_number, tape_record::parameter> parameters_;
};

}  // namespace stash::models
