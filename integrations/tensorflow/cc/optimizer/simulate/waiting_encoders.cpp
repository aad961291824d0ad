// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/waiting_encoders.hpp"

#include "optimizer/simulate/output_sizes.hpp"

namespace stash_tf {

waiting_encoders::waiting_encoders(const graph_view& graph, const simulated_memory& memory)
    : memory_(memory) {
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.op(i) != "StashDecode") continue;
    source from = graph.inputs(i)[0];
    while (is_move(graph.op(from.node)))
      from = graph.inputs(from.node)[0];
    if (graph.op(from.node) != "StashEncode") continue;  // out of a list
    if (decoding_.emplace(from.node, 0).second) {
      number_[from.node] = static_cast<int>(encoders_.size());
      encoders_.push_back(from.node);
    }
    ++decoding_[from.node];
    encoder_of_[i] = from.node;
  }
}

void waiting_encoders::end(task t) {
  if (!memory_.iterations().is_first(t.run)) return;
  if (const auto decoder = encoder_of_.find(t.node); decoder != encoder_of_.end())
    if (--decoding_[decoder->second] == 0) decoded_.insert(number_[decoder->second]);
  if (decoding_.count(t.node) != 0) run_of_[t.node] = t.run;
}

std::vector<int> waiting_encoders::kept_for_bits() {
  std::vector<int> kept;
  for (auto it = decoded_.begin(); it != decoded_.end();) {
    const int encoder = encoders_[at(*it)];
    const auto run = run_of_.find(encoder);
    if (run == run_of_.end() || !memory_.is_wanted({encoder, run->second})) {
      it = decoded_.erase(it);
      continue;
    }
    kept.push_back(encoder);
    ++it;
  }
  return kept;
}

}  // namespace stash_tf
