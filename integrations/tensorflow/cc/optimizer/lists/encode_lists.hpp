// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Loops that keep less of each iteration: the elements of their lists are encoded before they are put in and
/// decoded when they have been taken out, and what cheap ops make of other elements is not put in at all.

#include <cstdint>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/log.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

struct encoded_lists {
  int encoded = 0;     ///< lists whose elements are encoded
  int recomputed = 0;  ///< lists that stay empty
  int dropped = 0;     ///< lists of which the backward loop wants nothing but shapes, which stay empty, too
  int once = 0;        ///< lists of something that is the same in every iteration, which stay empty as well
  int ops = 0;         ///< that run again for these, once in an iteration
  std::int64_t recomputed_bytes = 0;   ///< of these lists, in all iterations
  std::vector<logged_tensor> tensors;  ///< one for each of step::lists, if any was changed

  int changed() const { return encoded + recomputed + dropped + once; }
};

/// A copy of the graph with such lists. In a list of bytes the shape of an element is lost: all but the batch
/// is known, and the number of bytes tells that (StashDims); lists where it would not stay as they are. An
/// iteration of the forward loop waits for the encoders of the one before, or their inputs would lie there
/// for as many iterations as TensorFlow has under way at a time. A decoder waits for the gradient that its
/// first reader meets.
///
/// Nodes of the graph keep their names and numbers; new ones follow after them, and their sizes are added to
/// `sizes`. `result` is written if anything was changed. The step has to be analysed again then.
encoded_lists encode_lists(const tensorflow::GraphDef& original, const graph_view& graph, step analysis,
                           const control_flow& flow, const settings& request, tensor_sizes* sizes,
                           tensorflow::GraphDef* result);

}  // namespace stash_tf
