// SPDX-License-Identifier: Apache-2.0
// The graph optimizer "stash": TensorFlow gives it each function's graph, placed and flat, after all of its
// own optimizers.

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "extension_api.hpp"
#include "optimizer/driver/log.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/seeds.hpp"
#include "optimizer/optimize_step.hpp"
#include "optimizer/read_step.hpp"
#include "optimizer/rewrite/node_edits.hpp"
#include "optimizer/step_log.hpp"
#include "stash/c_api.h"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tensorflow/core/platform/logging.h"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::grappler::Cluster;
using tensorflow::grappler::GrapplerItem;

bool was_rewritten(const GraphDef& graph) {
  for (const tensorflow::NodeDef& n : graph.node())
    if (n.attr().count(mark) != 0 && n.attr().at(mark).b()) return true;
  return false;
}

// Without the bodies of functions, which every graph on the way would copy.
GrapplerItem without_bodies(const GrapplerItem& item) {
  GraphDef graph = item.graph;
  for (tensorflow::FunctionDef& f : *graph.mutable_library()->mutable_function()) {
    f.clear_node_def();
    f.clear_ret();
    f.clear_control_ret();
  }
  return item.WithGraph(std::move(graph));
}

class stash_optimizer : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  absl::Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer* config) override {
    if (config == nullptr) return absl::OkStatus();
    if (const auto looks = config->parameter_map().find("looks"); looks != config->parameter_map().end())
      looks_ = static_cast<int>(looks->second.i());
    const auto it = config->parameter_map().find("settings");
    if (it == config->parameter_map().end()) return absl::OkStatus();
    try {
      settings_ = parse_settings(it->second.s());
      own_settings_ = true;
    } catch (const std::exception& e) {
      return absl::InvalidArgumentError(e.what());
    }
    return absl::OkStatus();
  }

  std::string name() const override { return "stash"; }
  // To look for seeds in them; nothing else reads functions.
  bool UsesFunctionLibrary() const override { return true; }

  absl::Status Optimize(Cluster* cluster, const GrapplerItem& item, GraphDef* output) override {
    settings request = own_settings_ ? settings_ : process_settings();
    if (request.policy == "none") return nothing_to_do("policy none");
    if (was_rewritten(item.graph)) return nothing_to_do("rewritten already");
    if (const auto own = request.batches.find(item.id); own != request.batches.end())
      request.batch = own->second;
    if (++look_ < looks_) {
      sizes_before_ = known_sizes(without_bodies(item), request);
      return nothing_to_do("TensorFlow has more to do with this graph");
    }
    const auto begin = std::chrono::steady_clock::now();
    const bool seeded = draws_with_seeds(item.graph);
    const GrapplerItem flat = without_bodies(item);
    const std::unique_ptr<optimized_step> done =
        optimize_step(cluster, flat, std::move(request), sizes_before_);
    absl::Status status = done->status;
    if (!done->failure.empty() && !status.ok())
      LOG(WARNING) << "Stash leaves " << item.id << " as it is: " << done->failure;
    logged_graph log = log_of(*done);
    log.id = item.id;
    log.nodes = item.graph.node_size();
    log.seeded = seeded;
    if (status.ok()) {
      *output = std::move(done->finished.graph);
      *output->mutable_library() = item.graph.library();
    }
    log.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log_graph(std::move(log));
    return status;
  }

 private:
  settings settings_;
  bool own_settings_ = false;
  /// TensorFlow makes an optimizer for each graph and runs its list of optimizers so often. The last time
  /// decides, because what we make of a graph would change what TensorFlow folds and gathers in it, and
  /// results with that.
  int looks_ = 2;
  int look_ = 0;
  /// What has been known before: TensorFlow loses sizes as it goes on.
  tensor_sizes::named sizes_before_;
};

using tensorflow::grappler::CustomGraphOptimizerRegistrar;
const CustomGraphOptimizerRegistrar registrar([] { return new stash_optimizer; }, "stash");

}  // namespace

}  // namespace stash_tf

extern "C" std::int32_t stash_tf_register_plugin(const char* device, char** message) {
  static std::mutex mutex;
  static std::set<std::string> registered;
  if (message != nullptr) *message = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (device == nullptr || *device == '\0') {
    if (message != nullptr)
      *message = strdup("stash_tf_register_plugin: device: expected a name such as CPU, got none");
    return STASH_INVALID_ARGUMENT;
  }
  try {
    // TensorFlow ends the process if a device gets a second one.
    if (!registered.insert(device).second) return STASH_OK;
    tensorflow::grappler::ConfigList config;
    config.disable_model_pruning = false;
    tensorflow::grappler::PluginGraphOptimizerRegistry::RegisterPluginOptimizerOrDie(
        []() -> tensorflow::grappler::CustomGraphOptimizer* { return new stash_tf::stash_optimizer; }, device,
        config);
    return STASH_OK;
  } catch (const std::bad_alloc&) {
    return STASH_OUT_OF_MEMORY;
  }
}
