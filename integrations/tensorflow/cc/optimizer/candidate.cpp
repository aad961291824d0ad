// SPDX-License-Identifier: Apache-2.0
#include "optimizer/candidate.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

#include "optimizer/analyse_step.hpp"
#include "optimizer/rewrite/check.hpp"
#include "optimizer/rewrite/split_add_n.hpp"
#include "optimizer/simulate/footprint.hpp"

namespace stash_tf {

candidate::candidate(const tensorflow::GraphDef& existing, const graph_view& view, tensor_sizes known,
                     step found)
    : sizes(std::move(known)), analysis(std::move(found)), original_(&existing), graph_(&view) {}

step_context candidate::context(const candidate_terms& terms) const {
  return {*original_, *graph_, analysis, sizes, *flow, ordered, terms.request, terms.device_bytes};
}

headroom candidate::headroom_below(std::int64_t bound) const {
  std::vector<simulated_op> ran;
  simulated_footprint(graph_view(result.graph.graph), *graph_, sizes, analysis, result.chosen, {}, &ran);
  std::vector<int> order;
  std::vector<std::int64_t> free;
  for (const simulated_op& op : ran) {
    order.push_back(op.node);
    free.push_back(bound - op.live);
  }
  return {order, std::move(free)};
}

void candidate::plan(const candidate_terms& terms) {
  if (analysis.order.size() != at(graph_->size()))
    throw std::runtime_error("what runs again or in lists makes a cycle: " +
                             check_output(*original_, *original_));
  flow.emplace(*graph_, analysis.order);
  ordered = order_backward_pass(*graph_, analysis, sizes, *flow);
  result = best_graph(context(terms));
}

std::unique_ptr<candidate> candidate::same() const {
  auto made = std::make_unique<candidate>(*original_, *graph_, sizes, analysis);
  made->sums = sums;
  made->lists = lists;
  made->copies = copies;
  return made;
}

std::unique_ptr<candidate> candidate::with_split_sums(const tensorflow::GraphDef& original,
                                                      const step& analysis, std::int64_t peak,
                                                      const candidate_terms& terms) {
  const read_step& read = terms.read;
  auto made = std::make_unique<candidate>(original, read.graph, read.sizes, analysis);
  made->sums =
      split_add_ns(original, read.graph, analysis, peak / parts_that_count, &made->sizes, &made->copied_);
  if (made->sums > 0) made->take_copied_graph(terms);
  return made;
}

std::unique_ptr<candidate> candidate::with_encoded_lists(const candidate_terms& terms) const {
  auto made = same();
  made->lists =
      encode_lists(*original_, *graph_, analysis, *flow, terms.request, &made->sizes, &made->copied_);
  if (made->lists.changed() == 0) return nullptr;
  made->take_copied_graph(terms);
  made->plan(terms);
  return made;
}

std::unique_ptr<candidate> candidate::with_copies(headroom* spare, copyable which,
                                                  const candidate_terms& terms) const {
  auto made = same();
  made->copies = recompute(*original_, *graph_, analysis, *flow, terms.request, which, spare, &made->sizes,
                           &made->copied_);
  if (made->copies.maps == 0) return nullptr;
  made->take_copied_graph(terms);
  // Encoding what has its headroom would take time for nothing.
  for (stashed_block& b : made->analysis.blocks)
    if (made->copies.kept.count(b.root) != 0 && b.raw_because.empty())
      b.raw_because = "it does not raise the peak";
  made->plan(terms);
  return made;
}

void candidate::take_copied_graph(const candidate_terms& terms) {
  original_ = &copied_;
  graph_ = &own_.emplace(copied_);
  analysis = analyse_step(terms.read, *graph_, sizes, terms.request);
}

}  // namespace stash_tf
