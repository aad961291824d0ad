// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/views.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optimizer/graph/constants.hpp"
#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

#ifdef EIGEN_MAX_ALIGN_BYTES
constexpr std::int64_t alignment = EIGEN_MAX_ALIGN_BYTES;
#else
constexpr std::int64_t alignment = 64;  // of the wheels
#endif

using integers = std::vector<std::int64_t>;

// When an output is a view of input `input`.
enum class condition {
  always,
  by_port,    // of the input with the number of the output
  alone,      // the op has one input
  same_type,  // a Cast
  same_dims,
  same_elements,  // a reduction of dimensions of one
  order_kept,     // a Transpose that moves dimensions of one
  parts,          // of Split and SplitV
  rows,           // of Unpack
  slice,
  strided_slice,
};

struct rule {
  condition when;
  int input = 0;
};

const rule* rule_of(const std::string& op) {
  using c = condition;
  static const std::map<std::string, rule> rules = {
      {"Identity", {c::always}},      {"Reshape", {c::always}},
      {"Squeeze", {c::always}},       {"ExpandDims", {c::always}},
      {"StopGradient", {c::always}},  {"PreventGradient", {c::always}},
      {"CheckNumerics", {c::always}}, {"CheckNumericsV2", {c::always}},
      {"EnsureShape", {c::always}},   {"PlaceholderWithDefault", {c::always}},
      {"Bitcast", {c::always}},       {"IdentityN", {c::by_port}},
      {"Pack", {c::alone}},           {"AddN", {c::alone}},
      {"Cast", {c::same_type}},       {"BroadcastTo", {c::same_dims}},
      {"Tile", {c::same_dims}},       {"Pad", {c::same_dims}},
      {"PadV2", {c::same_dims}},      {"Sum", {c::same_elements}},
      {"Mean", {c::same_elements}},   {"Max", {c::same_elements}},
      {"Min", {c::same_elements}},    {"Prod", {c::same_elements}},
      {"Transpose", {c::order_kept}}, {"Split", {c::parts, 1}},
      {"SplitV", {c::parts}},         {"Unpack", {c::rows}},
      {"Slice", {c::slice}},          {"StridedSlice", {c::strided_slice}}};
  const auto it = rules.find(op);
  return it == rules.end() ? nullptr : &it->second;
}

std::int64_t integer_attr(const graph_view& graph, int node, const char* name) {
  const auto it = graph.node(node).attr().find(name);
  return it == graph.node(node).attr().end() ? 0 : it->second.i();
}

int data_inputs(const graph_view& graph, int node) {
  const std::vector<source>& inputs = graph.inputs(node);
  return static_cast<int>(
      std::count_if(inputs.begin(), inputs.end(), [](const source& s) { return !s.is_control(); }));
}

// Whether rows, which are tensors themselves, begin where kernels want tensors to begin.
bool has_aligned_rows(const tensor_size& x) {
  return x.dims.size() > 1 && x.dims[0] > 0 && x.bytes() / x.dims[0] % alignment == 0;
}

