// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Variables of loops that nothing reads any more.

#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// Takes out of `graph` the variables of loops through which nothing but empty lists goes: those of which
/// only control flow, Identity nodes of this optimizer, and the NoOp that waits for the end of a loop know.
/// That NoOp keeps to wait for the other variables of its loop. TensorFlow would pass each of them on in
/// every iteration, in four or five nodes of either loop. Returns how many nodes were taken out.
int remove_unused_loop_variables(tensorflow::GraphDef* graph);

}  // namespace stash_tf
