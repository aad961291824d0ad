// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/network_maps.hpp"

#include <algorithm>
#include <numeric>

#include "models/models.hpp"

namespace stash::gpu {
namespace {

using planner::network;
using planner::node;
using planner::node_kind;

constexpr std::int64_t classes = 1000;

shape dims_of(std::int64_t images, const node& n) {
  std::vector<std::int64_t> dims{images};
  dims.insert(dims.end(), n.shape.begin(), n.shape.end());
  return shape(std::span<const std::int64_t>(dims));
}

/// True if the gradient of one of the node's readers needs its values.
bool values_are_read(const network& net, planner::node_id id) {
  return std::any_of(net.nodes().begin(), net.nodes().end(), [&](const node& reader) {
    const bool reads = reader.kind == node_kind::conv2d || reader.kind == node_kind::dense ||
                       reader.kind == node_kind::batch_norm;
    return reads && std::find(reader.inputs.begin(), reader.inputs.end(), id) != reader.inputs.end();
  });
}

kept_form index_of(const network& net, const node& n, std::int64_t images) {
  const planner::op_attributes& a = n.attributes;
  const pool_window window{.kernel_h = a.kernel_h,
                           .kernel_w = a.kernel_w,
                           .stride_h = a.stride_h,
                           .stride_w = a.stride_w,
                           .pad_top = a.pad_top,
                           .pad_left = a.pad_left};
  const encoding how{.kind = encoding_kind::window_index,
                     .window_taps = static_cast<std::uint16_t>(window.taps())};
  return {n.name, how, dims_of(images, net.at(n.inputs.front())), dims_of(images, n), window};
}

}  // namespace

std::vector<kept_form> resnet50_forms(std::int64_t images, std::int64_t side) {
  const network net = models::resnet50({side, side, 3}, classes);
  std::vector<kept_form> forms;
  for (const planner::node_id id : net.nodes().ids()) {
    const node& n = net.at(id);
    const bool values = values_are_read(net, id);
    if (n.kind == node_kind::input) continue;
    if (n.kind == node_kind::max_pool) forms.push_back(index_of(net, n, images));
    if (n.kind == node_kind::relu) {
      const encoding how{.kind = values ? encoding_kind::bitmap : encoding_kind::sign_mask};
      forms.push_back({n.name, how, dims_of(images, n), {}, {}});
    } else if (values) {
      forms.push_back({n.name, parse_encoding("fp8"), dims_of(images, n), {}, {}});
    }
  }
  return forms;
}

std::int64_t elements_of(const std::vector<kept_form>& forms) {
  return std::accumulate(forms.begin(), forms.end(), std::int64_t{0},
                         [](std::int64_t sum, const kept_form& f) { return sum + f.dims.elements(); });
}

}  // namespace stash::gpu
