// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/step.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "optimizer/analyse/backward.hpp"
#include "optimizer/analyse/block_rules.hpp"
#include "optimizer/analyse/list_blocks.hpp"
#include "optimizer/analyse/pooling_pairs.hpp"
#include "optimizer/analyse/reader_gates.hpp"
#include "optimizer/analyse/reader_needs.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/simulate/folding.hpp"

namespace stash_tf {

namespace {

// XLA takes as much memory as it likes: grouped convolutions, which Keras compiles on CPUs, take many times
// their maps.
bool is_compiled(const graph_view& graph, int node) {
  const auto must = graph.node(node).attr().find("_XlaMustCompile");
  return must != graph.node(node).attr().end() && must->second.b();
}

// step::device_node.
int find_device_node(const step& analysis, const control_flow& flow, const settings& request) {
  if (!analysis.blocks.empty()) return analysis.blocks.front().root.node;
  for (const int node : analysis.order)
    if (analysis.backward[at(node)] && flow.frame(node) > 0) return node;
  // A budget is for steps without large tensors, too: later batches may be larger, and it may be too small.
  for (const int node : analysis.order)
    if (request.budget_bytes > 0 && analysis.backward[at(node)]) return node;
  return -1;
}

// Finds the blocks of a step by their readers.
class block_reader {
 public:
  block_reader(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
               const control_flow& flow, const reader_needs& needs, reader_gates* gates, step* analysis)
      : graph_(graph),
        sizes_(sizes),
        request_(request),
        flow_(flow),
        data_(depends_on_data(graph, analysis->order)),
        needs_(needs),
        gates_(gates),
        step_(analysis) {}

  void run() {
    for (const int node : step_->order) {
      if (!step_->backward[at(node)]) continue;
      for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k)
        add_reader(node, static_cast<int>(k));
    }
    for (const int node : step_->order)
      if (is_compiled(graph_, node)) add_unknown(graph_.name(node));
  }

 private:
  void add_unknown(const std::string& name) {
    if (step_->unknown_sizes++ == 0) step_->unknown_size = name;
  }

  void add_reader(int node, int input) {
    const source read = graph_.inputs(node)[at(input)];
    if (read.is_control() || step_->backward[at(read.node)]) return;
    const source root = root_of(graph_, read);
    const tensor_size* size = sizes_.find(read);
    // A part of what the caller holds costs nothing while it is read as it is.
    if (is_held_elsewhere(graph_.op(held_in(graph_, sizes_, read).node)) || !data_[at(root.node)]) return;
    if (size == nullptr) return leave(node, read, root);
    if (!is_storable(size->type) || size->bytes() < request_.min_bytes) return;
    stashed_block& b = block_of(read, root, *size);
    stash_reader r;
    r.node = node;
    r.input = input;
    r.tensor = read;
    r.needs = needs_.of(*size, root, node, input);
    r.gate = gates_->gate_of(node, input);
    if (b.raw_because.empty()) b.raw_because = why_raw(r, root);
    b.readers.push_back(std::move(r));
  }

  // A tensor whose size is not known.
  void leave(int node, const source& read, const source& root) {
    if (is_control_flow(graph_.op(node)) || is_control_flow(graph_.op(root.node))) return;
    step_->left.push_back({graph_.name(node), graph_.op(node), "the size of what it reads is not known"});
    if (flow_.frame(node) == 0 && sizes_.is_unknown_number(read)) add_unknown(graph_.tensor_name(root));
  }

  stashed_block& block_of(const source& read, const source& root, const tensor_size& size) {
    const auto [entry, is_new] = step_->block_of.emplace(root, static_cast<int>(step_->blocks.size()));
    if (is_new) {
      stashed_block b;
      b.tensor = read;
      b.root = root;
      b.size = size;
      step_->blocks.push_back(std::move(b));
    }
    return step_->blocks[at(entry->second)];
  }

  // Empty: the reader may take another form.
  std::string why_raw(const stash_reader& r, const source& root) const {
    if (is_control_flow(graph_.op(r.node))) return "read by control flow (" + graph_.op(r.node) + ")";
    if (is_control_flow(graph_.op(root.node)))
      return "comes out of control flow (" + graph_.op(root.node) + ")";
    if (r.gate < 0) return "nothing says when " + graph_.name(r.node) + " runs";
    if (graph_.node(r.node).device() != graph_.node(root.node).device())
      return "read on another device than it was written on";
    return "";
  }

  const graph_view& graph_;
  const tensor_sizes& sizes_;
  const settings& request_;
  const control_flow& flow_;
  const std::vector<bool> data_;  // by node: depends_on_data()
  const reader_needs& needs_;
  reader_gates* gates_;
  step* step_;
};

}  // namespace

std::string bits_for(const graph_view& graph, const stash_reader& r) {
  if (r.needs.size() != 1 || op_on_bits(graph.op(r.node)) == nullptr) return "";
  if (r.needs[0] == "sign") return "sign_mask";
  return r.needs[0] == "range" ? "range_mask" : "";
}

bool reads_bits(const graph_view& graph, const stashed_block& b, const stash_reader& r) {
  return !b.bits.empty() && bits_for(graph, r) == b.bits;
}

bool reads_shape(const graph_view& graph, int node) {
  return graph.op(node) == "Shape" || graph.op(node) == "ShapeN";
}

bool is_asked_for_shape(const graph_view& graph, const listed_block& b) {
  return std::any_of(b.element.readers.begin(), b.element.readers.end(),
                     [&](const stash_reader& r) { return reads_shape(graph, r.node); });
}

std::vector<std::string> all_needs(const listed_block& b) {
  std::set<std::string> needs(b.also_needs.begin(), b.also_needs.end());
  for (const stash_reader& r : b.element.readers)
    needs.insert(r.needs.begin(), r.needs.end());
  return {needs.begin(), needs.end()};
}

step analyse(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
             const std::set<std::string>& preserved) {
  step result;
  result.order = graph.topological_order();
  result.backward = backward_nodes(graph);
  const std::vector<bool> late = after_a_gradient(graph, result.order, result.backward);
  const control_flow flow(graph, result.order);
  const reader_needs needs(graph, sizes, result.order, result.backward, late);
  reader_gates gates(graph, result.order, result.backward, late, flow);
  block_reader(graph, sizes, request, flow, needs, &gates, &result).run();
  for (stashed_block& b : result.blocks) {
    settle(graph, request, preserved, &b);
    result.on_device = result.on_device || is_off_host(graph, request, b);
  }
  result.lists = list_blocks(graph, sizes, request, preserved, result, needs, &gates);
  pooling_pairs pairs = find_poolings(graph, result.order, result.backward, request);
  result.poolings = std::move(pairs.poolings);
  std::move(pairs.left.begin(), pairs.left.end(), std::back_inserter(result.left));
  result.device_node = find_device_node(result, flow, request);
  if (result.blocks.empty() && result.device_node >= 0)
    result.on_device = is_on_gpu(graph, result.device_node);
  const output_sizes outputs(graph, graph, sizes, result, {});
  result.folded = folded_nodes(graph, result.order, outputs, result.on_device);
  return result;
}

}  // namespace stash_tf
