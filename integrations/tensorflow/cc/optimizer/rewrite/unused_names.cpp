// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/unused_names.hpp"

#include "absl/strings/str_cat.h"

namespace stash_tf {

unused_names::unused_names(const tensorflow::GraphDef& graph) {
  for (const tensorflow::NodeDef& n : graph.node())
    names_.insert(n.name());
}

std::string unused_names::take(const std::string& base) {
  std::string name = base;
  for (int& k = numbers_[base]; !names_.insert(name).second;)
    name = absl::StrCat(base, "_", ++k);
  return name;
}

}  // namespace stash_tf