bool same_but_first(const integers& a, const integers& b) {
  return a.size() == b.size() && !a.empty() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

bool keeps_order(const graph_view& graph, int node, const tensor_size& x) {
  const auto order = constant_integers(graph, graph.inputs(node)[1].node);
  if (!order || order->size() != x.dims.size()) return false;
  std::int64_t last = -1;
  for (const std::int64_t d : *order) {
    if (d < 0 || static_cast<std::size_t>(d) >= x.dims.size()) return false;
    if (x.dims[static_cast<std::size_t>(d)] == 1) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

// What x[...] takes of the first dimension, if it takes all of the others and leaves no steps between.
struct range {
  std::optional<std::int64_t> begin, end;  ///< none: only the data say it
};

std::optional<range> rows_taken(const graph_view& graph, int node, const tensor_size& x) {
  const std::vector<source>& inputs = graph.inputs(node);
  const auto begin = constant_integers(graph, inputs[1].node);
  const auto end = constant_integers(graph, inputs[2].node);
  const auto strides = constant_integers(graph, inputs[3].node);
  if (!strides) return std::nullopt;
  const auto count = static_cast<std::int64_t>(strides->size());
  const auto has = [&](const char* mask, std::int64_t k) {
    return (integer_attr(graph, node, mask) >> k & 1) != 0;
  };
  range taken{0, x.dims[0]};
  std::size_t dim = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const auto entry = static_cast<std::size_t>(k);
    if (has("ellipsis_mask", k)) {
      // What follows it belongs to the last dimensions.
      const std::int64_t following = count - k - 1;
      dim = x.dims.size() - std::min(static_cast<std::size_t>(following), x.dims.size());
      continue;
    }
    if (has("new_axis_mask", k)) continue;
    if (dim >= x.dims.size()) return std::nullopt;
    const std::int64_t n = x.dims[dim];
    if ((*strides)[entry] != 1) return std::nullopt;
    const bool shrinks = has("shrink_axis_mask", k);
    range part;
    if (has("begin_mask", k) && !shrinks) {
      part.begin = 0;
    } else if (begin) {
      const std::int64_t b = (*begin)[entry];
      part.begin = b < 0 ? std::max<std::int64_t>(0, b + n) : std::min(b, n);
    }
    if (shrinks) {
      if (part.begin) part.end = *part.begin + 1;
    } else if (has("end_mask", k)) {
      part.end = n;
    } else if (end) {
      const std::int64_t e = (*end)[entry];
      part.end = e < 0 ? std::max<std::int64_t>(0, e + n) : std::min(e, n);
    }
    if (dim == 0) {
      taken = part;
    } else if (part.begin != 0 || part.end != n) {
      return std::nullopt;
    }
    ++dim;
  }
  return taken;
}

bool is_view_of_range(const tensor_size& x, const range& taken) {
  if (taken.begin == 0 && taken.end == x.dims[0]) return true;
  if (x.dims.size() > 1) return has_aligned_rows(x);
  const std::int64_t bytes = element_bytes(x.type);
  return taken.begin && taken.end && *taken.begin * bytes % alignment == 0 &&
         *taken.end * bytes % alignment == 0;
}

bool is_view_of_slice(const graph_view& graph, int node, const tensor_size& x, const tensor_size& y) {
  if (y.dims == x.dims) return true;
  if (!same_but_first(x.dims, y.dims)) return false;
  if (x.dims.size() > 1) return has_aligned_rows(x);
  const auto begin = constant_integers(graph, graph.inputs(node)[1].node);
  return begin && begin->size() == 1 && (*begin)[0] * element_bytes(x.type) % alignment == 0 &&
         y.bytes() % alignment == 0;
}

}  // namespace

int viewed_input(const graph_view& graph, const tensor_sizes& sizes, const source& tensor) {
  const int node = tensor.node;
  const rule* r = tensor.is_control() ? nullptr : rule_of(graph.op(node));
  if (r == nullptr) return -1;
  const int input = r->when == condition::by_port ? tensor.port : r->input;
  const int inputs = data_inputs(graph, node);
  if (input >= inputs) return -1;
  if (r->when == condition::always || r->when == condition::by_port) return input;
  if (r->when == condition::alone) return inputs == 1 ? input : -1;
  const tensor_size* x = sizes.find(graph.inputs(node)[at(input)]);
  const tensor_size* y = sizes.find(tensor);
  if (x == nullptr || y == nullptr || x->dims.empty()) return -1;
  const auto holds = [&] {
    switch (r->when) {
      case condition::same_type:
        return x->type == y->type;
      case condition::same_dims:
        return x->dims == y->dims;
      case condition::same_elements:
        return x->elements == y->elements;
      case condition::order_kept:
        return inputs > 1 && keeps_order(graph, node, *x);
      case condition::parts:
        return x->dims == y->dims || (same_but_first(x->dims, y->dims) && has_aligned_rows(*x));
      case condition::rows:
        return integer_attr(graph, node, "axis") == 0 && has_aligned_rows(*x);
      case condition::slice:
        return is_view_of_slice(graph, node, *x, *y);
      case condition::strided_slice: {
        const std::optional<range> taken = inputs > 3 ? rows_taken(graph, node, *x) : std::nullopt;
        return taken && is_view_of_range(*x, *taken);
      }
      default:
        return false;
    }
  };
  return holds() ? input : -1;
}

source root_of(const graph_view& graph, source tensor) {
  while (is_alias(graph.op(tensor.node)) && !graph.inputs(tensor.node).empty() &&
         !graph.inputs(tensor.node)[0].is_control())
    tensor = graph.inputs(tensor.node)[0];
  return tensor;
}

source held_in(const graph_view& graph, const tensor_sizes& sizes, source tensor) {
  for (int input = viewed_input(graph, sizes, tensor); input >= 0; input = viewed_input(graph, sizes, tensor))
    tensor = graph.inputs(tensor.node)[at(input)];
  return tensor;
}

}  // namespace stash_tf
