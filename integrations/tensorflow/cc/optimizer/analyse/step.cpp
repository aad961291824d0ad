// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/step.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "optimizer/analyse/backward.hpp"
#include "optimizer/analyse/need_propagation.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/edge_order.hpp"
#include "optimizer/graph/list_sources.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/simulate/folding.hpp"

namespace stash_tf {

namespace {

using tensorflow::DataType;

constexpr std::int64_t smallest_element = 1024;  // bytes of an iteration: a decoder costs time, too
constexpr std::int64_t few_trips = 16;           // of a loop of which nothing says how often it runs
constexpr double zeros_of_a_relu = 0.5;  // with weights drawn symmetrically around zero; measured later

bool is_storable(DataType type) {
  return type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16 ||
         type == tensorflow::DT_BOOL;
}

bool belongs_to(const std::string& node_name, const std::string& layer) {
  for (const std::string_view part : absl::StrSplit(node_name, '/')) {
    if (part == layer) return true;
    // Keras numbers the scope of a layer that is called again: conv2d_1 for the second call of conv2d.
    if (part.size() > layer.size() + 1 && absl::StartsWith(part, layer) && part[layer.size()] == '_' &&
        part.find_first_not_of("0123456789", layer.size() + 1) == std::string_view::npos)
      return true;
  }
  return false;
}

bool is_kept(const settings& request, const std::string& node_name) {
  return std::any_of(request.keep.begin(), request.keep.end(),
                     [&](const std::string& layer) { return belongs_to(node_name, layer); });
}

// Control flow that is one node: its end is the end of all that it does.
bool is_call(const std::string& op) {
  return absl::EndsWith(op, "PartitionedCall") || absl::EndsWith(op, "If") || absl::EndsWith(op, "While") ||
         absl::EndsWith(op, "Case");
}

class analyser {
 public:
  analyser(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
           const std::set<std::string>& preserved)
      : graph_(graph), sizes_(sizes), request_(request), preserved_(preserved) {}

  step run() {
    step_.order = graph_.topological_order();
    step_.backward = backward_nodes(graph_);
    data_ = depends_on_data(graph_, step_.order);
    inputs_ = made_of_inputs(graph_, step_.order);
    late_ = after_a_gradient(graph_, step_.order, step_.backward);
    propagation_ = std::make_unique<need_propagation>(graph_, step_.order, step_.backward, late_);
    flow_ = std::make_unique<control_flow>(graph_, step_.order);
    rank_ = graph_.positions(step_.order);
    edges_ = std::make_unique<edge_order>(graph_, step_.order);
    is_simple_ = step_.order.size() == at(graph_.size());
    for (int i = 0; i < graph_.size(); ++i)
      is_simple_ = is_simple_ && !is_next_iteration(graph_.op(i));
    follows_.assign(at(graph_.size()), false);
    for (const int node : step_.order) {
      if (!step_.backward[at(node)]) continue;
      for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k)
        add_reader(node, static_cast<int>(k));
    }
    for (const int node : step_.order)
      if (is_compiled(node)) add_unknown(graph_.name(node));
    for (stashed_block& b : step_.blocks) {
      settle(&b);
      step_.on_device = step_.on_device || is_off_host(b);
    }
    find_lists();
    find_poolings();
    step_.device_node = find_device_node();
    if (step_.blocks.empty() && step_.device_node >= 0) step_.on_device = is_on_gpu(step_.device_node);
    const output_sizes outputs(graph_, graph_, sizes_, step_, {});
    step_.folded = folded_nodes(graph_, step_.order, outputs, step_.on_device);
    return std::move(step_);
  }

 private:
  void add_unknown(const std::string& name) {
    if (step_.unknown_sizes++ == 0) step_.unknown_size = name;
  }

  // XLA takes as much memory as it likes: grouped convolutions, which Keras compiles on CPUs, take many times
  // their maps.
  bool is_compiled(int node) const {
    const auto must = graph_.node(node).attr().find("_XlaMustCompile");
    return must != graph_.node(node).attr().end() && must->second.b();
  }

