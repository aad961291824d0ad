// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/planner_graph.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
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

const char* type_name(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_FLOAT:
      return "f32";
    case tensorflow::DT_HALF:
      return "f16";
    case tensorflow::DT_BFLOAT16:
      return "bf16";
    case tensorflow::DT_BOOL:
      return "u8";
    default:
      return "s32";  // bytes that can only stay as they are
  }
}

class builder {
 public:
  builder(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
          const std::vector<int>& order)
      : graph_(graph), step_(analysis), sizes_(sizes), order_(order) {}

  planner_graph run() {
    result_.storage_of_block.assign(step_.blocks.size(), -1);
    result_.exact_cast_of_block.assign(step_.blocks.size(), -1);
    result_.bits_of_block.assign(step_.blocks.size(), -1);
    result_.op_of_pooling.assign(step_.poolings.size(), -1);
    result_.storage_of_pooling.assign(step_.poolings.size(), -1);
    find_last_uses();
    for (std::size_t k = 0; k < step_.poolings.size(); ++k) {
      pooling_of_[step_.poolings[k].backward] = static_cast<int>(k);
      pooled_by_[step_.poolings[k].forward].push_back(static_cast<int>(k));
      if (step_.poolings[k].relu_backward >= 0)
        absorbed_[step_.poolings[k].relu_backward] = step_.poolings[k].backward;
    }
    for (const bool backward : {false, true})
      for (const int node : order_)
        if (step_.backward[at(node)] == backward) add_op(node);
    json graph = {{"format", "stash.graph"}, {"version", 1}, {"name", "TensorFlow step"}, {"batch", 1},
                  {"storages", storages_},   {"ops", ops_}};
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

  std::string unique(std::string name, std::set<std::string>* taken) const {
    while (!taken->insert(name).second)
      name += "'";
    return name;
  }

  int add_storage(const std::string& name, const char* role, const char* type, std::int64_t elements,
                  std::int64_t bytes, double density, int window_taps) {
    const bool opaque = std::string(type) == "s32";
    json s = {{"name", unique(name, &storage_names_)},
              {"role", role},
              {"type", type},
              {"shape", {opaque ? std::max<std::int64_t>((bytes + 3) / 4, 1) : elements}},
              {"bytes_per_sample", opaque ? std::max<std::int64_t>((bytes + 3) / 4, 1) * 4 : bytes},
              {"density", density}};
    if (window_taps > 0) s["window_taps"] = window_taps;
    storages_.push_back(std::move(s));
    return static_cast<int>(storages_.size()) - 1;
  }

  // Storage of a tensor that has been computed; -1 where it is too small or not ours.
  int storage_of(const source& tensor) const {
    const auto it = storage_.find(root_of(graph_, tensor));
    return it == storage_.end() ? -1 : it->second;
  }

  int block_of(const source& tensor) const {
    const auto it = step_.block_of.find(root_of(graph_, tensor));
    return it == step_.block_of.end() ? -1 : it->second;
  }

  // Where a view stays as it is and so does what it is a view of, they are one storage to the planner. (A
  // form of its own makes it a tensor of its own.)
  bool shares_storage(const source& tensor) const {
    if (viewed_input(graph_, sizes_, tensor) < 0) return false;
    const source held = held_in(graph_, sizes_, tensor);
    return is_settled(tensor) && is_settled(held);
  }

  // An input that nobody reads afterwards, whose memory the op takes for its output; -1: none.
  int in_place(int node, const tensor_size& output) const {
    if (!may_write_in_place(graph_.op(node))) return -1;
    for (const source& s : graph_.inputs(node)) {
      if (s.is_control()) continue;
      const source root = root_of(graph_, s);
      const int id = storage_of(root);
      const tensor_size* size = sizes_.find(s);
      if (shares_storage(root)) continue;  // other parts of the storage are read later, maybe
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
    const bool backward = step_.backward[at(node)];
    for (const int port : graph_.ports_read(node)) {
      const source tensor{node, port};
      const tensor_size* size = sizes_.find(tensor);
      if (size == nullptr || size->elements == 0) continue;
      if (shares_storage(tensor)) {
        if (const int id = storage_of(held_in(graph_, sizes_, tensor)); id >= 0) storage_[tensor] = id;
        continue;
      }
      const int block = block_of(tensor);
      if (block < 0 && size->bytes() < threshold_) continue;
      int id = block < 0 ? in_place(node, *size) : -1;
      if (id < 0) {
        const stashed_block* b = block < 0 ? nullptr : &step_.blocks[at(block)];
        // What stays as it is has to be something that the planner has no other form for.
        const bool opaque = !backward && is_settled(tensor);
        id = add_storage(graph_.tensor_name(tensor), backward ? "gradient" : "feature_map",
                         opaque ? "s32" : type_name(size->type), size->elements, size->bytes(),
                         b == nullptr || opaque ? 1 : b->density, 0);
      }
      if (block >= 0) result_.storage_of_block[at(block)] = id;
      storage_[tensor] = id;
      outputs.push_back({{"storage", id}});
    }
    return outputs;
  }

  json add_optional_outputs(int node) {
    json optional = json::array();
    if (const auto it = pooled_by_.find(node); it != pooled_by_.end()) {
      const tensor_size* y = sizes_.find({node, 0});
      for (const int k : it->second) {
        if (y == nullptr || y->elements == 0) continue;
        int taps = 1;
        for (const std::int64_t n : graph_.node(node).attr().at("ksize").list().i())
          taps *= static_cast<int>(n);
        const int id =
            add_storage(graph_.name(node) + "/taps", "auxiliary", "u8", y->elements, y->elements, 1, taps);
        result_.storage_of_pooling[at(k)] = id;
        optional.push_back(id);
      }
    }
    const int block = block_of({node, 0});
    if (block >= 0 && step_.blocks[at(block)].plan_bits && result_.storage_of_block[at(block)] >= 0) {
      const std::int64_t elements = step_.blocks[at(block)].size.elements;
      const int id = add_storage(graph_.name(node) + "/bits", "auxiliary", "u8", elements, elements, 1, 0);
      result_.bits_of_block[at(block)] = id;
      optional.push_back(id);
    }
    if (block >= 0 && graph_.op(node) == "Cast" && !step_.blocks[at(block)].exact_cast.empty() &&
        step_.blocks[at(block)].raw_because.empty() && result_.storage_of_block[at(block)] >= 0) {
      const stashed_block& b = step_.blocks[at(block)];
      const int id =
          add_storage(graph_.name(node) + "/narrow", "auxiliary", b.exact_cast == "fp16" ? "f16" : "bf16",
                      b.size.elements, b.size.elements * 2, 1, 0);
      result_.exact_cast_of_block[at(block)] = id;
      optional.push_back(id);
    }
    return optional;
  }

  static void add_read(int storage, const std::string& need, json* reads) {
    for (const json& r : *reads)
      if (r["storage"] == storage && r["need"] == need) return;
    reads->push_back({{"storage", storage}, {"need", need}});
  }

  // The op that reads a tensor of the forward pass for this input: the op itself, or the first of the views
  // of the backward pass that it reads it through.
  std::pair<int, int> reader_of(int node, int input) const {
    while (step_.backward[at(graph_.inputs(node)[at(input)].node)]) {
      node = graph_.inputs(node)[at(input)].node;
      input = 0;
    }
    return {node, input};
  }

  // Whatever the name it goes by in the backward pass.
  bool is_of_forward(const source& tensor) const { return !step_.backward[at(root_of(graph_, tensor).node)]; }

  // A tensor of the forward pass that stays as it is and where it is: the planner has nothing to decide.
  bool is_settled(const source& tensor) const {
    const int block = block_of(tensor);
    return block < 0 || !step_.blocks[at(block)].raw_because.empty();
  }

  // What may stand in for a tensor, if an alternative makes use of it.
  struct stand_ins {
    bool narrow = false;  ///< the narrower original of a cast
    bool bits = false;
  };

  // What this op reads of the forward pass, with stand-ins where `options` has them; `found` says which there
  // are.
  json reads_of(int node, stand_ins options, stand_ins* found) const {
    json reads = json::array();
    for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k) {
      const source& s = graph_.inputs(node)[k];
      if (s.is_control() || !is_of_forward(s)) continue;
      const int id = storage_of(s);
      if (id < 0) continue;
      if (is_settled(s)) {
        // Argmaxes may replace what a pooling's gradient reads all the same.
        add_read(id, "exact_value", &reads);
        continue;
      }
      const int block = block_of(s);
      const stashed_block* b = &step_.blocks[at(block)];
      const int narrow = result_.exact_cast_of_block[at(block)];
      if (narrow >= 0) found->narrow = true;
      if (narrow >= 0 && options.narrow) {
        add_read(narrow, "value", &reads);
        continue;
      }
      const int bits = result_.bits_of_block[at(block)];
      const auto [read_by, at_input] = reader_of(node, static_cast<int>(k));
      for (const stash_reader& r : b->readers) {
        if (r.node != read_by || r.input != at_input) continue;
        const bool bits_do = bits >= 0 && reads_bits(graph_, *b, r);
        if (bits_do) found->bits = true;
        if (bits_do && options.bits) {
          add_read(bits, "mask", &reads);
          continue;
        }
        for (const std::string& need : r.needs)
          add_read(id, need, &reads);
      }
    }
    return reads;
  }

  json alternatives_of(int node) {
    json alternatives = json::array();
    stand_ins found;
    json reads = reads_of(node, {}, &found);
    const auto pool = pooling_of_.find(node);
    if (pool != pooling_of_.end() && result_.storage_of_pooling[at(pool->second)] >= 0) {
      const pooling& p = step_.poolings[at(pool->second)];
      const bool joint = p.relu_backward >= 0;
      if (joint) {
        stand_ins ignored;
        for (const json& r : reads_of(p.relu_backward, {}, &ignored))
          add_read(r["storage"], r["need"], &reads);
      }
      // What the pair needs of the maps is what its ops read of them; nothing of it is needed in
      // addition to the taps.
      if (!reads.empty()) alternatives.push_back({{"form", "from_maps"}, {"reads", reads}});
      json taps = json::array();
      add_read(result_.storage_of_pooling[at(pool->second)], joint ? "sign_window" : "window", &taps);
      alternatives.push_back({{"form", joint ? "from_code" : "from_index"}, {"reads", taps}});
      result_.op_of_pooling[at(pool->second)] = static_cast<int>(ops_.size());
      return alternatives;
    }
    if (reads.empty()) return alternatives;
    alternatives.push_back({{"form", "from_maps"}, {"reads", reads}});
    if (found.narrow)
      alternatives.push_back({{"form", "from_narrow"}, {"reads", reads_of(node, {true, false}, &found)}});
    if (found.bits)
      alternatives.push_back({{"form", "from_bits"}, {"reads", reads_of(node, {false, true}, &found)}});
    return alternatives;
  }

  void add_op(int node) {
    if (absorbed_.count(node) != 0) return;
    const bool backward = step_.backward[at(node)];
    json inputs = json::array();
    std::set<int> seen;
    for (const source& s : graph_.inputs(node)) {
      if (s.is_control()) continue;
      // What was there before the backward pass is in the alternatives.
      if (backward && is_of_forward(s)) continue;
      const int id = storage_of(s);
      if (id >= 0 && seen.insert(id).second) inputs.push_back({{"storage", id}});
    }
    json alternatives = backward ? alternatives_of(node) : json::array();
    json outputs = add_outputs(node);
    // A workspace is there while the op runs, like a result that nobody reads.
    const bool has_workspace = !step_.on_device && pooling_of_.count(node) == 0;
    if (const std::int64_t workspace =
            has_workspace ? workspace_bytes(graph_, node, sizes_, step_.threads) : 0;
        workspace >= threshold_ && workspace > 0)
      outputs.push_back(
          {{"storage", add_storage(graph_.name(node) + "/workspace", backward ? "gradient" : "feature_map",
                                   "s32", 0, workspace, 1, 0)}});
    if (const auto pool = pooling_of_.find(node); backward && pool != pooling_of_.end()) {
      const int relu = step_.poolings[at(pool->second)].relu_backward;
      // The pair is one op, and its result goes by the ReLU's name.
      if (relu >= 0)
        if (const int id = storage_of({node, 0}); id >= 0) storage_[{relu, 0}] = id;
    }
    json optional = backward ? json::array() : add_optional_outputs(node);
    if (inputs.empty() && outputs.empty() && alternatives.empty()) return;
    json o = {{"name", unique(graph_.name(node), &op_names_)},
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
  std::map<source, int> storage_;
  std::map<int, int> pooling_of_;
  std::map<int, std::vector<int>> pooled_by_;
  std::map<int, int> absorbed_;
  std::set<std::string> storage_names_, op_names_;
  json storages_ = json::array(), ops_ = json::array();
  planner_graph result_;
};

}  // namespace

planner_graph make_planner_graph(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                                 const std::vector<int>& order) {
  return builder(graph, analysis, sizes, order).run();
}

std::string make_lists_graph(const step& analysis) {
  json storages = json::array(), ops = json::array(), outputs = json::array();
  const auto add_op = [&](std::string name, const char* stage) -> json& {
    ops.push_back({{"name", std::move(name)},
                   {"kind", "generic"},
                   {"label", "while"},
                   {"stage", stage},
                   {"inputs", json::array()},
                   {"outputs", json::array()}});
    return ops.back();
  };
  add_op("forward loops", "forward");
  add_op("what follows", "forward");
  std::int64_t all = 0;
  for (const listed_block& b : analysis.lists) {
    const tensor_size& size = b.element.size;
    const std::int64_t trips = std::max<std::int64_t>(b.trips, 1);
    const auto id = storages.size();
    const std::string name = "list " + std::to_string(id);
    all += size.bytes() * trips;
    storages.push_back({{"name", name},
                        {"role", "feature_map"},
                        {"type", type_name(size.type)},
                        {"shape", {size.elements * trips}},
                        {"bytes_per_sample", size.bytes() * trips},
                        {"density", 1}});
    outputs.push_back({{"storage", id}});
    json reads = json::array();
    for (const std::string& need : all_needs(b))
      reads.push_back({{"storage", id}, {"need", need}});
    add_op("backward loop of " + name, "backward")["alternatives"] =
        json::array({{{"form", "from_list"}, {"reads", std::move(reads)}}});
  }
  ops[0]["outputs"] = std::move(outputs);
  // The peak lies between the passes, where every list is full. A backward loop decodes one element at a
  // time, not a whole list, as this graph has it.
  storages.push_back({{"name", "all else"},
                      {"role", "feature_map"},
                      {"type", "s32"},
                      {"shape", {all / 4 + 1}},
                      {"bytes_per_sample", (all / 4 + 1) * 4},
                      {"density", 1}});
  ops[1]["outputs"] = json::array({{{"storage", storages.size() - 1}}});
  json graph = {{"format", "stash.graph"},         {"version", 1},
                {"name", "lists of loops"},        {"batch", 1},
                {"storages", std::move(storages)}, {"ops", std::move(ops)}};
  return graph.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace stash_tf
