#include "optimizer/pinning.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tensorflow/core/util/util.h"

namespace stash_tf {

namespace {

class pinner {
 public:
  pinner(const graph_view& original, const step& of, const control_flow& flow,
         tensorflow::GraphDef* rewritten)
      : original_(original), step_(of), flow_(flow), output_(rewritten), graph_(*rewritten) {}

  void run(const std::vector<simulated_op>& ran, std::int64_t smallest) {
    std::map<std::string, std::vector<int>>
        since;  // by device: what holds much, from the last that took much
    for (const simulated_op& op : decoders_in_place(ran)) {
      if (op.holds < smallest || !is_pinned(op.node)) continue;
      std::vector<int>& before = since[graph_.node(op.node).device()];
      if (op.takes >= smallest && may_get_edges(op.node)) {
        for (const int first : last_of(before, op.node))
          wait_for(op.node, graph_.name(first));
        before.clear();
      }
      before.push_back(op.node);
    }
  }

 private:
  // What may get no edges may still wait for a decoder that serves nobody else: it comes right before, then,
  // and stands for both.
  std::vector<simulated_op> decoders_in_place(const std::vector<simulated_op>& ran) const {
    std::map<int, simulated_op> decoder_of;  // by reader
    std::set<int> moved;
    for (const simulated_op& op : ran) {
      const std::vector<reader>& readers = graph_.readers(op.node);
      if (graph_.op(op.node) != "StashDecode" || readers.size() != 1 || may_get_edges(readers[0].node))
        continue;
      decoder_of[readers[0].node] = op;
      moved.insert(op.node);
    }
    std::vector<simulated_op> order;
    order.reserve(ran.size());
    for (const simulated_op& op : ran) {
      if (moved.count(op.node) != 0) continue;
      if (const auto it = decoder_of.find(op.node); it != decoder_of.end())
        order.push_back({it->second.node, it->second.takes + op.takes, std::max(it->second.holds, op.holds)});
      order.push_back(op);
    }
    return order;
  }

  // The node of the original graph beside which a node runs; -1: none.
  int anchor(int i) const {
    if (i < original_.size()) return i;
    if (graph_.op(i) != "StashDecode") return -1;
    for (const reader& r : graph_.readers(i))
      if (r.port >= 0 && r.node < original_.size()) return r.node;
    return -1;
  }

  bool is_pinned(int i) const {
    const int a = anchor(i);
    return a >= 0 && step_.backward[at(a)] && !is_control_flow(graph_.op(i));
  }

  // oneDNN makes one op of a product with a sigmoid, and of the gradients of a filter and its bias, if
  // nothing else has to be waited for.
  bool may_get_edges(int i) const {
    if (!tensorflow::IsMKLEnabled()) return true;
    const std::string& op = graph_.op(i);
    if (op == "Conv2DBackpropFilter") {
      const source dy = graph_.inputs(i)[2];
      const std::vector<reader>& readers = graph_.readers(dy.node);
      return std::none_of(readers.begin(), readers.end(), [&](const reader& r) {
        return r.port == dy.port && graph_.op(r.node) == "BiasAddGrad";
      });
    }
    if (op == "Sigmoid") return false;
    const std::vector<source>& inputs = graph_.inputs(i);
    return op != "Mul" || std::none_of(inputs.begin(), inputs.end(),
                                       [&](const source& s) { return graph_.op(s.node) == "Sigmoid"; });
  }

  // Of nodes in their order, those that no other of them and not `next` reads, and that `next` may wait for.
  std::vector<int> last_of(const std::vector<int>& nodes, int next) const {
    std::set<int> group(nodes.begin(), nodes.end());
    group.insert(next);
    std::vector<int> last;
    for (const int i : nodes) {
      const std::vector<reader>& readers = graph_.readers(i);
      const bool awaited = std::any_of(readers.begin(), readers.end(),
                                       [&](const reader& r) { return group.count(r.node) != 0; });
      if (!awaited && graph_.op(i) != "BiasAddGrad" && flow_.may_wait(anchor(next), anchor(i)))
        last.push_back(i);
    }
    return last;
  }

  void wait_for(int waiting, const std::string& name) {
    const std::string edge = "^" + name;
    tensorflow::NodeDef* n = output_->mutable_node(waiting);
    if (std::find(n->input().begin(), n->input().end(), edge) == n->input().end()) n->add_input(edge);
  }

  const graph_view& original_;
  const step& step_;
  const control_flow& flow_;
  tensorflow::GraphDef* output_;
  const graph_view graph_;  // without the new edges
};

}  // namespace

void pin_order(const graph_view& original, const step& of, const control_flow& flow,
               const std::vector<simulated_op>& ran, std::int64_t smallest, tensorflow::GraphDef* rewritten) {
  pinner(original, of, flow, rewritten).run(ran, smallest);
}

}  // namespace stash_tf
