// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/check.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "optimizer/graph/graph_view.hpp"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def_util.h"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;

std::string check_node(const NodeDef& n) {
  const tensorflow::OpDef* op = nullptr;
  if (const absl::Status s = tensorflow::OpRegistry::Global()->LookUpOpDef(n.op(), &op); !s.ok())
    return absl::StrCat("'", n.name(), "': ", s.message());
  for (const auto& [name, value] : n.attr())
    if (name[0] != '_' && tensorflow::FindAttr(name, *op) == nullptr)
      return absl::StrCat("'", n.name(), "': ", n.op(), " has no attribute '", name, "'");
  NodeDef complete = n;
  tensorflow::AddDefaultsToNodeDef(*op, &complete);
  if (const absl::Status s = tensorflow::ValidateNodeDef(complete, *op); !s.ok())
    return absl::StrCat("'", n.name(), "': ", s.message());
  return "";
}

// One of the cycles of a graph whose topological order leaves nodes out; its middle may be left out, too.
std::string cycle_of(const graph_view& view, const std::vector<int>& order) {
  constexpr std::size_t most = 8;
  std::vector<bool> ordered(at(view.size()), false);
  for (const int i : order)
    ordered[at(i)] = true;
  const auto before = [&](int i) {
    for (const int first : view.before(i))
      if (!ordered[at(first)]) return first;
    return -1;
  };
  int i = 0;
  while (ordered[at(i)])
    ++i;
  // Whoever goes back from node to node, as often as there are nodes, is on a cycle.
  for (int k = 0; k < view.size(); ++k)
    i = before(i);
  std::vector<std::string> names;
  for (int k = before(i); k != i; k = before(k))
    names.push_back(view.name(k));
  std::reverse(names.begin(), names.end());
  if (names.size() > most) {
    names.erase(names.begin() + most / 2, names.end() - most / 2);
    names.insert(names.begin() + most / 2, "...");
  }
  return absl::StrCat("'", view.name(i), "' waits for itself", names.empty() ? "" : ", through ",
                      absl::StrJoin(names, ", "));
}

}  // namespace

std::string check_output(const GraphDef& original, const GraphDef& graph) {
  std::set<std::string> before;
  bool devices = true;
  for (const NodeDef& n : original.node()) {
    before.insert(n.name());
    devices = devices && !n.device().empty();
  }
  try {
    const graph_view view(graph);
    for (const std::string& name : before)
      if (view.find(name) < 0) return absl::StrCat("'", name, "' is gone");
    for (int i = 0; i < view.size(); ++i) {
      const NodeDef& n = view.node(i);
      if (devices && n.device().empty()) return absl::StrCat("'", n.name(), "' has no device");
      bool control = false;
      for (const source& s : view.inputs(i)) {
        if (control && !s.is_control())
          return absl::StrCat("'", n.name(), "': a data input after a control edge");
        control = control || s.is_control();
        if (s.is_control() && view.op(s.node) == "_Retval")
          return absl::StrCat("'", n.name(), "' waits for the result '", view.name(s.node), "'");
      }
      if (n.attr().count("_stash") == 0) continue;
      if (std::string fault = check_node(n); !fault.empty()) return fault;
    }
    const std::vector<int> order = view.topological_order();
    if (order.size() != at(view.size())) return cycle_of(view, order);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace stash_tf
