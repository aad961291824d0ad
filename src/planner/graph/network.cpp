// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

// Far above every real layer, and small enough that bytes of a whole batch stay within 64 bits.
constexpr std::int64_t max_elements = std::int64_t{1} << 40;
constexpr std::size_t max_nodes = std::numeric_limits<std::int32_t>::max();

using extents = std::vector<std::int64_t>;

// Says which node is wrong, so that an error deep inside a model builder can be found.
class checker {
 public:
  checker(std::string_view function, const std::string& node) : function_(function), node_(node) {}

  template <class Value>
  void expect(bool holds, std::string_view argument, std::string_view expected, const Value& got) const {
    if (holds) return;
    throw error(errc::invalid_argument, fmt::format("network::{}: node '{}': {}: expected {}, got {}",
                                                    function_, node_, argument, expected, got));
  }

  void expect_map(const node& x) const {
    expect(x.shape.size() == 3, "x", "a map of shape [height, width, channels]",
           fmt::format("[{}] from '{}'", fmt::join(x.shape, ", "), x.name));
  }

  void expect_size(std::string_view argument, const extents& dims) const {
    std::int64_t product = 1;
    for (const std::int64_t d : dims) {
      expect(d >= 1 && d <= max_elements / product, argument,
             fmt::format("positive extents of at most {} elements together", max_elements),
             fmt::format("[{}]", fmt::join(dims, ", ")));
      product *= d;
    }
  }

 private:
  std::string_view function_;
  const std::string& node_;
};

std::int64_t features_of(const extents& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape)
    n *= d;
  return n;
}

void check_windows(const checker& check, const op_attributes& a, const node& x) {
  check.expect(a.kernel_h >= 1 && a.kernel_w >= 1, "kernel", "at least 1x1",
               fmt::format("{}x{}", a.kernel_h, a.kernel_w));
  check.expect(a.stride_h >= 1 && a.stride_w >= 1, "stride", "at least 1x1",
               fmt::format("{}x{}", a.stride_h, a.stride_w));
  check.expect(a.pad_top >= 0 && a.pad_left >= 0, "padding", "0 or more",
               fmt::format("{}x{}", a.pad_top, a.pad_left));
  const std::int64_t padded_h = x.shape[0] + a.pad_top + a.pad_bottom;
  const std::int64_t padded_w = x.shape[1] + a.pad_left + a.pad_right;
  check.expect(a.kernel_h <= padded_h && a.kernel_w <= padded_w, "kernel",
               fmt::format("at most the padded input {}x{} of '{}'", padded_h, padded_w, x.name),
               fmt::format("{}x{}", a.kernel_h, a.kernel_w));
}

extents window_grid(const op_attributes& a, const node& x) {
  return {window_count(x.shape[0], a.kernel_h, a.stride_h, a.pad_top, a.pad_bottom, a.ceil_mode),
          window_count(x.shape[1], a.kernel_w, a.stride_w, a.pad_left, a.pad_right, a.ceil_mode)};
}

node make_pool(std::string_view function, const std::string& name, node_kind kind, node_id id, const node& x,
               std::int32_t kernel, std::int32_t stride, std::int32_t padding, bool ceil_mode) {
  const checker check(function, name);
  check.expect_map(x);
  op_attributes a;
  a.kernel_h = a.kernel_w = kernel;
  a.stride_h = a.stride_w = stride;
  a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = padding;
  a.ceil_mode = ceil_mode;
  check_windows(check, a, x);
  // A window of nothing but padding would have no maximum and no mean.
  check.expect(padding < kernel, "padding", fmt::format("less than the kernel {}", kernel), padding);
  extents shape = window_grid(a, x);
  shape.push_back(x.shape[2]);
  return {name, kind, {id}, a, std::move(shape)};
}

}  // namespace

std::int64_t window_count(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                          std::int64_t pad_begin, std::int64_t pad_end, bool ceil_mode) noexcept {
  const std::int64_t span = extent + pad_begin + pad_end - kernel;
  if (span < 0) return 0;
  std::int64_t count = span / stride + 1;
  if (ceil_mode && span % stride != 0 && count * stride < extent + pad_begin) ++count;
  return count;
}

const node& network::operand(const std::string& user, node_id id) const {
  if (!nodes_.contains(id)) {
    throw error(
        errc::invalid_argument,
        fmt::format("network '{}': node '{}': input: expected the id of one of the {} nodes so far, got {}",
                    name_, user, nodes_.size(), id.number()));
  }
  return nodes_[id];
}

