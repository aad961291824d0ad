// SPDX-License-Identifier: Apache-2.0
#include "optimizer/driver/log.hpp"

#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "extension_api.hpp"

namespace stash_tf {

namespace {

constexpr std::size_t most_graphs = 1000;

std::mutex log_mutex;
std::deque<logged_graph> graphs;  // guarded by log_mutex
std::int64_t last_serial = 0;     // guarded by log_mutex

nlohmann::json to_json(const logged_tensor& t) {
  return {{"tensor", t.tensor},
          {"layer", t.layer},
          {"op", t.op},
          {"type", t.type},
          {"elements", t.elements},
          {"elements_per_sample", t.elements_per_sample},
          {"dense_bytes", t.dense_bytes},
          {"stored_bytes", t.stored_bytes},
          {"host_bytes", t.host_bytes},
          {"iterations", t.iterations},
          {"needs", t.needs},
          {"choice", t.choice},
          {"reason", t.reason},
          {"readers", t.readers}};
}

nlohmann::json to_json(const logged_graph& g) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const logged_tensor& t : g.tensors)
    tensors.push_back(to_json(t));
  nlohmann::json left = nlohmann::json::array();
  for (const left_node& n : g.left)
    left.push_back({{"node", n.node}, {"op", n.op}, {"reason", n.reason}});
  return {{"id", g.id},
          {"serial", g.serial},
          {"generation", g.generation},
          {"nodes", g.nodes},
          {"rewritten", g.rewritten},
          {"seeded", g.seeded},
          {"reason", g.reason},
          {"policy", g.policy},
          {"batch", g.batch},
          {"batch_open", g.batch_open},
          {"lists_in_loops", g.lists_in_loops},
          {"unknown_sizes", g.unknown_sizes},
          {"unknown_size", g.unknown_size},
          {"counts_samples", g.counts_samples},
          {"budget_bytes", g.budget_bytes},
          {"predicted_peak_bytes", g.predicted_peak_bytes},
          {"predicted_plain_bytes", g.predicted_plain_bytes},
          {"predicted_host_bytes", g.predicted_host_bytes},
          {"smallest_budget_bytes", g.smallest_budget_bytes},
          {"machine", g.machine},
          {"swap", g.swap},
          {"budget", g.budget},
          {"sums", g.sums},
          {"recomputed_maps", g.recomputed_maps},
          {"recomputed_ops", g.recomputed_ops},
          {"recomputed_bytes", g.recomputed_bytes},
          {"loops", g.loops},
          {"lists", g.lists},
          {"ordered", g.ordered},
          {"unknown_layers", g.unknown_layers},
          {"seconds", g.seconds},
          {"tensors", std::move(tensors)},
          {"left", std::move(left)}};
}

}  // namespace

void log_graph(logged_graph graph) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  graph.serial = ++last_serial;
  graphs.push_back(std::move(graph));
  if (graphs.size() > most_graphs) graphs.pop_front();
}

}  // namespace stash_tf

extern "C" char* stash_tf_graphs(std::int64_t generation) {
  try {
    nlohmann::json list = nlohmann::json::array();
    {
      const std::lock_guard<std::mutex> lock(stash_tf::log_mutex);
      for (const stash_tf::logged_graph& g : stash_tf::graphs)
        if (generation == 0 || g.generation == generation) list.push_back(stash_tf::to_json(g));
    }
    // Names come from the user: what is not UTF-8 is replaced, not refused.
    return strdup(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } catch (const std::exception&) {
    return nullptr;
  }
}

extern "C" std::int64_t stash_tf_last_serial() {
  const std::lock_guard<std::mutex> lock(stash_tf::log_mutex);
  return stash_tf::last_serial;
}

extern "C" void stash_tf_reset_graphs() {
  const std::lock_guard<std::mutex> lock(stash_tf::log_mutex);
  stash_tf::graphs.clear();
}
