// SPDX-License-Identifier: Apache-2.0
#include "optimizer/pinning.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/graph/edge_order.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "tensorflow/core/util/util.h"

namespace stash_tf {

namespace {

class pinner {
 public:
  pinner(const graph_view& original, const step& analysis, const control_flow& flow,
         tensorflow::GraphDef* rewritten)
      : original_(original), step_(analysis), flow_(flow), output_(rewritten), graph_(*rewritten) {
    const auto& nodes = rewritten->node();
    if (std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return is_next_iteration(n.op()); }))
      edges_.emplace(graph_, graph_.topological_order());
  }

  void run(const std::vector<simulated_op>& ran, const smallest_pinned& smallest) {
    std::map<std::string, std::vector<int>>
        since;  // by device: what holds much, from the last that took much
    for (const simulated_op& op : ran) {
      const std::int64_t least = smallest_of(op.node, smallest);
      if (op.holds < least) continue;
      std::vector<int>& before = since[graph_.node(op.node).device()];
      if (op.takes >= least && !(tensorflow::IsMKLEnabled() && is_part_of_swish(graph_, op.node))) {
        wait_for(op.node, last_of(before, op.node));
        before.clear();
      }
      before.push_back(op.node);
    }
  }

 private:
  // The node of the original graph next to which a node runs; -1: none.
  int anchor(int i) const {
    if (i < original_.size()) return i;
    // Until it has run, the value is there.
    if (graph_.op(i) == "StashEncode") {
      const int from = graph_.inputs(i)[0].node;
      return from < original_.size() ? from : -1;
    }
    if (graph_.op(i) != "StashDecode") return -1;
    for (const reader& r : graph_.readers(i))
      if (r.port >= 0 && r.node < original_.size()) return r.node;
    return -1;
  }

  std::int64_t smallest_of(int i, const smallest_pinned& smallest) const {
    const int a = anchor(i);
    if (a < 0 || is_control_flow(graph_.op(i))) return smallest_pinned::none;
    if (step_.backward[at(a)]) return smallest.backward;
    return is_joined_with_reader(i) ? smallest_pinned::none : smallest.forward;
  }

  // What oneDNN makes one op with the convolution that reads it, which may come after others in our order.
  bool is_joined_with_reader(int i) const {
    return tensorflow::IsMKLEnabled() && (graph_.op(i) == "Pad" || graph_.op(i) == "Transpose");
  }

  // So it does of the gradients of a filter and its bias.
  bool is_joined_with_bias(int i) const {
    return graph_.op(i) == "Conv2DBackpropFilter" && is_joined(graph_.inputs(i)[2], "BiasAddGrad");
  }
  bool is_joined_with_filter(int i) const {
    return graph_.op(i) == "BiasAddGrad" && is_joined(graph_.inputs(i)[0], "Conv2DBackpropFilter");
  }
  bool is_joined(const source& dy, const char* other) const {
    const std::vector<reader>& readers = graph_.readers(dy.node);
    return tensorflow::IsMKLEnabled() && std::any_of(readers.begin(), readers.end(), [&](const reader& r) {
             return r.port == dy.port && graph_.op(r.node) == other;
           });
  }

  // Of nodes in their order, those that no other of them and not `next` reads, and that `next` may wait for.
  std::vector<int> last_of(const std::vector<int>& nodes, int next) const {
    std::vector<int> awaitable;
    for (const int i : nodes)
      if (!is_joined_with_filter(i) && flow_.may_wait(anchor(next), anchor(i))) awaitable.push_back(i);
    std::set<int> group(awaitable.begin(), awaitable.end());
    group.insert(next);
    std::vector<int> last;
    for (const int i : awaitable) {
      const std::vector<reader>& readers = graph_.readers(i);
      const bool awaited = std::any_of(readers.begin(), readers.end(),
                                       [&](const reader& r) { return group.count(r.node) != 0; });
      if (!awaited) last.push_back(i);
    }
    return last;
  }

  void wait_for(int waiting, const std::vector<int>& all) {
    const std::vector<int> first = without_cycles(waiting, all);
    if (first.empty()) return;
    tensorflow::NodeDef* n = output_->mutable_node(waiting);
    if (is_joined_with_bias(waiting)) n = in_front_of(n);
    for (const int i : first)
      add_control_edge(n, graph_.name(i));
  }

  // Those of `first` that `waiting` may wait for. A variable of a loop that no longer changes leaves it
  // before the last iteration has ended, so that what reads it may run before what all iterations read;
  // control edges keep to an order in which a loop ends as a whole.
  std::vector<int> without_cycles(int waiting, const std::vector<int>& first) {
    if (!edges_) return first;
    std::vector<int> kept;
    for (const int i : first) {
      if (edges_->leads_to(waiting, i)) continue;
      edges_->add(i, waiting);
      kept.push_back(i);
    }
    return kept;
  }

  // A node that hands on the first input; it can wait for what `n` itself must not wait for.
  tensorflow::NodeDef* in_front_of(tensorflow::NodeDef* n) {
    std::string name = n->name() + "/stash_turn";
    const int there = graph_.find(name);  // of an order that was pinned before
    if (there >= 0 && n->input(0) == name) return output_->mutable_node(there);
    while (graph_.find(name) >= 0)
      name += "_";
    tensorflow::NodeDef* turn = output_->add_node();
    turn->set_name(name);
    turn->set_op("Identity");
    turn->set_device(n->device());
    turn->add_input(n->input(0));
    (*turn->mutable_attr())["T"] = n->attr().at("T");
    (*turn->mutable_attr())[mark].set_b(true);
    (*turn->mutable_attr())["_grappler_do_not_remove"].set_b(true);
    n->set_input(0, turn->name());
    return turn;
  }

  const graph_view& original_;
  const step& step_;
  const control_flow& flow_;
  tensorflow::GraphDef* output_;
  const graph_view graph_;           // without the new edges
  std::optional<edge_order> edges_;  // with them, where loops are
};

}  // namespace

void pin_order(const graph_view& original, const step& analysis, const control_flow& flow,
               const std::vector<simulated_op>& ran, const smallest_pinned& smallest,
               tensorflow::GraphDef* rewritten) {
  pinner(original, analysis, flow, rewritten).run(ran, smallest);
}

}  // namespace stash_tf
