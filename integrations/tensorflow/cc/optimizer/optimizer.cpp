// SPDX-License-Identifier: Apache-2.0
// The graph optimizer "stash": TensorFlow gives it each function's graph, placed and flat, after all of its
// own optimizers.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "extension_api.hpp"
#include "optimizer/analyse/step.hpp"
#include "optimizer/budget.hpp"
#include "optimizer/choice_log.hpp"
#include "optimizer/driver/log.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/lists/encode_lists.hpp"
#include "optimizer/plan/headroom.hpp"
#include "optimizer/rewrite/check.hpp"
#include "optimizer/rewrite/ordering.hpp"
#include "optimizer/rewrite/recompute.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "optimizer/rewrite/split_add_n.hpp"
#include "optimizer/simulate/footprint.hpp"
#include "stash/c_api.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tensorflow/core/platform/logging.h"

namespace stash_tf {

namespace {

using tensorflow::DeviceProperties;
using tensorflow::GraphDef;
using tensorflow::grappler::Cluster;
using tensorflow::grappler::GrapplerItem;

// Sums of gradients that cannot save this part of the peak stay as they are.
constexpr std::int64_t parts_that_count = 64;
// To find out what need not be copied: each is a plan of the step.
constexpr int most_attempts = 2;

// TensorFlow's word for "nothing to do"; any other error it writes to stderr and forgets as well.
absl::Status nothing_to_do(const std::string& why) {
  return absl::AbortedError(why);
}

bool was_rewritten(const GraphDef& graph) {
  for (const tensorflow::NodeDef& n : graph.node())
    if (n.attr().count(mark) != 0 && n.attr().at(mark).b()) return true;
  return false;
}

// oneDNN's part of the remapper makes one of a product with a bias, an addition and a ReLU, and forgets what.
std::string node_without_op(const graph_view& graph) {
  for (int i = 0; i < graph.size(); ++i)
    if (graph.op(i).empty()) return graph.name(i);
  return "";
}

template <class Nodes>
bool has_seeds(const Nodes& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const tensorflow::NodeDef& n) {
    const auto first = n.attr().find("seed");
    const auto second = n.attr().find("seed2");
    const auto end = n.attr().end();
    return first != end && second != end && (first->second.i() != 0 || second->second.i() != 0);
  });
}

// Whether random kernels with a seed run here or in a function that this graph calls. They count their calls:
// another instance of the function starts over.
bool draws_with_seeds(const GraphDef& graph) {
  const auto& functions = graph.library().function();
  return has_seeds(graph.node()) || std::any_of(functions.begin(), functions.end(),
                                                [](const auto& f) { return has_seeds(f.node_def()); });
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

// The machine of docs/machines.md that is nearest to a device's model, as its driver names that.
std::string machine_like(const std::string& model) {
  static constexpr std::pair<const char*, const char*> known[] = {
      {"H100", "h200"}, {"H200", "h200"}, {"A100", "a100"},    {"RTX", "rtx"},
      {"GTX", "rtx"},   {"TITAN", "rtx"}, {"M40", "m40_12gb"}, {"K40", "k40_12gb"}};
  for (const auto& [word, machine] : known)
    if (absl::StrContains(model, word)) return machine;
  return "a100";
}

// Kernels for GPUs are registered in any case, but without CUDA in the core they only say that it is missing.
bool lies_where_no_kernel_runs(const graph_view& graph, const step& analysis, const settings& request) {
  if (STASH_TF_HAS_CUDA != 0 || request.any_device) return false;
  return std::any_of(analysis.blocks.begin(), analysis.blocks.end(), [&](const stashed_block& b) {
    return absl::StrContains(graph.node(b.root.node).device(), "GPU");
  });
}

// Whether a counter of an encoder shows how many samples a step has.
bool tell_samples(const step& analysis, const tensor_sizes& sizes, const choices& chosen) {
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k)
    if (analysis.blocks[k].size.sample_elements(sizes.batch()) > 0 && !chosen.blocks[k].encoding.empty())
      return true;
  return false;
}

// A graph that could run the step, and the best that can be made of it. Not copied: its parts refer to each
// other.
class candidate {
 public:
  candidate(const GraphDef& existing, const graph_view& view, tensor_sizes known, step read)
      : sizes(std::move(known)), analysis(std::move(read)), original_(&existing), graph_(&view) {}

