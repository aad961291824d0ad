// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/rewrite.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/host_moves.hpp"
#include "optimizer/rewrite/node_edits.hpp"
#include "optimizer/rewrite/temporaries.hpp"
#include "optimizer/rewrite/unused_names.hpp"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;

class rewriter {
 public:
  // `start` holds a copy of the original, or that with what a rewriter has added after it.
  rewriter(rewritten start, const graph_view& graph, const step& analysis, const control_flow& flow)
      : graph_(graph), step_(analysis), flow_(flow), result_(std::move(start)), names_(result_.graph) {
    position_ = graph.positions(analysis.order);
  }

  void apply(const choices& chosen, const ordering& ordered, const std::vector<int>& op_nodes) {
    moves_ = std::make_unique<host_moves>(graph_, flow_, ordered, op_nodes);
    for (const auto& [first, second] : ordered.masks)
      masks_[first].push_back(second);
    // Pooling first: it changes who reads the maps.
    for (std::size_t k = 0; k < step_.poolings.size(); ++k)
      if (chosen.poolings[k] != pooling_choice::from_maps)
        apply_pooling(step_.poolings[k], chosen.poolings[k], chosen.taps_on_host[k]);
    for (std::size_t k = 0; k < step_.blocks.size(); ++k) {
      const block_choice& choice = chosen.blocks[k];
      apply_bits(step_.blocks[k], choice);
      if (!choice.encoding.empty()) {
        apply_block(step_.blocks[k], choice);
      } else if (choice.on_host.moves) {
        move_raw(step_.blocks[k], choice);
      }
    }
    for (const auto* pairs : {&ordered.pairs, &ordered.masks})
      for (const auto& [first, second] : *pairs)
        wait_for(second, graph_.name(first));
    for (const late_source& late : ordered.late)
      wait_for(late.node, turn_after(late.met, late.type));
    for (const auto& [first, variable] : first_terms(graph_, step_.order, flow_))
      wait_for(variable, graph_.name(first));
  }

  void refuse(const std::string& message) {
    // It has no inputs and stands outside of loops and branches, so that it runs first and always; all else
    // waits for it. What has begun when a step ends is not always taken back: a TemporaryVariable, which
    // TensorFlow's memory optimizer makes for sums, is left over and is in the way of every later step.
    NodeDef* n = add_node("stash/refused", "StashRefuse", step_.device_node);
    (*n->mutable_attr())["message"].set_s(message);
    const std::string name = n->name();
    for (int i = 0; i < graph_.size(); ++i) {
      const bool begins = absl::EndsWith(graph_.op(i), "Enter");
      const bool outside = begins ? graph_.inputs(i).empty() || flow_.frame(graph_.inputs(i)[0].node) == 0
                                  : flow_.frame(i) == 0;
      if (outside && (begins || may_wait_to_begin(graph_.op(i)))) wait_for(i, name);
    }
  }

  // True if a tensor tells the samples. Blocks first; inputs of the step where each block has the batch twice
  // or not at all.
  bool count_samples(const tensor_sizes& sizes) {
    for (const stashed_block& b : step_.blocks)
      if (!b.readers.empty() && flow_.may_wait(b.readers.front().node, b.tensor.node) &&
          count_samples_of(b.tensor, b.size, sizes.batch(), b.readers.front().node))
        return true;
    for (const int i : step_.order) {
      if (!is_held_elsewhere(graph_.op(i)) || flow_.frame(i) != 0) continue;
      for (const reader& r : graph_.readers(i)) {
        const tensor_size* size = r.port < 0 ? nullptr : sizes.find({i, r.port});
        if (size != nullptr && may_wait_for_input(r.node, i) &&
            count_samples_of({i, r.port}, *size, sizes.batch(), r.node))
          return true;
      }
    }
    return false;
  }

  rewritten take() { return std::move(result_); }