  int find_device_node() const {
    if (!step_.blocks.empty()) return step_.blocks.front().root.node;
    for (const int node : step_.order)
      if (step_.backward[at(node)] && flow_->frame(node) > 0) return node;
    // A budget is for steps without large tensors, too: later batches may be larger, and it may be too small.
    for (const int node : step_.order)
      if (request_.budget_bytes > 0 && step_.backward[at(node)]) return node;
    return -1;
  }

  void find_lists() {
    const loops all(graph_, step_.order);
    for (const carried_list& list : carried_lists(graph_)) {
      // The ops on the list come from the gradient, wherever they run.
      if (step_.backward[at(list.element.node)] || !step_.backward[at(list.pop)]) continue;
      const tensor_size* size = sizes_.find(list.element);
      const std::int64_t trips = all[all.loop_of(list.push)].trips;
      if (size == nullptr || !is_storable(size->type) || size->bytes() < smallest_element ||
          size->bytes() * std::max<std::int64_t>(trips, few_trips) < request_.min_bytes ||
          has_one_buffer(list.element))
        continue;
      listed_block b;
      b.list = list;
      b.trips = trips;
      b.element.tensor = list.element;
      b.element.root = root_of(graph_, list.element);
      b.element.size = *size;
      for (const reader& r : graph_.readers(list.pop))
        if (r.port == 1) add_reader_of_list(r, &b.element);
      if (is_on_gpu(list.push)) b.element.raw_because = "on a GPU TensorFlow has no lists of encoded bytes";
      const std::string& device = graph_.node(list.push).device();
      for (const int other : {list.element.node, list.begin, list.pop})
        if (b.element.raw_because.empty() && graph_.node(other).device() != device)
          b.element.raw_because = "read on another device than it was written on";
      settle(&b.element);
      b.element.movable = b.element.plan_bits = false;
      b.element.bits.clear();
      if (!b.element.readers.empty()) step_.lists.push_back(std::move(b));
    }
  }

  // The same memory in each iteration: a weight, or what a loop was given and leaves as it is.
  bool has_one_buffer(const source& element) const {
    const source held = held_in(graph_, sizes_, element);
    if (is_held_elsewhere(graph_.op(held.node)) || is_enter(graph_.op(held.node))) return true;
    if (!is_switch(graph_.op(held.node))) return false;
    const source merge = graph_.inputs(held.node)[0];
    if (!is_merge(graph_.op(merge.node))) return false;
    for (const source& s : graph_.inputs(merge.node)) {
      if (!is_next_iteration(graph_.op(s.node))) continue;
      const source next = held_in(graph_, sizes_, graph_.inputs(s.node)[0]);
      if (is_switch(graph_.op(next.node)) && graph_.inputs(next.node)[0] == merge) return true;
    }
    return false;
  }

  void add_reader_of_list(const reader& read, stashed_block* b) {
    stash_reader r;
    r.node = read.node;
    r.input = read.input;
    r.tensor = b->tensor;
    if (!reads_shape(graph_, read.node)) {
      r.needs = needs_of(b->size, b->root, read.node, read.input);
      r.gate = gate_of(read.node, read.input);
    }
    if (b->raw_because.empty() && !step_.backward[at(read.node)])
      b->raw_because = "read outside of the backward pass";
    if (b->raw_because.empty() && is_control_flow(graph_.op(read.node)))
      b->raw_because = "read by control flow (" + graph_.op(read.node) + ")";
    if (b->raw_because.empty() && is_list_op(graph_.op(read.node)))
      b->raw_because = "goes on into another list";
    b->readers.push_back(std::move(r));
  }

  // What a reader needs of a tensor of the forward pass.
  std::vector<std::string> needs_of(const tensor_size& size, const source& root, int node, int input) const {
    if (size.type == tensorflow::DT_BOOL) return {"mask"};
    std::vector<std::string> needs = propagation_->needs(node, input);
    // Pictures have 8 bits, of which narrow formats leave four, and the first layer sees how they differ.
    if (is_made_of_inputs(root) || needs_fine_values(graph_, root.node, node, input))
      std::replace(needs.begin(), needs.end(), std::string("value"), std::string("fine_value"));
    if (is_spread(size, node))
      std::replace(needs.begin(), needs.end(), std::string("value"), std::string("exact_value"));
    return needs;
  }

