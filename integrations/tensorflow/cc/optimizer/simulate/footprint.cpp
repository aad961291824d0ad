// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/footprint.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "optimizer/graph/needs.hpp"
#include "optimizer/plan/work.hpp"
#include "optimizer/simulate/waiting_encoders.hpp"

namespace stash_tf {

namespace {

// Kernels that the executor runs at once where they become ready; the others go through the thread's queue.
bool is_cheap(const std::string& op) {
  static const std::set<std::string> ops = {"Const",        "NoOp",  "ReadVariableOp", "VarHandleOp", "_Arg",
                                            "_Retval",      "Shape", "ShapeN",         "Size",        "Rank",
                                            "StridedSlice", "Pack",  "IteratorGetNext"};
  return ops.count(op) != 0 || is_alias(op) || is_control_flow(op);
}

class simulation {
 public:
  simulation(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
             const step& analysis, const choices& chosen, run_order order, std::vector<simulated_op>* ran)
      : graph_(graph),
        original_(original),
        sizes_(sizes),
        memory_(graph, original, sizes, analysis, chosen),
        order_(graph, original.size(), analysis, memory_, order),
        encoders_(graph, memory_),
        ran_(ran) {}

  footprint run() {
    for (int i = 0; i < graph_.size(); ++i)
      cheap_.push_back(memory_.folded()[at(i)] || is_cheap(graph_.op(i)) || is_found_cheap(i));
    // TensorFlow has a node in front of all that begin: the cheap ones are done before anything that they
    // make ready.
    for (const task& t : memory_.first())
      (cheap_[at(t.node)] ? at_once_ : queue_).push_back(t);
    while (!at_once_.empty() || !queue_.empty() || !copies_.empty()) {
      std::deque<task>& from = !at_once_.empty() ? at_once_ : !queue_.empty() ? queue_ : copies_;
      if (&from == &queue_ && order_.chooses()) bring_best_to_front();
      const task t = from.front();
      from.pop_front();
      const bool ends = &from == &copies_;
      if (!ends) begin(t);
      if (!ends && is_move(graph_.op(t.node))) {
        copies_.push_back(t);
      } else {
        end(t);
      }
    }
    for (const int encoder : kept_for_bits_)
      peak_.kept_for_bits.push_back(graph_.node(encoder).attr().at("tensor").s());
    peak_.unknown_lists = memory_.has_unknown_lists();
    return peak_;
  }

 private:
  void begin(task t) {
    const simulated_op now = memory_.begin(t);
    if (ran_ != nullptr && memory_.iterations().is_first(t.run)) ran_->push_back(now);
    if (now.live > peak_.peak_bytes) {
      peak_.peak_bytes = now.live;
      kept_for_bits_ = encoders_.kept_for_bits();
    }
    peak_.host_bytes = std::max(peak_.host_bytes, memory_.host_bytes());
  }

  // The executor measures what kernels take, and lets those that turn out to take little follow at once as
  // well. Outside of loops that is hundreds of steps later.
  bool is_found_cheap(int i) const {
    constexpr std::int64_t often = 16;
    constexpr double little_work = 128 * 1024;     // multiplications and additions
    constexpr std::int64_t few_bytes = 96 * 1024;  // read and written
    if (i >= original_.size() || memory_.trips_around(i) < often) return false;
    if (flops_of(original_, i, sizes_) > little_work) return false;
    std::int64_t bytes = memory_.bytes({i, 0});
    for (const source& s : graph_.inputs(i))
      if (!s.is_control()) bytes += memory_.bytes(s);
    return bytes <= few_bytes;
  }

  void bring_best_to_front() {
    const std::size_t best = order_.best(queue_);
    const task t = queue_[best];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(best));
    queue_.push_front(t);
  }

  // As the executor: cheap nodes follow at once; of the others all but the last go to the front of the queue,
  // and so does that one if a cheap node goes before.
  void end(task t) {
    encoders_.end(t);
    std::optional<task> last;
    for (const task& next : memory_.end(t)) {
      if (cheap_[at(next.node)]) {
        at_once_.push_back(next);
      } else {
        if (last) queue_.push_front(*last);
        last = next;
      }
    }
    if (!last) return;
    if (at_once_.empty() && !order_.chooses()) {
      at_once_.push_back(*last);
    } else {
      queue_.push_front(*last);
    }
  }

  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  simulated_memory memory_;
  const ready_order order_;
  waiting_encoders encoders_;
  std::vector<simulated_op>* ran_;
  std::vector<bool> cheap_;
  std::deque<task> at_once_, queue_, copies_;
  std::vector<int> kept_for_bits_;
  footprint peak_;
};

}  // namespace

footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& analysis, const choices& chosen, run_order order,
                              std::vector<simulated_op>* ran) {
  return simulation(graph, original, sizes, analysis, chosen, order, ran).run();
}

}  // namespace stash_tf
