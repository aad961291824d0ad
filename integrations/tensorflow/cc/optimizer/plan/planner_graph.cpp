// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/planner_graph.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/plan/graph_storages.hpp"
#include "optimizer/plan/op_alternatives.hpp"
#include "optimizer/plan/work.hpp"
#include "optimizer/plan/workspace.hpp"

namespace stash_tf {

namespace {

using nlohmann::json;

// Smaller tensors do not matter for a peak, and are many.
constexpr std::int64_t parts_that_matter = 512;

bool is_held_by_the_caller(const std::string& op) {
  static const std::set<std::string> ops = {"_Arg",           "Placeholder", "Const",
                                            "ReadVariableOp", "VariableV2",  "VarHandleOp"};
  return ops.count(op) != 0;
}

planner_graph without_storages(const step& analysis) {
  planner_graph g;
  g.storage_of_block.assign(analysis.blocks.size(), -1);
  g.exact_cast_of_block.assign(analysis.blocks.size(), -1);
  g.bits_of_block.assign(analysis.blocks.size(), -1);
  g.op_of_pooling.assign(analysis.poolings.size(), -1);
  g.storage_of_pooling.assign(analysis.poolings.size(), -1);
  return g;
}

class builder {
 public:
  builder(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
          const std::vector<int>& order)
      : graph_(graph),
        step_(analysis),
        sizes_(sizes),
        order_(order),
        result_(without_storages(analysis)),
        storages_(graph, analysis, sizes),
        alternatives_(graph, analysis, storages_, result_) {}

  planner_graph run() {
    find_last_uses();
    for (std::size_t k = 0; k < step_.poolings.size(); ++k) {
      pooled_by_[step_.poolings[k].forward].push_back(static_cast<int>(k));
      if (step_.poolings[k].relu_backward >= 0) absorbed_.insert(step_.poolings[k].relu_backward);
    }
    for (const bool backward : {false, true})
      for (const int node : order_)
        if (step_.backward[at(node)] == backward && absorbed_.count(node) == 0) add_op(node);
    json graph = {{"format", "stash.graph"},     {"version", 1}, {"name", "TensorFlow step"}, {"batch", 1},
                  {"storages", storages_.all()}, {"ops", ops_}};
    result_.json = graph.dump(-1, ' ', false, json::error_handler_t::replace);
    return std::move(result_);
  }

 private:
  void find_last_uses() {
    position_ = graph_.positions(order_);
    std::int64_t largest = 0;
    for (const int node : order_) {
      for (const source& s : graph_.inputs(node)) {
        if (s.is_control()) continue;
        const source root = root_of(graph_, s);
        // What reads a view reads what it is a view of.
        for (const source& read : {root, root_of(graph_, held_in(graph_, sizes_, s))}) {
          int& last = last_use_[read];
          last = std::max(last, position_[at(node)]);
        }
        if (const tensor_size* size = sizes_.find(s)) largest = std::max(largest, size->bytes());
      }
    }
    threshold_ = largest / parts_that_matter;
  }

  // An input that nobody reads afterwards, whose memory the op takes for its output; -1: none.
  int in_place(int node, const tensor_size& output) const {
    if (!may_write_in_place(graph_.op(node))) return -1;
    for (const source& s : graph_.inputs(node)) {
      if (s.is_control()) continue;
      const source root = root_of(graph_, s);
      const int id = storages_.of(root);
      const tensor_size* size = sizes_.find(s);
      if (storages_.is_shared(root)) continue;  // other parts of the storage are read later, maybe
      if (id < 0 || size == nullptr || size->bytes() != output.bytes() || size->type != output.type) continue;
      const auto last = last_use_.find(root);
      const bool dies_here = last != last_use_.end() && last->second == position_[at(node)];
      if (dies_here && step_.backward[at(root.node)] == step_.backward[at(node)]) return id;
    }
    return -1;
  }

  json add_outputs(int node) {
    json outputs = json::array();
    if (is_alias(graph_.op(node)) || is_held_by_the_caller(graph_.op(node)) ||
        is_control_flow(graph_.op(node)))
      return outputs;
    for (const int port : graph_.ports_read(node)) {
      const source tensor{node, port};
      const tensor_size* size = sizes_.find(tensor);
      if (size == nullptr || size->elements == 0) continue;
      if (storages_.is_shared(tensor)) {
        if (const int id = storages_.of(held_in(graph_, sizes_, tensor)); id >= 0) storages_.put(tensor, id);
        continue;
      }
      const int block = storages_.block_of(tensor);
      if (block < 0 && size->bytes() < threshold_) continue;
      int id = block < 0 ? in_place(node, *size) : -1;
      if (id < 0) id = add_output(tensor, *size, block);
      if (block >= 0) result_.storage_of_block[at(block)] = id;
      storages_.put(tensor, id);
      outputs.push_back({{"storage", id}});
    }
    return outputs;
  }

  int add_output(const source& tensor, const tensor_size& size, int block) {
    const bool backward = step_.backward[at(tensor.node)];
    // What stays as it is has to be something that the planner has no other form for.
    const bool opaque = !backward && storages_.is_settled(tensor);
    return storages_.add({graph_.tensor_name(tensor), backward ? "gradient" : "feature_map",
                          opaque ? "s32" : type_name(size.type), size.elements, size.bytes(),
                          block < 0 || opaque ? 1 : step_.blocks[at(block)].density});
  }