  // Also in a slice of an input over which a loop goes.
  bool is_made_of_inputs(const source& root) const {
    if (inputs_[at(root.node)]) return true;
    if (graph_.op(root.node) != "TensorListGetItem") return false;
    const std::vector<source> wholes = sources_of_list(graph_, graph_.inputs(root.node)[0]).wholes;
    return std::any_of(wholes.begin(), wholes.end(),
                       [&](const source& whole) { return inputs_[at(root_of(graph_, whole).node)]; });
  }

  void add_reader(int node, int input) {
    const source read = graph_.inputs(node)[at(input)];
    if (read.is_control() || step_.backward[at(read.node)]) return;
    const source root = root_of(graph_, read);
    const tensor_size* size = sizes_.find(read);
    // A part of what the caller holds costs nothing while it is read as it is.
    if (is_held_elsewhere(graph_.op(held_in(graph_, sizes_, read).node)) || !data_[at(root.node)]) return;
    if (size == nullptr) {
      if (is_control_flow(graph_.op(node)) || is_control_flow(graph_.op(root.node))) return;
      step_.left.push_back({graph_.name(node), graph_.op(node), "the size of what it reads is not known"});
      if (flow_->frame(node) == 0 && sizes_.is_unknown_number(read)) add_unknown(graph_.tensor_name(root));
      return;
    }
    if (!is_storable(size->type)) return;
    if (size->bytes() < request_.min_bytes) return;

    const auto [entry, is_new] = step_.block_of.emplace(root, static_cast<int>(step_.blocks.size()));
    if (is_new) {
      stashed_block b;
      b.tensor = read;
      b.root = root;
      b.size = *size;
      step_.blocks.push_back(std::move(b));
    }
    stashed_block& b = step_.blocks[at(entry->second)];
    stash_reader r;
    r.node = node;
    r.input = input;
    r.tensor = read;
    r.needs = needs_of(*size, root, node, input);
    r.gate = gate_of(node, input);
    const auto keep_raw = [&](const std::string& why) {
      if (b.raw_because.empty()) b.raw_because = why;
    };
    if (is_control_flow(graph_.op(node))) keep_raw("read by control flow (" + graph_.op(node) + ")");
    if (is_control_flow(graph_.op(root.node)))
      keep_raw("comes out of control flow (" + graph_.op(root.node) + ")");
    if (r.gate < 0) keep_raw("nothing says when " + graph_.name(node) + " runs");
    if (graph_.node(node).device() != graph_.node(root.node).device())
      keep_raw("read on another device than it was written on");
    b.readers.push_back(std::move(r));
  }

  // What is spread over something much larger, as norms have a mean and a factor for each channel or row:
  // what it is rounded by, all of that is off by, and so is every gradient in front of it. Little is saved by
  // it.
  bool is_spread(const tensor_size& operand, int node) const {
    static const std::set<std::string> ops = {
        "Mul", "MulNoNan", "RealDiv", "Div", "DivNoNan", "Add", "AddV2", "Sub", "SquaredDifference"};
    const tensor_size* result = sizes_.find({node, 0});
    return ops.count(graph_.op(node)) != 0 && result != nullptr && result->elements >= 8 * operand.elements;
  }

  // The last of the reader's inputs that the backward pass computes; a decoder that waits for it runs right
  // before the reader.
  int gate_of(int node, int input) {
    int gate = -1;
    const auto consider = [&](const source& s) {
      if (!late_[at(s.node)]) return;
      const std::string& op = graph_.op(s.node);
      if (is_control_flow(op) && op != "Merge" && op != "Exit" && !is_call(op)) return;
      if (gate < 0 || rank_[at(s.node)] > rank_[at(gate)]) gate = s.node;
    };
    for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k) {
      const source& s = graph_.inputs(node)[k];
      if (static_cast<int>(k) != input && step_.backward[at(s.node)] && !s.is_control()) consider(s);
    }
    if (gate >= 0) return gate;
    for (const source& s : graph_.inputs(node))
      if (step_.backward[at(s.node)]) consider(s);
    if (gate >= 0) return gate;
    // An op that stands in backward passes only, fed by a gradient that nobody recognised as one.
    const int dy = gradient_input(graph_.op(node));
    if (dy >= 0 && dy != input) {
      const source& s = graph_.inputs(node)[at(dy)];
      if (!is_control_flow(graph_.op(s.node)) || is_call(graph_.op(s.node))) return s.node;
    }
    return late_[at(node)] ? -1 : lent_gate(node);
  }

