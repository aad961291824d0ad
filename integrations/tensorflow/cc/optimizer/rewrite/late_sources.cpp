// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/late_sources.hpp"

#include <algorithm>
#include <set>

#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

namespace {

constexpr std::int64_t smallest_source = 16 * 1024;  // bytes; edges cost time, too

class source_finder {
 public:
  source_finder(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                const control_flow& flow)
      : graph_(graph),
        step_(analysis),
        sizes_(sizes),
        flow_(flow),
        position_(graph.positions(analysis.order)) {}

  std::vector<late_source> run() {
    find_what_is_free();
    std::vector<late_source> found;
    for (const int i : step_.order) {
      if (!is_first_of_large(i)) continue;
      const int join = first_join(i);
      if (join < 0) continue;
      const source met = met_by(join);
      if (met.node >= 0 && flow_.may_wait(i, met.node)) found.push_back({i, met, sizes_.find(met)->type});
    }
    return found;
  }

 private:
  // Nodes of the forward pass that nothing of the step's data leads to.
  void find_what_is_free() {
    free_.assign(at(graph_.size()), false);
    for (const int i : step_.order) {
      if (step_.backward[at(i)] || is_control_flow(graph_.op(i)) || is_held_elsewhere(graph_.op(i))) continue;
      const std::vector<source>& inputs = graph_.inputs(i);
      free_[at(i)] = std::all_of(inputs.begin(), inputs.end(), [&](const source& s) {
        return s.is_control() || free_[at(s.node)] ||
               (is_held_elsewhere(graph_.op(s.node)) && bytes_of(s) < smallest_source);
      });
    }
  }

  std::int64_t bytes_of(const source& s) const {
    const tensor_size* size = sizes_.find(s);
    return size == nullptr ? 0 : size->bytes();
  }

  bool is_first_of_large(int i) const {
    if (!free_[at(i)] || bytes_of({i, 0}) < smallest_source) return false;
    const std::vector<source>& inputs = graph_.inputs(i);
    return std::none_of(inputs.begin(), inputs.end(),
                        [&](const source& s) { return !s.is_control() && bytes_of(s) >= smallest_source; });
  }

  // The first node of the step's data that reads what comes of a free node; -1: none in the forward pass, or
  // all that lies there until then is much smaller, as a mask of one byte for each random number.
  int first_join(int from) const {
    int first = -1;
    std::int64_t kept = 0;
    std::vector<int> found = {from};
    std::set<int> seen = {from};
    for (std::size_t k = 0; k < found.size(); ++k) {
      for (const reader& r : graph_.readers(found[k])) {
        if (r.port < 0) continue;
        if (free_[at(r.node)]) {
          if (seen.insert(r.node).second) found.push_back(r.node);
          continue;
        }
        kept = std::max(kept, bytes_of({found[k], r.port}));
        if (step_.backward[at(r.node)]) continue;
        if (first < 0 || position_[at(r.node)] < position_[at(first)]) first = r.node;
      }
    }
    return kept * 2 >= bytes_of({from, 0}) ? first : -1;
  }

  // The largest tensor of the step's data that a node reads; none where there is no use in waiting for it.
  source met_by(int join) const {
    source met{-1, 0};
    for (const source& s : graph_.inputs(join)) {
      if (s.is_control() || free_[at(s.node)] || bytes_of(s) < smallest_source) continue;
      if (met.node < 0 || bytes_of(s) > bytes_of(met)) met = s;
    }
    if (met.node < 0) return met;
    const std::string& op = graph_.op(met.node);
    const bool is_sum = op == "BiasAdd" || op == "Conv2D" || op == "MatMul" ||
                        op == "DepthwiseConv2dNative" || op == "Conv3D" || op == "BatchMatMulV2";
    const bool is_joined = is_sum && graph_.op(join).rfind("Add", 0) == 0;
    const bool unsuitable = is_held_elsewhere(graph_.op(root_of(graph_, met).node)) || is_joined ||
                            is_control_flow(op) || is_fused_later(graph_, join) ||
                            is_fused_later(graph_, met.node);
    return unsuitable ? source{-1, 0} : met;
  }

  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  const control_flow& flow_;
  std::vector<bool> free_;
  std::vector<int> position_;
};

}  // namespace

std::vector<late_source> late_sources(const graph_view& graph, const step& analysis,
                                      const tensor_sizes& sizes, const control_flow& flow,
                                      const std::vector<std::pair<int, int>>& masks) {
  std::vector<late_source> found = source_finder(graph, analysis, sizes, flow).run();
  std::vector<std::pair<int, int>> edges = masks;
  for (const late_source& late : found)
    edges.emplace_back(late.met.node, late.node);
  if (graph.topological_order(edges).size() != at(graph.size())) found.clear();
  return found;
}

}  // namespace stash_tf
