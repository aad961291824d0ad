// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/list_blocks.hpp"

#include <algorithm>
#include <utility>

#include "optimizer/analyse/block_rules.hpp"
#include "optimizer/graph/carried_lists.hpp"
#include "optimizer/graph/list_sources.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

namespace {

constexpr std::int64_t smallest_element = 1024;  // bytes of an iteration: a decoder costs time, too
constexpr std::int64_t few_trips = 16;           // of a loop of which nothing says how often it runs

// The same memory in each iteration: a weight, or what a loop was given and leaves as it is.
bool has_one_buffer(const graph_view& graph, const tensor_sizes& sizes, const source& element) {
  const source held = held_in(graph, sizes, element);
  if (is_held_elsewhere(graph.op(held.node)) || is_enter(graph.op(held.node))) return true;
  if (!is_switch(graph.op(held.node))) return false;
  const source merge = graph.inputs(held.node)[0];
  if (!is_merge(graph.op(merge.node))) return false;
  for (const source& s : graph.inputs(merge.node)) {
    if (!is_next_iteration(graph.op(s.node))) continue;
    const source next = held_in(graph, sizes, graph.inputs(s.node)[0]);
    if (is_switch(graph.op(next.node)) && graph.inputs(next.node)[0] == merge) return true;
  }
  return false;
}

class list_finder {
 public:
  list_finder(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
              const step& analysis, const reader_needs& needs, reader_gates* gates)
      : graph_(graph), sizes_(sizes), request_(request), step_(analysis), needs_(needs), gates_(gates) {}

  bool is_worth(const carried_list& list, std::int64_t trips) const {
    const tensor_size* size = sizes_.find(list.element);
    return size != nullptr && is_storable(size->type) && size->bytes() >= smallest_element &&
           size->bytes() * std::max<std::int64_t>(trips, few_trips) >= request_.min_bytes &&
           !has_one_buffer(graph_, sizes_, list.element);
  }

  listed_block block_of(const carried_list& list, std::int64_t trips) const {
    listed_block b;
    b.list = list;
    b.trips = trips;
    b.element.tensor = list.element;
    b.element.root = root_of(graph_, list.element);
    b.element.size = *sizes_.find(list.element);
    for (const reader& r : graph_.readers(list.pop))
      if (r.port == 1) add_reader(r, &b.element);
    if (is_on_gpu(graph_, list.push))
      b.element.raw_because = "on a GPU TensorFlow has no lists of encoded bytes";
    const std::string& device = graph_.node(list.push).device();
    for (const int other : {list.element.node, list.begin, list.pop})
      if (b.element.raw_because.empty() && graph_.node(other).device() != device)
        b.element.raw_because = "read on another device than it was written on";
    return b;
  }

 private:
  void add_reader(const reader& read, stashed_block* b) const {
    stash_reader r;
    r.node = read.node;
    r.input = read.input;
    r.tensor = b->tensor;
    if (!reads_shape(graph_, read.node)) {
      r.needs = needs_.of(b->size, b->root, read.node, read.input);
      r.gate = gates_->gate_of(read.node, read.input);
    }
    if (b->raw_because.empty() && !step_.backward[at(read.node)])
      b->raw_because = "read outside of the backward pass";
    if (b->raw_because.empty() && is_control_flow(graph_.op(read.node)))
      b->raw_because = "read by control flow (" + graph_.op(read.node) + ")";
    if (b->raw_because.empty() && is_list_op(graph_.op(read.node)))
      b->raw_because = "goes on into another list";
    b->readers.push_back(std::move(r));
  }

  const graph_view& graph_;
  const tensor_sizes& sizes_;
  const settings& request_;
  const step& step_;
  const reader_needs& needs_;
  reader_gates* gates_;
};

}  // namespace

std::vector<listed_block> list_blocks(const graph_view& graph, const tensor_sizes& sizes,
                                      const settings& request, const std::set<std::string>& preserved,
                                      const step& analysis, const reader_needs& needs, reader_gates* gates) {
  const list_finder finder(graph, sizes, request, analysis, needs, gates);
  const loops all(graph, analysis.order);
  std::vector<listed_block> found;
  for (const carried_list& list : carried_lists(graph)) {
    // The ops on the list come from the gradient, wherever they run.
    if (analysis.backward[at(list.element.node)] || !analysis.backward[at(list.pop)]) continue;
    const std::int64_t trips = all[all.loop_of(list.push)].trips;
    if (!finder.is_worth(list, trips)) continue;
    listed_block b = finder.block_of(list, trips);
    settle(graph, request, preserved, &b.element);
    b.element.movable = b.element.plan_bits = false;
    b.element.bits.clear();
    if (!b.element.readers.empty()) found.push_back(std::move(b));
  }
  return found;
}

}  // namespace stash_tf
