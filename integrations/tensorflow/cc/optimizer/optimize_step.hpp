// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The stages of the optimizer, one after the other: read, analyse, split, order, plan, rewrite, simulate,
/// check.

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "optimizer/analyse/step.hpp"
#include "optimizer/candidate.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/finish_step.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/read_step.hpp"
#include "optimizer/simulate/footprint.hpp"
#include "optimizer/step_device.hpp"
#include "optimizer/verdict.hpp"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"

namespace stash_tf {

/// What each stage has returned, as far as they came. Not copied: values refer to earlier ones.
struct optimized_step {
  settings wishes;  ///< the user's
  std::optional<read_step> read;
  std::optional<step> analysis;
  std::optional<footprint> untouched;  ///< of the step as TensorFlow would run it
  std::unique_ptr<candidate> split;    ///< with sums of gradients split
  step_device device;
  std::optional<settings> request;  ///< what of the wishes has a meaning on that device
  std::unique_ptr<candidate> best;
  std::optional<verdict> decided;
  finished_step finished;

  absl::Status status;  ///< OK: TensorFlow gets the finished graph; else it keeps its own
  std::string failure;  ///< the error of a stage that failed; else empty
  std::string refusal;  ///< what the step says, which must not run, because a stage failed; else empty

  optimized_step() = default;
  optimized_step(const optimized_step&) = delete;
  optimized_step& operator=(const optimized_step&) = delete;

  candidate_terms terms() const { return {*read, *request, device.bytes}; }
};

/// `item` has to outlive what is returned; `earlier` as for read().
std::unique_ptr<optimized_step> optimize_step(const tensorflow::grappler::Cluster* cluster,
                                              const tensorflow::grappler::GrapplerItem& item, settings wishes,
                                              const tensor_sizes::named& earlier);

}  // namespace stash_tf
