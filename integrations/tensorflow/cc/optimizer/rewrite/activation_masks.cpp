// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/activation_masks.hpp"

#include <algorithm>

#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/graph/edge_order.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

namespace {

constexpr std::int64_t smallest_input = 16 * 1024;  // bytes; edges cost time, too

class mask_finder {
 public:
  mask_finder(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
              const control_flow& flow)
      : graph_(graph), step_(analysis), sizes_(sizes), flow_(flow) {}

  std::vector<std::pair<int, int>> run() {
    find_what_only_gradients_read();
    edge_order order(graph_, step_.order);
    for (const int i : step_.order) {
      if (!for_gradients_[at(i)]) continue;
      for (const source& s : graph_.inputs(i)) {
        if (s.is_control() || !shrinks(s, i)) continue;
        for (const int next : forward_readers(graph_, step_, root_of(graph_, s).node)) {
          if (for_gradients_[at(next)] || !flow_.may_wait(next, i)) continue;
          if (order.leads_to(next, i)) continue;
          pairs_.emplace_back(i, next);
          order.add(i, next);
        }
      }
    }
    return std::move(pairs_);
  }

 private:
  // Nodes of the forward pass all of whose readers are gradients, or such nodes.
  void find_what_only_gradients_read() {
    for_gradients_.assign(at(graph_.size()), false);
    for (auto it = step_.order.rbegin(); it != step_.order.rend(); ++it) {
      const std::vector<reader>& readers = graph_.readers(*it);
      for_gradients_[at(*it)] =
          !step_.backward[at(*it)] && !is_control_flow(graph_.op(*it)) &&
          !is_held_elsewhere(graph_.op(*it)) && !readers.empty() &&
          std::all_of(readers.begin(), readers.end(), [&](const reader& r) {
            return r.port >= 0 && (step_.backward[at(r.node)] || for_gradients_[at(r.node)]);
          });
    }
  }

  bool shrinks(const source& input, int node) const {
    const tensor_size* in = sizes_.find(input);
    const tensor_size* out = sizes_.find({node, 0});
    return in != nullptr && out != nullptr && in->bytes() >= smallest_input &&
           out->bytes() * 2 <= in->bytes() && !is_held_elsewhere(graph_.op(root_of(graph_, input).node));
  }

  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  const control_flow& flow_;
  std::vector<bool> for_gradients_;
  std::vector<std::pair<int, int>> pairs_;
};

}  // namespace

std::vector<std::pair<int, int>> masks_before_readers(const graph_view& graph, const step& analysis,
                                                      const tensor_sizes& sizes, const control_flow& flow) {
  return mask_finder(graph, analysis, sizes, flow).run();
}

}  // namespace stash_tf
