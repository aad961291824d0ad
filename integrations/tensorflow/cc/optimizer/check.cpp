#include "optimizer/check.hpp"

#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "optimizer/graph_view.hpp"
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
          return absl::StrCat("'", n.name(), "': a data input behind a control edge");
        control = control || s.is_control();
        if (s.is_control() && view.op(s.node) == "_Retval")
          return absl::StrCat("'", n.name(), "' waits for the result '", view.name(s.node), "'");
      }
      if (n.attr().count("_stash") == 0) continue;
      if (std::string fault = check_node(n); !fault.empty()) return fault;
    }
    if (view.topological_order().size() != static_cast<std::size_t>(view.size())) return "there is a cycle";
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace stash_tf
