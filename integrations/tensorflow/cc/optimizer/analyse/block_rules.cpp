// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/block_rules.hpp"

#include <algorithm>

#include "absl/strings/match.h"
#include "optimizer/analyse/layer_names.hpp"
#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

constexpr double zeros_of_a_relu = 0.5;  // with weights drawn symmetrically around zero; measured later

double density_of(const graph_view& graph, const settings& request, const stashed_block& b) {
  const auto measured = request.densities.find(graph.tensor_name(b.tensor));
  if (measured != request.densities.end()) return std::min(1.0, std::max(0.0, measured->second));
  return makes_zeros(graph, b.root.node) ? zeros_of_a_relu : 1;
}

std::string exact_cast_of(const graph_view& graph, const stashed_block& b) {
  if (graph.op(b.root.node) != "Cast" || b.size.type != tensorflow::DT_FLOAT) return "";
  const auto from = graph.node(b.root.node).attr().find("SrcT");
  if (from == graph.node(b.root.node).attr().end()) return "";
  if (from->second.type() == tensorflow::DT_HALF) return "fp16";
  return from->second.type() == tensorflow::DT_BFLOAT16 ? "bf16" : "";
}

void settle_bits(const graph_view& graph, const settings& request, stashed_block* b) {
  if (!b->raw_because.empty()) return;
  bool more = false;
  std::string bits;
  for (const stash_reader& r : b->readers) {
    if (const std::string found = bits_for(graph, r); !found.empty()) {
      bits = found;
    } else {
      more = true;
    }
  }
  if (more) b->bits = bits;
  // Rounded values keep their signs, but do not say which of them were cut off.
  b->plan_bits = b->bits == "range_mask" && request.policy != "lossless";
}

}  // namespace

bool is_storable(tensorflow::DataType type) {
  return type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16 ||
         type == tensorflow::DT_BOOL;
}

bool is_on_gpu(const graph_view& graph, int node) {
  return absl::StrContains(graph.node(node).device(), "GPU");
}

bool is_off_host(const graph_view& graph, const settings& request, const stashed_block& b) {
  return request.device_bytes > 0 || is_on_gpu(graph, b.root.node);
}

void settle(const graph_view& graph, const settings& request, const std::set<std::string>& preserved,
            stashed_block* b) {
  const auto keep_raw = [&](const std::string& why) {
    if (b->raw_because.empty()) b->raw_because = why;
  };
  const std::string& name = graph.name(b->root.node);
  if (belongs_to_any(name, request.keep) || belongs_to_any(graph.name(b->tensor.node), request.keep))
    keep_raw("the user keeps this layer");
  if (preserved.count(name) != 0) keep_raw("is a result of the function");
  // Of several views, one that is read for its values: who reads bits does not mind, and who reads values
  // under other dimensions decodes them with those.
  const auto reads_values = [&](const stash_reader& r) { return bits_for(graph, r).empty(); };
  if (const auto first = std::find_if(b->readers.begin(), b->readers.end(), reads_values);
      first != b->readers.end())
    b->tensor = first->tensor;
  b->movable = b->raw_because.empty() && is_off_host(graph, request, *b);
  if (const auto need = request.needs.find(graph.tensor_name(b->tensor)); need != request.needs.end()) {
    for (stash_reader& r : b->readers)
      for (std::string& n : r.needs)
        if (n == "value" || n == "fine_value") n = need->second;
  }
  b->density = density_of(graph, request, *b);
  settle_bits(graph, request, b);
  b->exact_cast = exact_cast_of(graph, *b);
}

}  // namespace stash_tf
