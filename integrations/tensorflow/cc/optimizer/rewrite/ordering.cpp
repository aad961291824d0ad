// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/ordering.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/analyse/backward.hpp"
#include "optimizer/analyse/recent_gradients.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/rewrite/activation_masks.hpp"
#include "tensorflow/core/util/util.h"

namespace stash_tf {

namespace {

constexpr std::int64_t smallest_update = 64 * 1024;  // bytes; edges cost time, too
constexpr std::int64_t smallest_sum = 4 * 1024;      // of an iteration, of which many may be under way

// The gradient that a layer got from above, by the input of an op that uses it up; -1 for other ops. The
// weight gradient of a transposed convolution has it where that of a convolution has the layer's input.
int used_up(const graph_view& graph, const step& analysis, int i) {
  const std::string& op = graph.op(i);
  if (!is_for_weights(op)) return -1;
  if (op == "BiasAddGrad") return 0;
  const std::vector<source>& inputs = graph.inputs(i);
  return !analysis.backward[at(inputs[2].node)] && analysis.backward[at(inputs[0].node)] ? 0 : 2;
}

// Likewise of one that carries it on: of a transposed convolution that is a convolution.
int carried_on(const graph_view& graph, const step& analysis, int i) {
  const std::string& op = graph.op(i);
  if (op == "Conv2DBackpropInput" || op == "Conv3DBackpropInputV2" ||
      op == "DepthwiseConv2dNativeBackpropInput")
    return 2;
  const bool convolves = op == "Conv2D" || op == "Conv3D";
  return convolves && analysis.backward[at(i)] && analysis.backward[at(graph.inputs(i)[0].node)] ? 0 : -1;
}

// With the value of a variable, they carry a gradient on as well.
bool is_product(const std::string& op) {
  return op == "MatMul" || op == "Einsum" || absl::StartsWith(op, "BatchMatMul");
}

class orderer {
 public:
  orderer(const graph_view& graph, const step& analysis, const tensor_sizes& sizes, const control_flow& flow)
      : graph_(graph), step_(analysis), sizes_(sizes), flow_(flow) {}

  ordering run() {
    find_carriers();
    weight_gradients_first();
    readers_before_updates();
    iterations_one_by_one();
    sums_begin_late();
    result_.masks = masks_before_readers(graph_, step_, sizes_, flow_);
    result_.late = late_sources(graph_, step_, sizes_, flow_, result_.masks);
    find_what_goes_on();
    result_.order = simulate();
    if (result_.order.size() != step_.order.size()) {
      // The graph has another order of its own.
      result_.pairs.clear();
      result_.loops_held_back = 0;
      result_.order = simulate();
    }
    update_early();
    return std::move(result_);
  }

 private:
  // What carries a gradient on through a layer with weights.
  void find_carriers() {
    carries_on_.assign(at(graph_.size()), false);
    for (int i = 0; i < graph_.size(); ++i) {
      if (!step_.backward[at(i)]) continue;
      const std::vector<source>& inputs = graph_.inputs(i);
      carries_on_[at(i)] =
          carried_on(graph_, step_, i) >= 0 ||
          (is_product(graph_.op(i)) && std::any_of(inputs.begin(), inputs.end(), [&](const source& s) {
             return !s.is_control() && graph_.op(root_of(graph_, s).node) == "ReadVariableOp";
           }));
    }
  }

  void weight_gradients_first() {
    std::map<source, std::vector<int>> users, carriers;
    for (int i = 0; i < graph_.size(); ++i) {
      if (!step_.backward[at(i)]) continue;
      if (const int k = used_up(graph_, step_, i); k >= 0) users[graph_.inputs(i)[at(k)]].push_back(i);
      if (const int k = carried_on(graph_, step_, i); k >= 0) carriers[graph_.inputs(i)[at(k)]].push_back(i);
    }
    for (const auto& [dy, list] : carriers) {
      const auto first = users.find(dy);
      // A transposed convolution of the forward pass looks the same, but for what it reads.
      if (first == users.end() || !step_.backward[at(dy.node)]) continue;
      for (const int carrier : list)
        for (const int user : first->second)
          if (flow_.may_wait(carrier, user)) result_.pairs.emplace_back(user, carrier);
    }
  }