  int add_auxiliary(int node, const char* suffix, const char* type, std::int64_t elements, std::int64_t bytes,
                    int window_taps = 0) {
    return storages_.add({graph_.name(node) + suffix, "auxiliary", type, elements, bytes, 1, window_taps});
  }

  void add_taps(int node, json* optional) {
    const auto it = pooled_by_.find(node);
    const tensor_size* y = sizes_.find({node, 0});
    if (it == pooled_by_.end() || y == nullptr || y->elements == 0) return;
    for (const int k : it->second) {
      int taps = 1;
      for (const std::int64_t n : graph_.node(node).attr().at("ksize").list().i())
        taps *= static_cast<int>(n);
      const int id = add_auxiliary(node, "/taps", "u8", y->elements, y->elements, taps);
      result_.storage_of_pooling[at(k)] = id;
      optional->push_back(id);
    }
  }

  // Bits that some readers take in addition to the values, and the narrower original of a cast.
  void add_stand_ins(int node, int block, json* optional) {
    const stashed_block& b = step_.blocks[at(block)];
    if (result_.storage_of_block[at(block)] < 0) return;
    const std::int64_t elements = b.size.elements;
    if (b.plan_bits) {
      const int id = add_auxiliary(node, "/bits", "u8", elements, elements);
      result_.bits_of_block[at(block)] = id;
      optional->push_back(id);
    }
    if (graph_.op(node) == "Cast" && !b.exact_cast.empty() && b.raw_because.empty()) {
      const int id =
          add_auxiliary(node, "/narrow", b.exact_cast == "fp16" ? "f16" : "bf16", elements, elements * 2);
      result_.exact_cast_of_block[at(block)] = id;
      optional->push_back(id);
    }
  }

  json add_optional_outputs(int node) {
    json optional = json::array();
    add_taps(node, &optional);
    if (const int block = storages_.block_of({node, 0}); block >= 0) add_stand_ins(node, block, &optional);
    return optional;
  }

  json inputs_of(int node) const {
    json inputs = json::array();
    std::set<int> seen;
    for (const source& s : graph_.inputs(node)) {
      if (s.is_control()) continue;
      // What was there before the backward pass is in the alternatives.
      if (step_.backward[at(node)] && storages_.is_of_forward(s)) continue;
      const int id = storages_.of(s);
      if (id >= 0 && seen.insert(id).second) inputs.push_back({{"storage", id}});
    }
    return inputs;
  }

  // A workspace is there while the op runs, like a result that nobody reads.
  void add_workspace(int node, json* outputs) {
    if (step_.on_device || alternatives_.pooling_of(node) >= 0) return;
    const std::int64_t workspace = workspace_bytes(graph_, node, sizes_, step_.threads);
    if (workspace < threshold_ || workspace == 0) return;
    const char* role = step_.backward[at(node)] ? "gradient" : "feature_map";
    outputs->push_back(
        {{"storage", storages_.add({graph_.name(node) + "/workspace", role, "s32", 0, workspace})}});
  }

  // The alternatives of an op of the backward pass.
  json alternatives_of(int node) {
    if (alternatives_.has_argmax(node))
      result_.op_of_pooling[at(alternatives_.pooling_of(node))] = static_cast<int>(ops_.size());
    return alternatives_.of(node);
  }

  // A pooling's gradient and the ReLU's after it are one op, and its result goes by the ReLU's name.
  void name_joint_result(int node) {
    const int pooling = alternatives_.pooling_of(node);
    const int relu = pooling < 0 ? -1 : step_.poolings[at(pooling)].relu_backward;
    if (relu < 0) return;
    if (const int id = storages_.of({node, 0}); id >= 0) storages_.put({relu, 0}, id);
  }

  void add_op(int node) {
    const bool backward = step_.backward[at(node)];
    json inputs = inputs_of(node);
    json alternatives = backward ? alternatives_of(node) : json::array();
    json outputs = add_outputs(node);
    add_workspace(node, &outputs);
    if (backward) name_joint_result(node);
    json optional = backward ? json::array() : add_optional_outputs(node);
    if (inputs.empty() && outputs.empty() && alternatives.empty()) return;
    json o = {{"name", unique_name(graph_.name(node), &op_names_)},
              {"kind", "generic"},
              {"label", graph_.op(node)},
              {"stage", backward ? "backward" : "forward"},
              {"inputs", std::move(inputs)},
              {"outputs", std::move(outputs)}};
    if (!optional.empty()) o["optional_outputs"] = std::move(optional);
    if (!alternatives.empty()) o["alternatives"] = std::move(alternatives);
    if (const double flops = flops_of(graph_, node, sizes_); flops > 0) o["flops"] = flops;
    ops_.push_back(std::move(o));
    result_.node_of_op.push_back(node);
  }

  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  const std::vector<int>& order_;
  std::vector<int> position_;
  std::map<source, int> last_use_;
  std::int64_t threshold_ = 0;
  std::map<int, std::vector<int>> pooled_by_;
  std::set<int> absorbed_;  // by the pooling's gradient before them
  std::set<std::string> op_names_;
  json ops_ = json::array();
  planner_graph result_;
  graph_storages storages_;
  const op_alternatives alternatives_;
};

}  // namespace

planner_graph make_planner_graph(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                                 const std::vector<int>& order) {
  return builder(graph, analysis, sizes, order).run();
}

}  // namespace stash_tf