  // The derivative of an activation may be computed from the forward pass alone. Its turn comes when what it
  // is multiplied with is there: the earliest such gradient, by an edge that makes no cycle with those lent
  // before.
  int lent_gate(int node) {
    const auto found = lent_.find(node);
    if (found != lent_.end()) return found->second;
    const std::vector<int> near = met_after(node, false);
    int gate = earliest(node, near, [&](int i) { return !edges_->leads_to(node, i); });
    // By way of derivatives that have been lent a gate the node may meet earlier gradients, which these met.
    const bool far = gate < 0 ? !lent_to_.empty() : earliest_met_ < rank_[at(gate)];
    if (far || !is_simple_) {
      const std::vector<int> all = met_after(node, true);
      gate = earliest(node, all, [&](int i) { return !follows_[at(i)]; });
    }
    lent_[node] = gate;
    if (gate < 0) return gate;
    lent_to_[gate].push_back(node);
    if (is_simple_) edges_->add(gate, node);
    for (const int i : near)
      earliest_met_ = std::min(earliest_met_, rank_[at(i)]);
    return gate;
  }

  template <class Allowed>
  int earliest(int node, const std::vector<int>& met, const Allowed& allowed) const {
    int gate = -1;
    for (const int i : met)
      if ((gate < 0 || rank_[at(i)] < rank_[at(gate)]) && flow_->may_wait(node, i) && allowed(i)) gate = i;
    return gate;
  }

  // Gradients that meet what follows from a node, up to these, or, with `all`, whatever follows by the graph
  // and the gates lent. follows_ says what was found to follow.
  std::vector<int> met_after(int node, bool all) {
    std::vector<int> queue = {node}, marked = {node};
    for (const int i : found_)
      follows_[at(i)] = false;
    follows_[at(node)] = true;
    const auto add = [&](int i) {
      if (follows_[at(i)] || (!all && late_[at(i)])) return;
      follows_[at(i)] = true;
      marked.push_back(i);
      queue.push_back(i);
    };
    std::vector<int> meeting;
    while (!queue.empty()) {
      const int i = queue.back();
      queue.pop_back();
      for (const int next : graph_.after(i))
        add(next);
      if (is_next_iteration(graph_.op(i))) continue;
      for (const reader& r : graph_.readers(i)) {
        if (late_[at(i)] || !late_[at(r.node)]) continue;
        for (const source& s : graph_.inputs(r.node))
          if (!s.is_control() && late_[at(s.node)]) meeting.push_back(s.node);
      }
      const auto lent = all ? lent_to_.find(i) : lent_to_.end();
      if (lent != lent_to_.end())
        for (const int waiting : lent->second)
          add(waiting);
    }
    found_ = std::move(marked);
    return meeting;
  }