  // A variable that is written while somebody still holds its old value, or a view of it, is copied.
  void readers_before_updates() {
    std::map<source, std::vector<int>> carriers;  // by variable
    for (int i = 0; i < graph_.size(); ++i) {
      if (!carries_on_[at(i)]) continue;
      for (const source& s : graph_.inputs(i)) {
        const int value = s.is_control() ? -1 : root_of(graph_, s).node;
        if (value >= 0 && graph_.op(value) == "ReadVariableOp" && !step_.backward[at(value)])
          carriers[variable_of(value)].push_back(i);
      }
    }
    for (int i = 0; i < graph_.size(); ++i) {
      if (!is_large_update(i)) continue;
      const auto found = carriers.find(variable_of(i));
      if (found == carriers.end()) continue;
      for (const int carrier : found->second)
        if (flow_.may_wait(i, carrier) && !leads_to(i, carrier)) result_.pairs.emplace_back(carrier, i);
    }
  }

  // A step may go on after an update, with the value from before it.
  bool leads_to(int update, int other) const {
    std::vector<int> queue = {update};
    std::set<int> seen = {update};
    while (!queue.empty()) {
      const int i = queue.back();
      queue.pop_back();
      if (i == other) return true;
      for (const int next : graph_.after(i))
        if (seen.insert(next).second) queue.push_back(next);
    }
    return false;
  }

  void iterations_one_by_one() {
    std::map<int, std::vector<int>> ends;  // NextIterations by loop
    std::set<int> training;                // loops that update variables
    for (int i = 0; i < graph_.size(); ++i) {
      if (is_next_iteration(graph_.op(i)) && flow_.frame(i) > 0) ends[flow_.frame(i)].push_back(i);
      if (step_.backward[at(i)] && writes_variable(graph_.op(i))) training.insert(flow_.frame(i));
    }
    for (int i = 0; i < graph_.size(); ++i) {
      if (graph_.op(i) != "LoopCond" || flow_.frame(i) == 0) continue;
      const int deciding = flow_.deciding_variable(i);
      bool held = false;
      for (const int end : ends[flow_.frame(i)]) {
        const int last = graph_.inputs(end)[0].node;
        const bool sum = is_large_sum(last);
        // Updates hold the next iteration back as it is; what a loss is computed from would stay for several.
        const bool result = training.count(flow_.frame(i)) != 0;
        if (deciding < 0 || end == deciding || !(sum || result) || !flow_.may_hold_back(deciding, last))
          continue;
        result_.pairs.emplace_back(last, deciding);
        held = held || sum;
      }
      if (held) ++result_.loops_held_back;
    }
  }

  // Zeros, with which a loop of the backward pass begins its sums, wait for the last that it is given:
  // nothing else keeps them from lying in memory during the forward pass.
  void sums_begin_late() {
    const std::vector<int> position = graph_.positions(step_.order);
    std::map<int, std::vector<int>> given;  // sources of Enters by loop
    for (const int i : step_.order) {
      if (!is_enter(graph_.op(i)) || !step_.backward[at(i)] || graph_.inputs(i).empty()) continue;
      given[flow_.frame(i)].push_back(graph_.inputs(i)[0].node);
    }
    for (const auto& [loop, sources] : given) {
      const int last = *std::max_element(sources.begin(), sources.end(),
                                         [&](int a, int b) { return position[at(a)] < position[at(b)]; });
      for (const int zeros : sources) {
        const bool alone = graph_.readers(zeros).size() == 1;
        if (zeros != last && alone && graph_.op(zeros) == "Fill" && flow_.may_wait(zeros, last))
          result_.pairs.emplace_back(last, zeros);
      }
    }
  }

  bool is_large_sum(int i) const {
    if (!step_.backward[at(i)]) return false;
    if (absl::StartsWith(graph_.op(i), "TensorList")) return graph_.op(i) == "TensorListSetItem";
    const tensor_size* size = sizes_.find({i, 0});
    return size != nullptr && size->bytes() >= smallest_sum;
  }

  source variable_of(int node) const {
    const std::vector<source>& inputs = graph_.inputs(node);
    return inputs.empty() ? source{} : root_of(graph_, inputs[0]);
  }

