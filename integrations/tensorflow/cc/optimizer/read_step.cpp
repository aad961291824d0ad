// SPDX-License-Identifier: Apache-2.0
#include "optimizer/read_step.hpp"

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "optimizer/step_device.hpp"

namespace stash_tf {

namespace {

using tensorflow::grappler::Cluster;
using tensorflow::grappler::GrapplerItem;

// oneDNN's part of the remapper makes one of a product with a bias, an addition and a ReLU, and forgets what.
std::string node_without_op(const graph_view& graph) {
  for (int i = 0; i < graph.size(); ++i)
    if (graph.op(i).empty()) return graph.name(i);
  return "";
}

std::int64_t batch_of(const graph_view& graph, const tensor_sizes& sizes, const settings& request) {
  if (request.batch > 0) return request.batch;
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.op(i) != "IteratorGetNext" && graph.op(i) != "_Arg" && graph.op(i) != "OptionalGetValue")
      continue;
    const tensor_size* s = sizes.find({i, 0});
    if (s != nullptr && s->dims.size() > 1) return s->dims[0];
  }
  return 1;
}

}  // namespace

absl::Status nothing_to_do(const std::string& why) {
  return absl::AbortedError(why);
}

bool has_backward_pass(const graph_view& graph) {
  for (int i = 0; i < graph.size(); ++i) {
    const std::string& op = graph.op(i);
    if (absl::EndsWith(op, "Grad") || absl::StrContains(op, "Backprop")) return true;
    if (absl::StrContains(graph.name(i), "gradient")) return true;
  }
  return false;
}

absl::StatusOr<read_step> read(const GrapplerItem& item, const Cluster* cluster, const settings& request,
                               const tensor_sizes::named& earlier) {
  read_step result{graph_view(item.graph), {}, 0, {}, threads_of(cluster)};
  const graph_view& graph = result.graph;
  if (!has_backward_pass(graph)) return nothing_to_do("no backward pass");
  if (const std::string broken = node_without_op(graph); !broken.empty())
    return nothing_to_do(absl::StrCat("TensorFlow's remapper has left ", broken,
                                      " without an op, so TensorFlow runs this step as it was before all "
                                      "optimizers; without oneDNN (TF_ENABLE_ONEDNN_OPTS=0) or with "
                                      "tf.config.optimizer.set_experimental_options({'remapping': False}) "
                                      "it does not"));
  if (absl::Status s = tensor_sizes::infer(item, graph, request.batch, &result.sizes); !s.ok()) return s;
  result.sizes.fill_in(graph, earlier);
  if (result.sizes.batch_known()) result.batch = batch_of(graph, result.sizes, request);
  for (const std::string& n : item.NodesToPreserve())
    result.preserved.emplace(parse_input(n).first);
  return result;
}

tensor_sizes::named known_sizes(const GrapplerItem& item, const settings& request) {
  try {
    const graph_view graph(item.graph);
    tensor_sizes sizes;
    if (!has_backward_pass(graph) || !tensor_sizes::infer(item, graph, request.batch, &sizes).ok()) return {};
    return sizes.by_name(graph);
  } catch (const std::exception&) {
    return {};  // The last look says what is wrong with the graph.
  }
}

}  // namespace stash_tf
