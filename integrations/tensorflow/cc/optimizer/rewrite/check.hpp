// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The last look at a rewritten graph. TensorFlow falls back to the unoptimised graph in silence where it
/// finds one malformed, so it must not come to that.

#include <string>

#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

/// Empty if `graph` has unique names, inputs and outputs that exist, known ops whose attributes fit, no
/// cycle, no node without a device where `original` has none, and all nodes of `original`; else what is
/// wrong.
std::string check_output(const tensorflow::GraphDef& original, const tensorflow::GraphDef& graph);

}  // namespace stash_tf
