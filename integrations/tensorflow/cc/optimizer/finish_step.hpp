// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The last stage: the graph that TensorFlow gets, checked.

#include <string>

#include "absl/status/statusor.h"
#include "optimizer/candidate.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/verdict.hpp"
#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

struct finished_step {
  tensorflow::GraphDef graph;
  bool counts_samples = false;  ///< counters of its ops tell how large the batch is
  std::string fault;            ///< not empty: it must not run, and why
};

/// What `decided` makes of the step; not for what is left as it is. `input` is the graph that was read,
/// `planned` that of the plan.
finished_step finish(const tensorflow::GraphDef& input, tensorflow::GraphDef planned, const candidate& best,
                     const verdict& decided, const settings& request);

/// A step that was not analysed must not run plain where a budget was asked for: one that fails and says why.
/// An error for a graph of which nothing can be made.
absl::StatusOr<tensorflow::GraphDef> refused_unplanned(const tensorflow::GraphDef& input,
                                                       const std::string& why);

}  // namespace stash_tf