  // Nodes after which more of the backward pass comes; after the others come only updates and results.
  void find_what_goes_on() {
    goes_on_.assign(at(graph_.size()), false);
    std::vector<int> queue;
    const auto add = [&](int i) {
      if (goes_on_[at(i)]) return;
      goes_on_[at(i)] = true;
      queue.push_back(i);
    };
    for (int i = 0; i < graph_.size(); ++i)
      if (step_.backward[at(i)] && (gradient_input(graph_.op(i)) >= 0 || carries_on_[at(i)])) add(i);
    for (const stashed_block& b : step_.blocks)
      for (const stash_reader& r : b.readers)
        add(r.node);
    while (!queue.empty()) {
      const int i = queue.back();
      queue.pop_back();
      for (const int first : graph_.before(i))
        add(first);
    }
  }

  // Who is ready first goes first, but the forward pass before the backward pass, and there updates before
  // all else.
  std::vector<int> simulate() const {
    std::vector<int> waiting(at(graph_.size()), 0);
    std::vector<std::vector<int>> then(at(graph_.size()));
    for (const auto* pairs : {&result_.pairs, &result_.masks}) {
      for (const auto& [first, second] : *pairs) {
        then[at(first)].push_back(second);
        ++waiting[at(second)];
      }
    }
    for (const stashed_block& b : step_.blocks) {
      for (const stash_reader& r : b.readers) {
        if (r.gate < 0) continue;
        then[at(r.gate)].push_back(r.node);
        ++waiting[at(r.node)];
      }
    }
    std::deque<int> forward, updates, backward;
    const auto enqueue = [&](int i) {
      (!step_.backward[at(i)] ? forward : goes_on_[at(i)] ? backward : updates).push_back(i);
    };
    for (int i = 0; i < graph_.size(); ++i) {
      waiting[at(i)] += static_cast<int>(graph_.before(i).size());
      if (waiting[at(i)] == 0) enqueue(i);
    }
    std::vector<int> order;
    order.reserve(at(graph_.size()));
    while (!forward.empty() || !updates.empty() || !backward.empty()) {
      std::deque<int>& queue = !forward.empty() ? forward : !updates.empty() ? updates : backward;
      const int i = queue.front();
      queue.pop_front();
      order.push_back(i);
      for (const int next : graph_.after(i))
        if (--waiting[at(next)] == 0) enqueue(next);
      for (const int next : then[at(i)])
        if (--waiting[at(next)] == 0) enqueue(next);
    }
    return order;
  }

  bool is_large_update(int i) const {
    if (!step_.backward[at(i)] || !writes_variable(graph_.op(i))) return false;
    for (const source& s : graph_.inputs(i)) {
      const tensor_size* size = s.is_control() ? nullptr : sizes_.find(s);
      if (size != nullptr && size->bytes() >= smallest_update && !size->per_sample) return true;
    }
    return false;
  }

  // A backward pass does not wait for updates that need the gradients of another one, as of a layer that is
  // called twice.
  void update_early() {
    std::vector<bool> is_gradient = goes_on_;
    for (std::size_t i = 0; i < is_gradient.size(); ++i)
      is_gradient[i] = is_gradient[i] && step_.backward[i];
    const recent_gradients gradients(graph_, result_.order, is_gradient);
    std::vector<int> updates;
    for (const int i : result_.order) {
      if (is_large_update(i) && !goes_on_[at(i)]) updates.push_back(i);
      if (!step_.backward[at(i)] || carried_on(graph_, step_, i) < 0) continue;
      std::vector<int> later;
      for (const int update : updates) {
        if (!gradients.needs_no_more(update, i)) {
          later.push_back(update);
        } else if (flow_.may_wait(i, update)) {
          result_.pairs.emplace_back(update, i);
        }
      }
      updates = std::move(later);
    }
  }

  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  const control_flow& flow_;
  std::vector<bool> carries_on_, goes_on_;
  ordering result_;
};

}  // namespace

ordering order_backward_pass(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                             const control_flow& flow) {
  return orderer(graph, analysis, sizes, flow).run();
}

ordering without_weights_first(const graph_view& graph, const step& analysis, ordering ordered,
                               const std::function<bool(int)>& takes_much) {
  std::vector<std::pair<int, int>>& pairs = ordered.pairs;
  const auto goes = [&](const std::pair<int, int>& pair) {
    const std::string& op = graph.op(pair.second);
    const bool joined = op == "Conv2DBackpropInput" && tensorflow::IsMKLEnabled();
    return carried_on(graph, analysis, pair.second) >= 0 && !joined && takes_much(pair.first);
  };
  pairs.erase(std::remove_if(pairs.begin(), pairs.end(), goes), pairs.end());
  return ordered;
}

}  // namespace stash_tf
