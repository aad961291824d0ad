// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The first stage: a step as TensorFlow hands it over, by numbers and with sizes.

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"

namespace stash_tf {

struct read_step {
  graph_view graph;  ///< of the item's graph
  tensor_sizes sizes;
  std::int64_t batch = 0;           ///< samples; 0: not known
  std::set<std::string> preserved;  ///< nodes that somebody else asks for
  int threads = 1;                  ///< that share the work of one kernel on the CPU
};

/// TensorFlow's word for "nothing to do"; any other error it writes to stderr and forgets as well.
absl::Status nothing_to_do(const std::string& why);

/// Cheap, and true for every step that could be worth a closer look.
bool has_backward_pass(const graph_view& graph);

/// `earlier`: sizes that were known when TensorFlow showed this graph before. The item has to outlive what is
/// returned. An error where the graph holds nothing to do, or cannot be read.
absl::StatusOr<read_step> read(const tensorflow::grappler::GrapplerItem& item,
                               const tensorflow::grappler::Cluster* cluster, const settings& request,
                               const tensor_sizes::named& earlier);

/// What is known of the sizes in a graph that is no more than looked at.
tensor_sizes::named known_sizes(const tensorflow::grappler::GrapplerItem& item, const settings& request);

}  // namespace stash_tf
