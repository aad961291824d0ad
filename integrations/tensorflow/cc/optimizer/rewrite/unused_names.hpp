// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Names for nodes that are added to a graph.

#include <map>
#include <set>
#include <string>

#include "tensorflow/core/framework/graph.pb.h"

namespace stash_tf {

class unused_names {
 public:
  explicit unused_names(const tensorflow::GraphDef& graph);

  /// `base`, or `base` with the first number for which no node of the graph has the name and none was given
  /// out.
  std::string take(const std::string& base);

 private:
  std::set<std::string> names_;
  std::map<std::string, int> numbers_;  // the last one given out, by base
};

}  // namespace stash_tf
