#include "optimizer/slopes.hpp"

#include <algorithm>
#include <set>

#include "optimizer/forward_readers.hpp"
#include "optimizer/needs.hpp"

namespace stash_tf {

namespace {

constexpr std::int64_t smallest = 16 * 1024;  // bytes; edges cost time, too

class slope_finder {
 public:
  slope_finder(const graph_view& graph, const step& of, const tensor_sizes& sizes, const control_flow& flow)
      : graph_(graph), step_(of), sizes_(sizes), flow_(flow) {}

  std::vector<std::pair<int, int>> run() {
    find_what_only_gradients_read();
    before_.assign(at(graph_.size()), {});
    for (const int i : step_.order) {
      if (!for_gradients_[at(i)]) continue;
      std::set<int> ancestors;  // found when the first reader asks for them
      for (const source& s : graph_.inputs(i)) {
        if (s.is_control() || !shrinks(s, i)) continue;
        for (const int next : forward_readers(graph_, step_, root_of(graph_, s).node)) {
          if (for_gradients_[at(next)] || !flow_.may_wait(next, i)) continue;
          if (ancestors.empty()) ancestors = ancestors_of(i);
          if (ancestors.count(next) != 0) continue;
          pairs_.emplace_back(i, next);
          before_[at(next)].push_back(i);
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
          !step_.backward[at(*it)] && !is_control_flow(graph_.op(*it)) && !is_given(graph_.op(*it)) &&
          !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](const reader& r) {
            return r.port >= 0 && (step_.backward[at(r.node)] || for_gradients_[at(r.node)]);
          });
    }
  }

  bool shrinks(const source& input, int node) const {
    const tensor_size* in = sizes_.find(input);
    const tensor_size* out = sizes_.find({node, 0});
    return in != nullptr && out != nullptr && in->bytes() >= smallest && out->bytes() * 2 <= in->bytes() &&
           !is_given(graph_.op(root_of(graph_, input).node));
  }

  // What has to run before a node, by the graph and the edges found so far.
  std::set<int> ancestors_of(int node) const {
    std::set<int> seen = {node};
    std::vector<int> queue = {node};
    while (!queue.empty()) {
      const int i = queue.back();
      queue.pop_back();
      for (const int first : graph_.before(i))
        if (seen.insert(first).second) queue.push_back(first);
      for (const int first : before_[at(i)])
        if (seen.insert(first).second) queue.push_back(first);
    }
    return seen;
  }

  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  const control_flow& flow_;
  std::vector<bool> for_gradients_;
  std::vector<std::vector<int>> before_;  // by the second node of an edge
  std::vector<std::pair<int, int>> pairs_;
};

}  // namespace

std::vector<std::pair<int, int>> slopes_before_readers(const graph_view& graph, const step& of,
                                                       const tensor_sizes& sizes, const control_flow& flow) {
  return slope_finder(graph, of, sizes, flow).run();
}

}  // namespace stash_tf