  // The graph of another one in which cheap ops run again, if copies.maps > 0; `analysis` is the caller's to
  // fill in.
  candidate(const candidate& kept, std::int64_t min_bytes, headroom* spare) : sizes(kept.sizes) {
    copies = recompute(*kept.original_, *kept.graph_, kept.analysis, *kept.flow, min_bytes, spare, &sizes,
                       &copied_);
    if (copies.maps == 0) return;
    original_ = &copied_;
    graph_ = &own_.emplace(copied_);
  }

  // The graph of another one in which loops keep less in lists, if `lists` says that it has any; `analysis`
  // is the caller's to fill in.
  candidate(const candidate& kept, const settings& request) : sizes(kept.sizes) {
    lists = encode_lists(*kept.original_, *kept.graph_, kept.analysis, *kept.flow, request, &sizes, &copied_);
    if (lists.changed() == 0) return;
    original_ = &copied_;
    graph_ = &own_.emplace(copied_);
  }
  candidate(const candidate&) = delete;
  candidate& operator=(const candidate&) = delete;

  const GraphDef& original() const { return *original_; }
  const graph_view& graph() const { return *graph_; }
  std::int64_t peak() const { return result.simulated.peak_bytes; }
  step_context context(const settings& request, std::int64_t device_bytes) const {
    return {*original_, *graph_, analysis, sizes, *flow, ordered, request, device_bytes};
  }

  // Encoding what has its headroom would take time for nothing.
  void keep_as_they_are() {
    for (stashed_block& b : analysis.blocks)
      if (copies.kept.count(b.root) != 0 && b.raw_because.empty())
        b.raw_because = "it does not raise the peak";
  }

  void plan(const settings& request, std::int64_t device_bytes) {
    if (analysis.order.size() != at(graph_->size()))
      throw std::runtime_error("what runs again or in lists makes a cycle: " +
                               check_output(*original_, *original_));
    flow.emplace(*graph_, analysis.order);
    ordered = order_backward_pass(*graph_, analysis, sizes, *flow);
    result = best_graph(context(request, device_bytes));
  }

  // What the step leaves free below a bound.
  headroom headroom_below(std::int64_t bound) const {
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

  tensor_sizes sizes;
  step analysis;
  copied_ops copies;
  encoded_lists lists;
  std::optional<control_flow> flow;
  ordering ordered;
  outcome result;

 private:
  GraphDef copied_;
  std::optional<graph_view> own_;
  const GraphDef* original_ = nullptr;
  const graph_view* graph_ = nullptr;
};

// Copies run for the peak alone: what may stay below it, or little above but not above `most`, is not copied.
// `plan_copies` plans a step with the headroom that is given.
template <class Plan>
std::unique_ptr<candidate> with_less_work(std::unique_ptr<candidate> smallest, std::int64_t most,
                                          const Plan& plan_copies) {
  const std::int64_t peak = smallest->peak();
  const std::int64_t limit = std::min(std::max(peak, most), peak + peak / parts_that_count);
  std::int64_t bound = limit;
  for (int k = 0; k < most_attempts; ++k) {
    headroom spare = smallest->headroom_below(bound);
    std::unique_ptr<candidate> lighter = plan_copies(&spare);
    if (lighter->copies.maps == 0 || lighter->copies.ops >= smallest->copies.ops) break;
    if (lighter->peak() <= limit) return lighter;
    bound -= lighter->peak() - limit;
  }
  return smallest;
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
    logged_graph log;
    log.id = item.id;
    log.generation = request.generation;
    log.nodes = item.graph.node_size();
    log.seeded = draws_with_seeds(item.graph);
    log.policy = request.policy;
    log.budget_bytes = request.budget_bytes;
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = absl::OkStatus();
    const bool must_keep = request.budget_bytes > 0 && !request.accepted;
    try {
      status = optimize(cluster, without_bodies(item), std::move(request), sizes_before_, output, &log);
    } catch (const std::exception& e) {
      log.reason = e.what();
      log.predicted_peak_bytes = log.predicted_plain_bytes;
      status = nothing_to_do(e.what());
      if (must_keep) {
        log.reason = absl::StrCat("no plan keeps the budget of ", log.budget_bytes,
                                  " bytes, because planning failed: ", e.what());
        status = refuse_unplanned(item.graph, log.reason, output);
      }
      if (!status.ok()) LOG(WARNING) << "Stash leaves " << item.id << " as it is: " << e.what();
    }
    if (status.ok()) *output->mutable_library() = item.graph.library();
    log.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log.rewritten = status.ok();
    if (!log.rewritten) {
      log.sums = log.loops = log.recomputed_maps = log.recomputed_ops = 0;
      log.recomputed_bytes = 0;
    }
    if (!status.ok() && log.reason.empty()) log.reason = std::string(status.message());
    log_graph(std::move(log));
    return status;
  }

