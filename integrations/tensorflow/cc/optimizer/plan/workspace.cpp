// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/workspace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "optimizer/graph/constants.hpp"
#include "optimizer/plan/einsum_copies.hpp"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/util/util.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace stash_tf {

namespace {

enum class convolution { none, forward, input_gradient, filter_gradient };

convolution kind_of(const std::string& op) {
  if (op == "Conv2D" || op == "_FusedConv2D" || op == "Conv3D" || op == "_FusedConv3D")
    return convolution::forward;
  if (op == "Conv2DBackpropInput" || op == "Conv3DBackpropInputV2") return convolution::input_gradient;
  if (op == "Conv2DBackpropFilter" || op == "Conv3DBackpropFilterV2") return convolution::filter_gradient;
  return convolution::none;
}

// Whether oneDNN's kernels serve this type here.
bool onednn_serves(tensorflow::DataType type) {
  namespace port = tensorflow::port;
  if (!tensorflow::IsMKLEnabled()) return false;
  if (type == tensorflow::DT_BFLOAT16) return port::TestCPUFeature(port::AVX512F);
  if (type == tensorflow::DT_HALF) return port::TestCPUFeature(port::AVX512_FP16);
  return type == tensorflow::DT_FLOAT;
}

std::int64_t product(const std::vector<std::int64_t>& dims, std::size_t first, std::size_t last) {
  std::int64_t all = 1;
  for (std::size_t k = first; k < last; ++k)
    all *= dims[k];
  return all;
}

// Elements of the matrices that one image is unfolded to: patches x filter, and all three of the product.
struct unfolded {
  std::int64_t patches = 0;
  std::int64_t work = 0;

  unfolded(const tensor_size& dy, const tensor_size& w) {
    const std::size_t last = dy.dims.size() - 1;
    const std::int64_t taps = product(dy.dims, 1, last);
    const std::int64_t patch = product(w.dims, 0, last);
    patches = taps * patch;
    work = std::max<std::int64_t>(1, patches + taps * w.dims[last] + patch * w.dims[last]);
  }
};

std::int64_t images_at_once(std::int64_t working_bytes, std::int64_t element, const unfolded& image) {
  return (working_bytes / element + image.work - 1) / image.work;
}

// As many images at once are unfolded as fit 30 MiB together with what they are multiplied with; for the
// gradient of an input one, where that is work enough for all threads.
std::int64_t of_gradient_2d(const tensor_size& dy, const tensor_size& w, bool filter, int threads) {
  constexpr std::int64_t working_bytes = std::int64_t{30} << 20;
  constexpr std::int64_t enough_bytes = std::int64_t{256} << 10;  // for a thread
  const std::int64_t element = element_bytes(dy.type);
  const unfolded image(dy, w);
  const bool one = !filter && (dy.dims[0] == 1 || image.work / threads >= enough_bytes / element);
  return (one ? 1 : images_at_once(working_bytes, element, image)) * image.patches * element;
}

// As in two dimensions with the last level of caches; but where that would be much more than the tensors
// have, other kernels run, which unfold nothing and for the filter copy both of their inputs.
std::int64_t of_gradient_3d(const tensor_size& x, const tensor_size& dy, const tensor_size& w, bool filter) {
  constexpr std::int64_t most_times = 25;
  const std::int64_t element = element_bytes(dy.type);
  const unfolded image(dy, w);
  const bool one = !filter && dy.dims[0] == 1;
  const std::int64_t images = one ? 1 : images_at_once(Eigen::l3CacheSize(), element, image);
  const std::int64_t elements = images * image.patches;
  const std::int64_t tensors = std::max<std::int64_t>(1, x.elements + dy.elements + w.elements);
  if (elements / tensors <= most_times) return elements * element;
  return filter ? x.bytes() + dy.bytes() : 0;
}

// How a filter lies on its input in one dimension.
struct extent {
  std::int64_t x = 1, y = 1, filter = 1, stride = 1, dilation = 1;