  void settle(stashed_block* b) const {
    const auto keep_raw = [&](const std::string& why) {
      if (b->raw_because.empty()) b->raw_because = why;
    };
    const std::string& name = graph_.name(b->root.node);
    if (is_kept(request_, name) || is_kept(request_, graph_.name(b->tensor.node)))
      keep_raw("the user keeps this layer");
    if (preserved_.count(name) != 0) keep_raw("is a result of the function");
    // Of several views, one that is read for its values: who reads bits does not mind, and who reads values
    // under other dimensions decodes them with those.
    const auto reads_values = [&](const stash_reader& r) { return bits_for(graph_, r).empty(); };
    if (const auto first = std::find_if(b->readers.begin(), b->readers.end(), reads_values);
        first != b->readers.end())
      b->tensor = first->tensor;
    b->movable = b->raw_because.empty() && is_off_host(*b);
    if (const auto need = request_.needs.find(graph_.tensor_name(b->tensor)); need != request_.needs.end()) {
      for (stash_reader& r : b->readers)
        for (std::string& n : r.needs)
          if (n == "value" || n == "fine_value") n = need->second;
    }
    const auto measured = request_.densities.find(graph_.tensor_name(b->tensor));
    if (measured != request_.densities.end()) {
      b->density = std::min(1.0, std::max(0.0, measured->second));
    } else if (makes_zeros(graph_, b->root.node)) {
      b->density = zeros_of_a_relu;
    }
    settle_bits(b);
    if (graph_.op(b->root.node) == "Cast" && b->size.type == tensorflow::DT_FLOAT) {
      const auto from = graph_.node(b->root.node).attr().find("SrcT");
      if (from != graph_.node(b->root.node).attr().end()) {
        if (from->second.type() == tensorflow::DT_HALF) b->exact_cast = "fp16";
        if (from->second.type() == tensorflow::DT_BFLOAT16) b->exact_cast = "bf16";
      }
    }
  }

  void settle_bits(stashed_block* b) const {
    if (!b->raw_because.empty()) return;
    bool more = false;
    std::string bits;
    for (const stash_reader& r : b->readers) {
      if (const std::string found = bits_for(graph_, r); !found.empty()) {
        bits = found;
      } else {
        more = true;
      }
    }
    if (more) b->bits = bits;
    // Rounded values keep their signs, but do not say which of them were cut off.
    b->plan_bits = b->bits == "range_mask" && request_.policy != "lossless";
  }

  const tensorflow::AttrValue* attr(int node, const char* name) const {
    const auto it = graph_.node(node).attr().find(name);
    return it == graph_.node(node).attr().end() ? nullptr : &it->second;
  }

  bool same_attr(int a, int b, const char* name) const {
    const tensorflow::AttrValue* x = attr(a, name);
    const tensorflow::AttrValue* y = attr(b, name);
    if (x == nullptr || y == nullptr) return x == y;
    return x->SerializeAsString() == y->SerializeAsString();
  }

  // Whether it lives in another memory than the host's.
  bool is_off_host(const stashed_block& b) const {
    return request_.device_bytes > 0 || is_on_gpu(b.root.node);
  }

  bool is_on_gpu(int node) const { return absl::StrContains(graph_.node(node).device(), "GPU"); }

  static int taps_of(const tensorflow::AttrValue& ksize) {
    int taps = 1;
    for (const std::int64_t n : ksize.list().i())
      taps *= static_cast<int>(std::min<std::int64_t>(n, 1 << 10));
    return taps;
  }

  static bool overlap(const tensorflow::AttrValue& ksize, const tensorflow::AttrValue& strides) {
    for (int k = 0; k < ksize.list().i_size() && k < strides.list().i_size(); ++k)
      if (strides.list().i(k) < ksize.list().i(k)) return true;
    return false;
  }

  // Why argmax would not give the gradient of TensorFlow's kernel bit by bit; empty: they do.
  std::string not_exact(int backward, const tensorflow::AttrValue& ksize, tensorflow::DataType type) const {
    if (is_on_gpu(backward)) return "";
    if (graph_.op(backward) == "MaxPool3DGrad") {
      return "TensorFlow's kernel gives the gradient to all of several equal maxima, which argmax "
             "cannot reproduce";
    }
    const tensorflow::AttrValue* strides = attr(backward, "strides");
    const bool narrow = type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16;
    if (narrow && (strides == nullptr || overlap(ksize, *strides))) {
      return "TensorFlow's kernel rounds to 16 bits after every window that it adds where windows overlap, "
             "argmax only once";
    }
    return "";
  }