 private:
  static absl::Status optimize(const Cluster* cluster, const GrapplerItem& item, settings request,
                               const tensor_sizes::named& sizes_before, GraphDef* output, logged_graph* log) {
    const graph_view input_graph(item.graph);
    if (!has_backward_pass(input_graph)) return nothing_to_do("no backward pass");
    if (const std::string broken = node_without_op(input_graph); !broken.empty())
      return nothing_to_do(absl::StrCat("TensorFlow's remapper has left ", broken,
                                        " without an op, so TensorFlow runs this step as it was before all "
                                        "optimizers; without oneDNN (TF_ENABLE_ONEDNN_OPTS=0) or with "
                                        "tf.config.optimizer.set_experimental_options({'remapping': False}) "
                                        "it does not"));
    tensor_sizes sizes;
    if (absl::Status s = tensor_sizes::infer(item, input_graph, request.batch, &sizes); !s.ok()) return s;
    sizes.fill_in(input_graph, sizes_before);
    log->batch_open = sizes.batch_open();
    log->batch = sizes.batch_known() ? batch_of(input_graph, sizes, request) : 0;
    if (sizes.too_large())
      return nothing_to_do(
          absl::StrCat("with a batch of ", request.batch,
                       " samples its tensors are larger than any memory: give the real batch"));
    std::set<std::string> preserved;
    for (const std::string& n : item.NodesToPreserve())
      preserved.emplace(parse_input(n).first);
    const auto analysed = [&](const graph_view& graph, const tensor_sizes& known) {
      step analysis = analyse(graph, known, request, preserved);
      analysis.threads = threads_of(cluster);
      return analysis;
    };
    step analysis = analysed(input_graph, sizes);
    log->left = analysis.left;
    log->unknown_layers = unknown_layers(input_graph, request.keep);
    if (analysis.device_node < 0)
      return nothing_to_do("no backward pass that reads a large tensor of a forward pass");
    if (lies_where_no_kernel_runs(input_graph, analysis, request))
      return nothing_to_do(
          "its tensors lie on a GPU, and this stash_tf was built without CUDA (docs/tensorflow.md)");
    if (analysis.order.size() != static_cast<std::size_t>(input_graph.size()))
      return nothing_to_do("the graph has a cycle");
    const footprint untouched = simulated_footprint(input_graph, input_graph, sizes, analysis, {});
    const std::int64_t plain = untouched.peak_bytes;
    log->lists_in_loops = untouched.unknown_lists;
    log->unknown_sizes = analysis.unknown_sizes;
    log->unknown_size = analysis.unknown_size;
    GraphDef split;
    log->sums = split_add_ns(item.graph, input_graph, analysis, plain / parts_that_count, &sizes, &split);
    const GraphDef& summed = log->sums > 0 ? split : item.graph;
    std::optional<graph_view> own;
    if (log->sums > 0) analysis = analysed(own.emplace(split), sizes);
    const graph_view& summed_graph = own ? *own : input_graph;

    if (request.swap && !analysis.on_device) {
      request.swap = false;
      log->swap = "nothing moves to the host: the tensors of this step lie in its memory already";
    }
    const DeviceProperties* device = properties_of(cluster, summed_graph.node(analysis.device_node).device());
    const std::int64_t device_bytes = request.device_bytes > 0 ? request.device_bytes
                                      : device != nullptr      ? device->memory_size()
                                                               : 0;  // not known
    if (request.swap && request.machine.empty())
      request.machine = machine_like(device != nullptr ? device->model() : "");
    if (request.swap) log->machine = request.machine;

    const std::int64_t unit =
        sizes.batch_known() ? 1 : sizes.batch();  // of one sample where that is all one knows
    log->predicted_plain_bytes = plain / unit;
    auto best = std::make_unique<candidate>(summed, summed_graph, std::move(sizes), std::move(analysis));
    best->plan(request, device_bytes);
    const auto is_kept = [&] { return request.budget_bytes > 0 && best->peak() <= request.budget_bytes; };
    encoded_lists lists;
    if (!best->analysis.lists.empty() && !is_kept()) {
      auto listed = std::make_unique<candidate>(*best, request);
      if (listed->lists.changed() > 0) {
        listed->analysis = analysed(listed->graph(), listed->sizes);
        listed->plan(request, device_bytes);

        // Where nothing says how often a loop runs, its lists are not in the peak.
        if (listed->peak() < best->peak() || (log->lists_in_loops && listed->peak() <= best->peak())) {
          best = std::move(listed);
          lists = best->lists;
        }
      }
    }
    if (request.recompute && request.policy == "lossless" && !is_kept()) {
      const auto plan_copies = [&](headroom* spare) {
        auto again = std::make_unique<candidate>(*best, request.min_bytes, spare);
        if (again->copies.maps == 0) return again;
        again->analysis = analysed(again->graph(), again->sizes);
        again->keep_as_they_are();
        again->plan(request, device_bytes);
        return again;
      };
      auto again = plan_copies(nullptr);
      if (again->copies.maps > 0 && again->peak() < best->peak())
        best = with_less_work(std::move(again),
                              request.budget_bytes > 0 ? request.budget_bytes : best->peak(), plan_copies);
    }
    log->recomputed_maps = best->copies.maps + lists.recomputed;
    log->recomputed_ops = best->copies.ops + lists.ops;
    log->recomputed_bytes = best->copies.bytes + lists.recomputed_bytes;
    log->lists = lists.changed();
    log->loops = best->ordered.loops_held_back;
    outcome& result = best->result;
    const std::int64_t peak = best->peak();
    // Gradients that are added up as they come, and iterations that wait for it, are worth any gain.
    const bool ordered_sums = log->sums > 0 || log->loops > 0;
    const bool lower = ordered_sums ? peak < plain : peak + plain / parts_that_count <= plain;
    log->predicted_peak_bytes = peak / unit;
    log->predicted_host_bytes = result.simulated.host_bytes / unit;
    log_choices(best->context(request, device_bytes), result, log);
    log->tensors.insert(log->tensors.end(), lists.tensors.begin(), lists.tensors.end());
    if (request.swap) log->swap = word_on_swapping(best->context(request, device_bytes), result);
    // Budgets and moves are about bytes of a step, not of a sample: it is planned again once they are known.
    const bool must_learn = !best->sizes.batch_known() && (request.budget_bytes > 0 || request.swap);
    bool encoders_tell = tell_samples(best->analysis, best->sizes, result.chosen);
    if (peak > request.budget_bytes && request.budget_bytes > 0 && best->sizes.batch_known()) {
      // Another trace of the step may differ by a scalar here and there.
      log->smallest_budget_bytes = peak + peak / 200;
      const std::string word =
          absl::StrCat("the budget of ", request.budget_bytes, " bytes is too small for this step; ",
                       log->smallest_budget_bytes, " would do under policy ", request.policy,
                       request.swap ? " with swap" : "");
      if (request.accepted) {
        log->budget = word;
      } else if (!log->lists_in_loops) {  // else the step may well fit: the report says that nobody knows
        log->reason = word;
        result.graph = refuse(best->original(), best->graph(), best->analysis, *best->flow,
                              absl::StrCat("Stash: ", word));
      }
    } else if (request.budget_bytes == 0) {
      const bool nothing = result.graph.stashes == 0 && lists.changed() == 0 && !lower;
      const bool higher = !nothing && peak > plain;
      if (higher) log->tensors.clear();
      if (nothing || higher) {
        log->predicted_peak_bytes = log->predicted_plain_bytes;
        if (!must_learn)
          return nothing_to_do(nothing ? "no other form of a tensor and no other order would lower its peak"
                                       : "the peak of this step would not be lower");
        result.graph.graph = best->original();
        encoders_tell = false;
      }
    }
    log->ordered =
        result.graph.stashes == 0 && lists.encoded == 0 && log->sums == 0 && lower && log->reason.empty();
    // Later batches may be larger than the one that the plan is for. What loops hold is no multiple of what
    // one sample takes.
    const bool matters = request.budget_bytes > 0 || request.swap || log->loops > 0;
    const bool watch = best->sizes.batch_open() && matters && log->reason.empty();
    log->counts_samples = encoders_tell || (watch && count_samples(best->graph(), best->analysis, best->sizes,
                                                                   *best->flow, &result.graph));
    if (const std::string fault = check_output(item.graph, result.graph.graph); !fault.empty()) {
      log->tensors.clear();
      throw std::runtime_error("what it made would be malformed: " + fault);
    }
    *output = std::move(result.graph.graph);
    return absl::OkStatus();
  }

