// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Random numbers that go on from call to call.

#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// Whether random kernels with a seed run in this graph or in a function that it calls. They count their
/// calls: another instance of the function starts over.
bool draws_with_seeds(const tensorflow::GraphDef& graph);

}  // namespace stash_tf