  void find_poolings() {
    for (const int node : step_.order) {
      const std::string& op = graph_.op(node);
      if (op != "MaxPoolGrad" && op != "MaxPool3DGrad") continue;
      const source y = graph_.inputs(node)[1];
      const int forward = y.node;
      if (graph_.op(forward) != (op == "MaxPoolGrad" ? "MaxPool" : "MaxPool3D") ||
          step_.backward[at(forward)])
        continue;
      if (!(graph_.inputs(forward)[0] == graph_.inputs(node)[0])) continue;
      bool same = true;
      for (const char* name : {"ksize", "strides", "padding", "explicit_paddings", "data_format", "T"})
        same = same && same_attr(forward, node, name);
      const tensorflow::AttrValue* ksize = attr(node, "ksize");
      const tensorflow::AttrValue* type = attr(node, "T");
      if (!same || ksize == nullptr || type == nullptr || !is_storable(type->type())) continue;
      if (graph_.node(node).device() != graph_.node(forward).device()) continue;
      const auto& sides = ksize->list().i();
      const auto* format = attr(node, "data_format");
      const bool channels_first = format != nullptr && absl::StartsWith(format->s(), "NC");
      const int channel = channels_first ? 1 : sides.size() - 1;
      if (sides.size() < 4 || sides[0] != 1 || sides[channel] != 1 || taps_of(*ksize) > 256) continue;
      if (is_kept(request_, graph_.name(forward))) continue;
      const std::string why = is_lossy(request_) ? "" : not_exact(node, *ksize, type->type());
      if (!why.empty()) {
        step_.left.push_back({graph_.name(node), op, why});
        continue;
      }
      // Loss scaling, which half needs, looks for infinite gradients. Where one passes nowhere, TensorFlow's
      // ReLU makes NaN of it; the joint form does not look at it.
      const bool looked_at = type->type() == tensorflow::DT_HALF && !is_lossy(request_);
      pooling p;
      p.forward = forward;
      p.backward = node;
      p.relu_backward = taps_of(*ksize) <= 15 && !looked_at ? joint_relu(forward, node) : -1;
      step_.poolings.push_back(p);
    }
  }

  // The gradient of the ReLU whose output is read by this pooling and by nobody else, forward or backward.
  int joint_relu(int forward, int backward) const {
    const source x = graph_.inputs(forward)[0];
    // The pooling would take other tensors for the output of a ReLU: nothing negative would pass it.
    if (!is_relu(graph_, x.node) || graph_.readers(backward).size() != 1) return -1;
    const reader follower = graph_.readers(backward)[0];
    if (graph_.op(follower.node) != "ReluGrad" || follower.input != 0) return -1;
    if (!(graph_.inputs(follower.node)[1] == x)) return -1;
    for (const reader& r : graph_.readers(x.node)) {
      if (r.port != x.port && r.port >= 0) continue;
      const bool pool_reads = r.node == forward || r.node == backward || r.node == follower.node;
      if (r.port >= 0 && !pool_reads) return -1;
    }
    return follower.node;
  }

  const graph_view& graph_;
  const tensor_sizes& sizes_;
  const settings& request_;
  const std::set<std::string>& preserved_;
  std::vector<bool> data_, inputs_, late_;
  std::unique_ptr<need_propagation> propagation_;
  std::unique_ptr<control_flow> flow_;
  std::map<int, int> lent_;                             // gates, by reader
  std::map<int, std::vector<int>> lent_to_;             // the same by gate
  int earliest_met_ = std::numeric_limits<int>::max();  // rank of the first gradient met by any of these
  std::unique_ptr<edge_order> edges_;                   // with those gates
  bool is_simple_ = false;                              // no loops, and no cycle
  std::vector<bool> follows_;                           // met_after()
  std::vector<int> found_;
  std::vector<int> rank_;
  step step_;
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

std::string layer_of(const std::string& node_name) {
  const std::vector<std::string> parts = absl::StrSplit(node_name, '/');
  return parts.size() < 2 ? node_name : parts[parts.size() - 2];
}

step analyse(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
             const std::set<std::string>& preserved) {
  return analyser(graph, sizes, request, preserved).run();
}

std::vector<std::string> unknown_layers(const graph_view& graph, const std::vector<std::string>& layers) {
  std::vector<std::string> unknown;
  for (const std::string& layer : layers) {
    bool found = false;
    for (int i = 0; i < graph.size() && !found; ++i)
      found = belongs_to(graph.name(i), layer);
    if (!found) unknown.push_back(layer);
  }
  return unknown;
}

}  // namespace stash_tf