 private:
  // Nobody reads the op's output: it runs because a reader of its tensor waits for it.
  bool count_samples_of(const source& counted, const tensor_size& size, std::int64_t batch, int reader) {
    const std::int64_t per_sample = size.sample_elements(batch);
    if (per_sample < 1 || !(tensorflow::DataTypeIsFloating(size.type) || size.type == tensorflow::DT_BOOL))
      return false;
    const std::string tensor = graph_.tensor_name(counted);
    NodeDef* n = add_node(graph_.name(counted.node) + "/stash_batch", "StashBatch", reader);
    n->add_input(tensor);
    (*n->mutable_attr())["T"].set_type(size.type);
    (*n->mutable_attr())["per_sample"].set_i(per_sample);
    (*n->mutable_attr())["tensor"].set_s(tensor);
    const std::string name = n->name();  // adding nodes moves them
    wait_for(reader, name);
    return true;
  }

  // Whether this reader of an input of the step, which runs always, may wait for another reader. What only
  // asks for a shape may be gone before the step runs.
  bool may_wait_for_input(int reader, int input) const {
    const std::string& op = graph_.op(reader);
    return graph_.node(reader).device() == graph_.node(input).device() && op != "Shape" && op != "ShapeN" &&
           op != "Size" && !is_alias(op) && !is_fused_later(graph_, reader) && flow_.may_wait(reader, reader);
  }

  NodeDef* node(int i) { return result_.graph.mutable_node(i); }

  NodeDef* add_node(const std::string& base_name, const char* op, int like) {
    NodeDef* n = result_.graph.add_node();
    n->set_name(names_.take(base_name));
    n->set_op(op);
    n->set_device(graph_.node(like).device());
    (*n->mutable_attr())[mark].set_b(true);
    // Others that come later must not take an encoder for a node without effect.
    (*n->mutable_attr())["_grappler_do_not_remove"].set_b(true);
    return n;
  }

  void wait_for(int waiting, const std::string& name) { add_control_edge(node(waiting), name); }

  // The name of a node that runs when a tensor is there. A control edge from the tensor's own op would keep
  // oneDNN from making one op of it and those before it.
  const std::string& turn_after(const source& tensor, tensorflow::DataType type) {
    std::string& name = turns_[tensor];
    if (!name.empty()) return name;
    NodeDef* n = add_node(absl::StrCat(graph_.name(tensor.node), "/stash_turn"), "Identity", tensor.node);
    n->add_input(graph_.tensor_name(tensor));
    (*n->mutable_attr())["T"].set_type(type);
    name = n->name();
    return name;
  }

  static bool may_wait_to_begin(const std::string& op) {
    return op != "Const" && !is_control_flow(op) && !is_outside(op);
  }

  static std::set<std::string> pooling_attrs() {
    return {"T", "ksize", "strides", "padding", "explicit_paddings", "data_format"};
  }

  // What readers take instead of `kept`, which node `from` or its encoder makes: what comes back from the
  // host, or `kept` itself where nobody can say when that should be.
  std::string moved(const std::string& kept, int from, const std::vector<int>& readers, const host_stay& stay,
                    tensorflow::DataType type, const std::string& tensor) {
    const host_move move = moves_->schedule(from, readers, stay);
    if (move.in_after < 0) return kept;
    const auto add = [&](const char* op, const char* suffix, const std::string& input) {
      NodeDef* n = add_node(graph_.name(from) + suffix, op, from);
      n->add_input(input);
      (*n->mutable_attr())["T"].set_type(type);
      (*n->mutable_attr())["tensor"].set_s(tensor);
      return n;
    };
    const std::string out = add("StashSwapOut", "/stash_swap_out", kept)->name();
    NodeDef* in = add("StashSwapIn", "/stash_swap_in", out);
    in->add_input("^" + graph_.name(move.in_after));
    std::string back = in->name();
    if (move.out_by >= 0) wait_for(move.out_by, out);
    result_.moved.insert(tensor);
    return back;
  }

  // All readers take what comes back, or none does.
  void move_raw(const stashed_block& b, const block_choice& choice) {
    const std::vector<const stash_reader*> readers = unserved(b);
    std::vector<int> nodes;
    for (const stash_reader* r : readers) {
      if (!(r->tensor == b.tensor)) return;
      nodes.push_back(r->node);
    }
    if (nodes.empty()) return;
    const std::string tensor = graph_.tensor_name(b.tensor);
    const std::string back = moved(tensor, b.tensor.node, nodes, choice.on_host, b.size.type, tensor);
    if (back == tensor) return;
    for (const stash_reader* r : readers)
      node(r->node)->set_input(r->input, back);
    ++result_.stashes;
  }