  bool padded() const { return (y - 1) * stride + (filter - 1) * dilation + 1 > x; }
};

std::int64_t number_in(const tensorflow::NodeDef& n, const char* attribute, std::size_t k) {
  const auto it = n.attr().find(attribute);
  const auto index = static_cast<int>(k);
  return it == n.attr().end() || it->second.list().i_size() <= index ? 1 : it->second.list().i(index);
}

// Depth, height and width; depth 1 in two dimensions.
std::array<extent, 3> extents_of(const tensorflow::NodeDef& n, const tensor_size& x, const tensor_size& y,
                                 const tensor_size& w) {
  std::array<extent, 3> all;
  const std::size_t spatial = w.dims.size() - 2;
  for (std::size_t k = 0; k < spatial; ++k)
    all[all.size() - spatial + k] = {x.dims[k + 1], y.dims[k + 1], w.dims[k], number_in(n, "strides", k + 1),
                                     number_in(n, "dilations", k + 1)};
  return all;
}

// oneDNN's own kernels for the gradient of a filter leave some convolutions to one that unfolds images: with
// AVX2 those with holes, or padded in depth.
bool onednn_unfolds(const std::array<extent, 3>& dims) {
  namespace port = tensorflow::port;
  const auto& [depth, height, width] = dims;
  if (port::TestCPUFeature(port::AVX512F)) return depth.dilation > 1 || width.filter > 14;
  const bool holes = std::any_of(dims.begin(), dims.end(), [](const extent& e) { return e.dilation > 1; });
  return !port::TestCPUFeature(port::AVX2) || holes || depth.padded() || width.filter > 13 ||
         height.filter > height.x || depth.filter > depth.x;
}

// An image in another order, one plane of it unfolded, and a buffer of four times the filter's size; for each
// thread, if they share out images and not planes.
std::int64_t of_unfolded_by_onednn(const std::array<extent, 3>& dims, const tensor_size& x,
                                   const tensor_size& w, int threads) {
  constexpr std::int64_t smallest_share = 256;  // taps of a plane
  constexpr std::int64_t filters = 4;
  const auto& [depth, height, width] = dims;
  const std::int64_t element = element_bytes(x.type);
  const std::int64_t channels = w.dims[w.dims.size() - 2];
  const std::int64_t taps = height.y * width.y;
  const bool points = std::all_of(
      dims.begin(), dims.end(), [](const extent& e) { return e.filter == 1 && e.stride == 1 && e.x == e.y; });
  const std::int64_t plane =
      points ? 0 : taps * channels * depth.filter * height.filter * width.filter * element;
  const std::int64_t image = depth.x * height.x * width.x * channels * element;
  const bool share_images = x.dims[0] > 1 && taps / threads < smallest_share;
  return (share_images ? threads : 1) * (plane + image + filters * w.bytes());
}

std::int64_t of_convolution(convolution kind, const graph_view& graph, int node, const tensor_sizes& sizes,
                            int threads) {
  const auto& inputs = graph.inputs(node);
  const bool forward = kind == convolution::forward;
  const bool filter = kind == convolution::filter_gradient;
  if (inputs.size() < (forward ? 2U : 3U)) return 0;
  const tensor_size* w = sizes.find(filter ? source{node, 0} : inputs[1]);
  const tensor_size* y = sizes.find(forward ? source{node, 0} : inputs[2]);
  const tensor_size* x = sizes.find(kind == convolution::input_gradient ? source{node, 0} : inputs[0]);
  if (x == nullptr || y == nullptr || w == nullptr || element_bytes(y->type) == 0) return 0;
  const std::size_t rank = y->dims.size();
  if ((rank != 4 && rank != 5) || x->dims.size() != rank || w->dims.size() != rank) return 0;
  if (onednn_serves(y->type)) {
    const std::array<extent, 3> dims = extents_of(graph.node(node), *x, *y, *w);
    return filter && onednn_unfolds(dims) ? of_unfolded_by_onednn(dims, *x, *w, threads) : w->bytes();
  }
  if (forward) return 0;
  return rank == 4 ? of_gradient_2d(*y, *w, filter, threads) : of_gradient_3d(*x, *y, *w, filter);
}

// It folds the padding into a copy of the gradient.
std::int64_t of_padding_gradient(const graph_view& graph, int node, const tensor_sizes& sizes) {
  const tensor_size* dy = sizes.find(graph.inputs(node)[0]);
  return dy == nullptr ? 0 : dy->bytes();
}

// Its own forward pass, with the places that won as 64-bit numbers.
std::int64_t of_pooling_gradient(const graph_view& graph, int node, const tensor_sizes& sizes) {
  const auto& inputs = graph.inputs(node);
  const tensor_size* y = inputs.size() < 2 ? nullptr : sizes.find(inputs[1]);
  return y == nullptr ? 0 : y->bytes() + y->elements * static_cast<std::int64_t>(sizeof(std::int64_t));
}

bool is_reduction(const std::string& op) {
  static const std::set<std::string> ops = {"Sum", "Mean", "Prod", "Max",
                                            "Min", "All",  "Any",  "EuclideanNorm"};
  return ops.count(op) != 0;
}

// Per dimension of x, whether the node reduces it: as a constant says it, or else as the sizes do.
std::vector<bool> reduced_dims(const graph_view& graph, const source& axes, const tensor_size& x,
                               const tensor_size& y) {
  std::vector<bool> reduced(x.dims.size(), false);
  if (const auto numbers = constant_integers(graph, axes.node)) {
    const auto rank = static_cast<std::int64_t>(reduced.size());
    for (const std::int64_t axis : *numbers) {
      if (axis >= -rank && axis < rank)
        reduced[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
    }
    return reduced;
  }
  const bool same_rank = y.dims.size() == x.dims.size();
  std::size_t next = 0;
  for (std::size_t k = 0; k < reduced.size(); ++k) {
    const bool kept = next < y.dims.size() && y.dims[next] == x.dims[k];
    reduced[k] = !kept;
    if (kept || same_rank) ++next;
  }
  return reduced;
}

// Neighbouring dimensions that are reduced, or are not, count as one. Up to three are worked on where they
// lie; more of them are brought into another order first.
std::int64_t of_reduction(const graph_view& graph, int node, const tensor_sizes& sizes) {
  constexpr int most_in_place = 3;
  const auto& inputs = graph.inputs(node);
  const tensor_size* x = inputs.size() < 2 ? nullptr : sizes.find(inputs[0]);
  const tensor_size* y = sizes.find({node, 0});
  if (x == nullptr || y == nullptr) return 0;
  const std::vector<bool> reduced = reduced_dims(graph, inputs[1], *x, *y);
  int runs = 0;
  bool last = false;
  for (std::size_t k = 0; k < reduced.size(); ++k) {
    if (x->dims[k] == 1) continue;
    if (runs == 0 || reduced[k] != last) ++runs;
    last = reduced[k];
  }
  return runs > most_in_place ? x->bytes() : 0;
}

}  // namespace

std::int64_t workspace_bytes(const graph_view& graph, int node, const tensor_sizes& sizes, int threads) {
  const std::string& op = graph.op(node);
  if (op == "MaxPoolGrad") return of_pooling_gradient(graph, node, sizes);
  if (is_reduction(op)) return of_reduction(graph, node, sizes);
  if (op == "Einsum") return einsum_workspace_bytes(graph, node, sizes);
  if (op == "MirrorPadGrad") return of_padding_gradient(graph, node, sizes);
  const convolution kind = kind_of(op);
  return kind == convolution::none ? 0 : of_convolution(kind, graph, node, sizes, threads);
}

}  // namespace stash_tf