node_id network::append(node n) {
  const checker check("append", n.name);
  check.expect(!n.name.empty(), "name", "a name", "an empty one");
  check.expect(
      std::none_of(nodes_.begin(), nodes_.end(), [&](const node& other) { return other.name == n.name; }),
      "name", fmt::format("a name that is unique in network '{}'", name_), "one that is taken");
  if (!nodes_.empty()) {
    check.expect(nodes_.back().kind != node_kind::softmax_cross_entropy, "position", "no node after the loss",
                 fmt::format("one after '{}'", nodes_.back().name));
  }
  check.expect(nodes_.size() < max_nodes, "position", fmt::format("at most {} nodes", max_nodes), "one more");
  check.expect_size("output shape", n.shape);
  nodes_.push_back(std::move(n));
  return node_id(nodes_.size() - 1);
}

node_id network::input(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return append({"input", node_kind::input, {}, {}, {height, width, channels}});
}

node_id network::conv2d(const std::string& name, node_id x, std::int64_t out_channels,
                        std::array<std::int32_t, 2> kernel, std::array<std::int32_t, 2> stride,
                        std::array<std::int32_t, 2> padding, bool bias, std::int32_t groups) {
  const node& source = operand(name, x);
  const checker check("conv2d", name);
  check.expect_map(source);
  op_attributes a;
  a.kernel_h = kernel[0];
  a.kernel_w = kernel[1];
  a.stride_h = stride[0];
  a.stride_w = stride[1];
  a.pad_top = a.pad_bottom = padding[0];
  a.pad_left = a.pad_right = padding[1];
  a.groups = groups;
  a.out_features = out_channels;
  a.bias = bias;
  check_windows(check, a, source);
  check.expect(out_channels >= 1, "out_channels", "at least 1", out_channels);
  const std::int64_t in_channels = source.shape[2];
  check.expect(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0, "groups",
               fmt::format("a divisor of {} input and {} output channels", in_channels, out_channels),
               groups);
  check.expect_size("weight", {a.kernel_h, a.kernel_w, in_channels / groups, out_channels});
  extents shape = window_grid(a, source);
  shape.push_back(out_channels);
  return append({name, node_kind::conv2d, {x}, a, std::move(shape)});
}

node_id network::dense(const std::string& name, node_id x, std::int64_t outputs) {
  const node& source = operand(name, x);
  const checker check("dense", name);
  check.expect(outputs >= 1, "outputs", "at least 1", outputs);
  check.expect_size("weight", {features_of(source.shape), outputs});
  op_attributes a;
  a.out_features = outputs;
  return append({name, node_kind::dense, {x}, a, {outputs}});
}

node_id network::relu(const std::string& name, node_id x) {
  return append({name, node_kind::relu, {x}, {}, operand(name, x).shape});
}

node_id network::leaky_relu(const std::string& name, node_id x, float negative_slope) {
  checker("leaky_relu", name)
      .expect(std::isfinite(negative_slope), "negative_slope", "a finite number", negative_slope);
  op_attributes a;
  a.negative_slope = negative_slope;
  return append({name, node_kind::leaky_relu, {x}, a, operand(name, x).shape});
}

node_id network::relu6(const std::string& name, node_id x) {
  return append({name, node_kind::relu6, {x}, {}, operand(name, x).shape});
}

node_id network::max_pool(const std::string& name, node_id x, std::int32_t kernel, std::int32_t stride,
                          std::int32_t padding, bool ceil_mode) {
  return append(make_pool("max_pool", name, node_kind::max_pool, x, operand(name, x), kernel, stride, padding,
                          ceil_mode));
}

node_id network::avg_pool(const std::string& name, node_id x, std::int32_t kernel, std::int32_t stride,
                          std::int32_t padding, bool ceil_mode) {
  return append(make_pool("avg_pool", name, node_kind::avg_pool, x, operand(name, x), kernel, stride, padding,
                          ceil_mode));
}

node_id network::global_avg_pool(const std::string& name, node_id x) {
  const node& source = operand(name, x);
  checker("global_avg_pool", name).expect_map(source);
  return append({name, node_kind::global_avg_pool, {x}, {}, {1, 1, source.shape[2]}});
}