  std::vector<const stash_reader*> unserved(const stashed_block& b) const {
    std::vector<const stash_reader*> readers;
    for (const stash_reader& r : b.readers)
      if (served_.count({r.node, r.input}) == 0) readers.push_back(&r);
    return readers;
  }

  void apply_pooling(const pooling& p, pooling_choice choice, const host_stay& stay) {
    const bool joint = choice == pooling_choice::joint;
    const std::string forward = graph_.name(p.forward);
    NodeDef* f = node(p.forward);
    if (f->op() != "StashMaxPool") {
      change_op(f, "StashMaxPool", {f->input(0)}, pooling_attrs());
      (*f->mutable_attr())["joint_relu"].set_b(joint);
      (*f->mutable_attr())["tensor"].set_s(forward + ":taps");
      (*f->mutable_attr())["_grappler_do_not_remove"].set_b(true);
    }
    std::string taps = forward + ":1";
    if (stay.moves)
      taps = moved(taps, p.forward, {p.backward}, stay, tensorflow::DT_UINT8, forward + ":taps");
    NodeDef* b = node(p.backward);
    change_op(b, "StashMaxPoolGrad", {b->input(2), taps, forward + ":2"}, pooling_attrs());
    (*b->mutable_attr())["joint_relu"].set_b(joint);
    (*b->mutable_attr())["tensor"].set_s(forward + ":taps");
    served_.insert({p.backward, 0});
    served_.insert({p.backward, 1});
    if (joint) {
      // The pair's gradient goes on under the name of the ReLU's.
      NodeDef* relu = node(p.relu_backward);
      change_op(relu, "Identity", {relu->input(0)}, {"T"});
      served_.insert({p.relu_backward, 1});
    }
    ++result_.stashes;
  }

  // The bits that some readers take, in addition to what the others read.
  void apply_bits(const stashed_block& b, const block_choice& choice) {
    std::vector<const stash_reader*> takers;
    std::vector<int> nodes;
    for (const stash_reader* r : unserved(b)) {
      if (choice.bit_readers.count(r->node) == 0 || !reads_bits(graph_, b, *r)) continue;
      takers.push_back(r);
      nodes.push_back(r->node);
    }
    if (takers.empty()) return;
    const std::string dense = graph_.tensor_name(b.tensor);
    const std::string tensor = dense + bits_suffix;
    NodeDef* encoder = add_node(graph_.name(b.tensor.node) + "/stash_bits", "StashEncode", b.tensor.node);
    const std::string stored = encoder->name();
    encoder->add_input(dense);
    block_choice bits;
    bits.encoding = b.bits;
    describe_encoding(b.size.type, bits, tensor, encoder);
    std::string back = stored;
    if (choice.bits_on_host.moves)
      back = moved(stored, b.tensor.node, nodes, choice.bits_on_host, tensorflow::DT_UINT8, tensor);
    for (const stash_reader* r : takers) {
      take_bits(graph_.op(r->node), b.bits, back, tensor, node(r->node));
      served_.insert({r->node, r->input});
    }
    hurry(b, stored);
    ++result_.stashes;
  }

  void apply_block(const stashed_block& b, const block_choice& choice) {
    const std::vector<const stash_reader*> readers = unserved(b);
    if (readers.empty()) return;
    const std::string tensor = graph_.tensor_name(b.tensor);
    NodeDef* encoder = add_node(graph_.name(b.tensor.node) + "/stash_encode", "StashEncode", b.tensor.node);
    const std::string stored = encoder->name();
    encoder->add_input(tensor);
    describe_encoding(b.size.type, choice, tensor, encoder);
    std::string back = stored;
    if (choice.on_host.moves) {
      std::vector<int> nodes;
      for (const stash_reader* r : readers)
        nodes.push_back(r->node);
      back = moved(stored, b.tensor.node, nodes, choice.on_host, tensorflow::DT_UINT8, tensor);
    }
    for (const stash_reader* r : readers)
      serve(*r, b, choice, back, stored + ":1", tensor);
    hurry(b, stored);
    ++result_.stashes;
  }

