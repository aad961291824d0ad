// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/rewrite.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/rewrite/edited_graph.hpp"
#include "optimizer/rewrite/host_moves.hpp"
#include "optimizer/rewrite/node_edits.hpp"
#include "optimizer/rewrite/temporaries.hpp"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;

class rewriter {
 public:
  rewriter(const GraphDef& original, const graph_view& graph, const step& analysis, const control_flow& flow)
      : graph_(graph),
        step_(analysis),
        flow_(flow),
        position_(graph.positions(analysis.order)),
        edited_(original, graph) {}

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

  rewritten take() { return {edited_.take(), stashes_, std::move(moved_)}; }

 private:
  NodeDef* node(int i) { return edited_.node(i); }

  NodeDef* add_node(const std::string& base_name, const char* op, int like) {
    return edited_.add_node(base_name, op, like);
  }

  void wait_for(int waiting, const std::string& name) { edited_.wait_for(waiting, name); }

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
    moved_.insert(tensor);
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
    ++stashes_;
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
    ++stashes_;
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
    ++stashes_;
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
    ++stashes_;
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
  const std::vector<int> position_;  // in the topological order
  edited_graph edited_;
  int stashes_ = 0;
  std::set<std::string> moved_;  // rewritten::moved
  std::unique_ptr<host_moves> moves_;
  std::map<int, std::vector<int>> masks_;  // who waits for one
  std::set<std::pair<int, int>> served_;
  std::map<source, std::string> turns_;
  std::map<source, std::string> dims_of_;                     // by view
  std::map<std::pair<int, source>, std::string> decoder_of_;  // by reader and what it reads
};

}  // namespace

rewritten rewrite(const GraphDef& original, const graph_view& graph, const step& analysis,
                  const choices& chosen, const control_flow& flow, const ordering& ordered,
                  const std::vector<int>& op_nodes) {
  rewriter r(original, graph, analysis, flow);
  r.apply(chosen, ordered, op_nodes);
  return r.take();
}

}  // namespace stash_tf