node_id network::batch_norm(const std::string& name, node_id x, float epsilon, float statistics_momentum) {
  const checker check("batch_norm", name);
  check.expect(epsilon > 0.0F && std::isfinite(epsilon), "epsilon", "a positive finite number", epsilon);
  check.expect(statistics_momentum >= 0.0F && statistics_momentum <= 1.0F, "statistics_momentum",
               "a number from 0 to 1", statistics_momentum);
  op_attributes a;
  a.epsilon = epsilon;
  a.statistics_momentum = statistics_momentum;
  return append({name, node_kind::batch_norm, {x}, a, operand(name, x).shape});
}

node_id network::add(const std::string& name, node_id a, node_id b) {
  const node& left = operand(name, a);
  const node& right = operand(name, b);
  checker("add", name)
      .expect(left.shape == right.shape, "b",
              fmt::format("the shape [{}] of '{}'", fmt::join(left.shape, ", "), left.name),
              fmt::format("[{}] from '{}'", fmt::join(right.shape, ", "), right.name));
  return append({name, node_kind::add, {a, b}, {}, left.shape});
}

node_id network::concat(const std::string& name, const std::vector<node_id>& inputs) {
  const checker check("concat", name);
  check.expect(!inputs.empty(), "inputs", "at least one", "none");
  const node& first = operand(name, inputs.front());
  extents shape = first.shape;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const node& next = operand(name, inputs[i]);
    check.expect(
        next.shape.size() == shape.size() &&
            std::equal(shape.begin(), shape.end() - 1, next.shape.begin(), next.shape.end() - 1),
        fmt::format("inputs[{}]", i),
        fmt::format("the extents [{}] of '{}' up to the channels", fmt::join(first.shape, ", "), first.name),
        fmt::format("[{}] from '{}'", fmt::join(next.shape, ", "), next.name));
    shape.back() += next.shape.back();
  }
  return append({name, node_kind::concat, inputs, {}, std::move(shape)});
}

node_id network::dropout(const std::string& name, node_id x, float probability) {
  checker("dropout", name)
      .expect(probability >= 0.0F && probability < 1.0F, "probability", "0 <= probability < 1", probability);
  op_attributes a;
  a.drop_probability = probability;
  return append({name, node_kind::dropout, {x}, a, operand(name, x).shape});
}

node_id network::lrn(const std::string& name, node_id x, std::int32_t size, float alpha, float beta,
                     float k) {
  const node& source = operand(name, x);
  const checker check("lrn", name);
  check.expect_map(source);
  check.expect(size >= 1 && size % 2 == 1, "size", "a positive odd number", size);
  check.expect(alpha >= 0.0F && std::isfinite(alpha), "alpha", "a finite number that is not negative", alpha);
  check.expect(std::isfinite(beta), "beta", "a finite number", beta);
  check.expect(k > 0.0F && std::isfinite(k), "k", "a positive finite number", k);
  op_attributes a;
  a.lrn_size = size;
  a.lrn_alpha = alpha;
  a.lrn_beta = beta;
  a.lrn_k = k;
  return append({name, node_kind::lrn, {x}, a, source.shape});
}

node_id network::flatten(const std::string& name, node_id x) {
  return append({name, node_kind::flatten, {x}, {}, {features_of(operand(name, x).shape)}});
}

node_id network::softmax_cross_entropy(const std::string& name, node_id logits) {
  const node& source = operand(name, logits);
  checker("softmax_cross_entropy", name)
      .expect(source.shape.size() == 1, "logits", "one value per class, shape [classes]",
              fmt::format("[{}] from '{}'", fmt::join(source.shape, ", "), source.name));
  return append({name, node_kind::softmax_cross_entropy, {logits}, {}, source.shape});
}

std::int64_t parameter_count(const network& net) {
  std::int64_t count = 0;
  for (const node& n : net.nodes()) {
    const op_attributes& a = n.attributes;
    switch (n.kind) {
      case node_kind::conv2d: {
        const std::int64_t in_channels = net.at(n.inputs.front()).shape.back() / a.groups;
        count += (std::int64_t{a.kernel_h} * a.kernel_w * in_channels + (a.bias ? 1 : 0)) * a.out_features;
        break;
      }
      case node_kind::dense:
        count += (features_of(net.at(n.inputs.front()).shape) + 1) * a.out_features;
        break;
      case node_kind::batch_norm:
        count += 2 * n.shape.back();
        break;
      default:
        break;
    }
  }
  return count;
}

}  // namespace stash::planner