  void serve(const stash_reader& r, const stashed_block& b, const block_choice& choice,
             const std::string& stored, const std::string& dims, const std::string& tensor) {
    // The sign can be read from any form, whether a value was cut off only from the bits that say so.
    const std::string bits = bits_for(graph_, r);
    if (bits == "sign_mask" || (bits == "range_mask" && choice.encoding == bits))
      return take_bits(graph_.op(r.node), choice.encoding, stored, tensor, node(r.node));
    const auto [it, is_new] = decoder_of_.emplace(std::make_pair(r.node, r.tensor), "");
    if (is_new) {
      NodeDef* decoder = add_node(absl::StrCat(graph_.name(r.node), "/stash_decode"), "StashDecode", r.node);
      decoder->add_input(stored);
      decoder->add_input(r.tensor == b.tensor ? dims : dims_of(r.tensor, b.size.type));
      // A constant tells nothing, and TensorFlow would compute what it has folded for those that wait for it.
      if (!step_.folded[at(r.gate)]) decoder->add_input("^" + graph_.name(r.gate));
      describe_encoding(b.size.type, choice, tensor, decoder);
      it->second = decoder->name();
    }
    NodeDef* n = node(r.node);
    n->set_input(r.input, it->second);
    n->mutable_attr()->erase("_output_shapes");
  }

  // The dimensions of a view that is not the one that was encoded: they are known, and take nothing, long
  // before a decoder asks for them.
  std::string dims_of(const source& view, tensorflow::DataType type) {
    std::string& dims = dims_of_[view];
    if (!dims.empty()) return dims;
    NodeDef* shape = add_node(absl::StrCat(graph_.name(view.node), "/stash_dims"), "Shape", view.node);
    shape->add_input(graph_.tensor_name(view));
    (*shape->mutable_attr())["T"].set_type(type);
    (*shape->mutable_attr())["out_type"].set_type(tensorflow::DT_INT64);
    return dims = shape->name();
  }

  void hurry(const stashed_block& b, const std::string& stored) {
    // The shape of a view comes from the tensor itself: what leads to the view cannot wait for its encoder.
    const std::set<int> before = between(b.root.node, b.tensor.node);
    for (const int i : forward_readers(graph_, step_, b.root.node))
      if (before.count(i) == 0 && flow_.may_wait(i, b.tensor.node)) wait_for(i, stored);
    // What waits for an activation's mask waits for the form in which it is kept.
    if (const auto waiting = masks_.find(b.root.node); waiting != masks_.end())
      for (const int second : waiting->second)
        wait_for(second, stored);
  }

  // What `last` is computed from, up to `first`.
  std::set<int> between(int first, int last) const {
    std::set<int> found;
    std::vector<int> queue = {last};
    while (!queue.empty()) {
      const int i = queue.back();
      queue.pop_back();
      if (i == first || !found.insert(i).second) continue;
      for (const int earlier : graph_.before(i))
        if (position_[at(earlier)] > position_[at(first)]) queue.push_back(earlier);
    }
    return found;
  }

  const graph_view& graph_;
  const step& step_;
  const control_flow& flow_;
  std::unique_ptr<host_moves> moves_;
  rewritten result_;
  std::map<int, std::vector<int>> masks_;  // who waits for one
  std::vector<int> position_;              // in the topological order
  unused_names names_;
  std::set<std::pair<int, int>> served_;
  std::map<source, std::string> turns_;
  std::map<source, std::string> dims_of_;                     // by view
  std::map<std::pair<int, source>, std::string> decoder_of_;  // by reader and what it reads
};

}  // namespace

rewritten rewrite(const GraphDef& original, const graph_view& graph, const step& analysis,
                  const choices& chosen, const control_flow& flow, const ordering& ordered,
                  const std::vector<int>& op_nodes) {
  rewriter r({original, 0, {}}, graph, analysis, flow);
  r.apply(chosen, ordered, op_nodes);
  return r.take();
}

rewritten refuse(const GraphDef& original, const graph_view& graph, const step& analysis,
                 const control_flow& flow, const std::string& message) {
  rewriter r({original, 0, {}}, graph, analysis, flow);
  r.refuse(message);
  return r.take();
}

bool count_samples(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                   const control_flow& flow, rewritten* result) {
  rewriter r(std::move(*result), graph, analysis, flow);
  const bool found = r.count_samples(sizes);
  *result = r.take();
  return found;
}

}  // namespace stash_tf