  // A step that was not analysed must not run plain where a budget was asked for. Fails for a graph of which
  // nothing can be made.
  static absl::Status refuse_unplanned(const GraphDef& original, const std::string& why, GraphDef* output) {
    try {
      const graph_view graph(original);
      step analysis;
      analysis.order = graph.topological_order();
      for (int i = 0; i < graph.size() && analysis.device_node < 0; ++i)
        if (!is_outside(graph.op(i)) && !is_control_flow(graph.op(i))) analysis.device_node = i;
      if (!has_backward_pass(graph) || analysis.device_node < 0 || analysis.order.size() != at(graph.size()))
        return nothing_to_do(why);
      const control_flow flow(graph, analysis.order);
      *output = refuse(original, graph, analysis, flow, absl::StrCat("Stash: ", why)).graph;
      return absl::OkStatus();
    } catch (const std::exception&) {
      return nothing_to_do(why);
    }
  }

  static tensor_sizes::named known_sizes(const GrapplerItem& item, const settings& request) {
    try {
      const graph_view graph(item.graph);
      tensor_sizes sizes;
      if (!has_backward_pass(graph) || !tensor_sizes::infer(item, graph, request.batch, &sizes).ok())
        return {};
      return sizes.by_name(graph);
    } catch (const std::exception&) {
      return {};  // The last look says what is wrong with the graph.
    }
  }

