// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/op_alternatives.hpp"

namespace stash_tf {

using nlohmann::json;

namespace {

void add_read(int storage, const std::string& need, json* reads) {
  for (const json& r : *reads)
    if (r["storage"] == storage && r["need"] == need) return;
  reads->push_back({{"storage", storage}, {"need", need}});
}

}  // namespace

op_alternatives::op_alternatives(const graph_view& graph, const step& analysis,
                                 const graph_storages& storages, const planner_graph& made)
    : graph_(graph), step_(analysis), storages_(storages), made_(made) {
  for (std::size_t k = 0; k < analysis.poolings.size(); ++k)
    pooling_of_[analysis.poolings[k].backward] = static_cast<int>(k);
}

int op_alternatives::pooling_of(int node) const {
  const auto found = pooling_of_.find(node);
  return found == pooling_of_.end() ? -1 : found->second;
}

bool op_alternatives::has_argmax(int node) const {
  const int pooling = pooling_of(node);
  return pooling >= 0 && made_.storage_of_pooling[at(pooling)] >= 0;
}

json op_alternatives::of(int node) const {
  stand_ins found;
  json reads = reads_of(node, {}, &found);
  if (has_argmax(node)) return of_pooling(pooling_of(node), std::move(reads));
  json alternatives = json::array();
  if (reads.empty()) return alternatives;
  alternatives.push_back({{"form", "from_maps"}, {"reads", reads}});
  if (found.narrow)
    alternatives.push_back({{"form", "from_narrow"}, {"reads", reads_of(node, {true, false}, &found)}});
  if (found.bits)
    alternatives.push_back({{"form", "from_bits"}, {"reads", reads_of(node, {false, true}, &found)}});
  return alternatives;
}

json op_alternatives::of_pooling(int number, json reads) const {
  const pooling& p = step_.poolings[at(number)];
  const bool joint = p.relu_backward >= 0;
  if (joint) {
    stand_ins ignored;
    for (const json& r : reads_of(p.relu_backward, {}, &ignored))
      add_read(r["storage"], r["need"], &reads);
  }
  json alternatives = json::array();
  // What the pair needs of the maps is what its ops read of them; nothing of it is needed in addition to the
  // taps.
  if (!reads.empty()) alternatives.push_back({{"form", "from_maps"}, {"reads", reads}});
  json taps = json::array();
  add_read(made_.storage_of_pooling[at(number)], joint ? "sign_window" : "window", &taps);
  alternatives.push_back({{"form", joint ? "from_code" : "from_index"}, {"reads", taps}});
  return alternatives;
}

// What this op reads of the forward pass, with stand-ins where `options` has them; `found` says which there
// are.
json op_alternatives::reads_of(int node, stand_ins options, stand_ins* found) const {
  json reads = json::array();
  for (std::size_t k = 0; k < graph_.inputs(node).size(); ++k) {
    const source& s = graph_.inputs(node)[k];
    if (s.is_control() || !storages_.is_of_forward(s)) continue;
    const int id = storages_.of(s);
    if (id < 0) continue;
    if (storages_.is_settled(s)) {
      // Argmaxes may replace what a pooling's gradient reads all the same.
      add_read(id, "exact_value", &reads);
      continue;
    }
    add_reads_of_block(node, static_cast<int>(k), storages_.block_of(s), options, found, &reads);
  }
  return reads;
}

void op_alternatives::add_reads_of_block(int node, int input, int block, stand_ins options, stand_ins* found,
                                         json* reads) const {
  const stashed_block& b = step_.blocks[at(block)];
  const int narrow = made_.exact_cast_of_block[at(block)];
  if (narrow >= 0) found->narrow = true;
  if (narrow >= 0 && options.narrow) return add_read(narrow, "value", reads);
  const int bits = made_.bits_of_block[at(block)];
  const auto [read_by, at_input] = reader_of(node, input);
  for (const stash_reader& r : b.readers) {
    if (r.node != read_by || r.input != at_input) continue;
    const bool bits_do = bits >= 0 && reads_bits(graph_, b, r);
    if (bits_do) found->bits = true;
    if (bits_do && options.bits) {
      add_read(bits, "mask", reads);
      continue;
    }
    for (const std::string& need : r.needs)
      add_read(storages_.of(graph_.inputs(node)[at(input)]), need, reads);
  }
}

// The op that reads a tensor of the forward pass for this input: the op itself, or the first of the views of
// the backward pass that it reads it through.
std::pair<int, int> op_alternatives::reader_of(int node, int input) const {
  while (step_.backward[at(graph_.inputs(node)[at(input)].node)]) {
    node = graph_.inputs(node)[at(input)].node;
    input = 0;
  }
  return {node, input};
}

}  // namespace stash_tf