  // Null: not known.
  static const DeviceProperties* properties_of(const Cluster* cluster, const std::string& device) {
    if (cluster == nullptr) return nullptr;
    const auto& devices = cluster->GetDevices();
    const auto found = devices.find(device);
    return found == devices.end() ? nullptr : &found->second;
  }

  // Threads within an op on the CPU; 1 where that is not known.
  static int threads_of(const Cluster* cluster) {
    const tensorflow::DeviceSet* devices = cluster == nullptr ? nullptr : cluster->GetDeviceSet();
    if (devices == nullptr) return 1;
    for (const tensorflow::Device* device : devices->devices())
      if (device->IsLocal() && device->device_type() == tensorflow::DEVICE_CPU)
        return device->tensorflow_cpu_worker_threads()->num_threads;
    return 1;
  }

  // Cheap, and true for every step that could be worth a closer look.
  static bool has_backward_pass(const graph_view& graph) {
    for (int i = 0; i < graph.size(); ++i) {
      const std::string& op = graph.op(i);
      if (absl::EndsWith(op, "Grad") || absl::StrContains(op, "Backprop")) return true;
      if (absl::StrContains(graph.name(i), "gradient")) return true;
    }
    return false;
  }

  static std::int64_t batch_of(const graph_view& graph, const tensor_sizes& sizes, const settings& request) {
    if (request.batch > 0) return request.batch;
    for (int i = 0; i < graph.size(); ++i) {
      if (graph.op(i) != "IteratorGetNext" && graph.op(i) != "_Arg" && graph.op(i) != "OptionalGetValue")
        continue;
      const tensor_size* s = sizes.find({i, 0});
      if (s != nullptr && s->dims.size() > 1) return s->dims[0];
    }
    return 1;
  }

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
