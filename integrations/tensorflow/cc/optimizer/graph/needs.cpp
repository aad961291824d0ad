// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/needs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"

namespace stash_tf {

namespace {

using inputs_with_value = std::map<std::string, std::set<int>>;

// Ops whose result is a continuous function of these inputs: a rounded input gives a rounded result.
// An empty set means every input. A divisor, or the base of a power, is not one of them: rounded to zero it
// makes infinities.
const inputs_with_value& continuous_inputs() {
  static const inputs_with_value table = {{"Conv2DBackpropFilter", {0, 2}},
                                          {"Conv3DBackpropFilterV2", {0, 2}},
                                          {"DepthwiseConv2dNativeBackpropFilter", {0, 2}},
                                          {"FusedBatchNormGradV3", {1}},
                                          {"LRNGrad", {1, 2}},
                                          {"SelectV2", {1, 2}},
                                          {"Select", {1, 2}},
                                          {"Sum", {0}},
                                          {"Mean", {0}},
                                          {"Transpose", {0}},
                                          {"Reshape", {0}},
                                          {"ExpandDims", {0}},
                                          {"Squeeze", {0}},
                                          {"Slice", {0}},
                                          {"StridedSlice", {0}},
                                          {"Pad", {0}},
                                          {"PadV2", {0}},
                                          {"Tile", {0}},
                                          {"BroadcastTo", {0}},
                                          {"Mul", {}},
                                          {"MulNoNan", {}},
                                          {"Add", {}},
                                          {"AddV2", {}},
                                          {"AddN", {}},
                                          {"Sub", {}},
                                          {"Neg", {}},
                                          {"RealDiv", {0}},
                                          {"Div", {0}},
                                          {"DivNoNan", {0}},
                                          {"Square", {}},
                                          {"SquaredDifference", {}},
                                          {"Exp", {}},
                                          {"Erf", {}},
                                          {"Tanh", {}},
                                          {"TanhGrad", {}},
                                          {"Sigmoid", {}},
                                          {"SigmoidGrad", {}},
                                          {"SoftplusGrad", {}},
                                          {"SoftsignGrad", {}},
                                          {"Softmax", {}},
                                          {"MatMul", {}},
                                          {"_FusedMatMul", {}},
                                          {"BatchMatMulV2", {}},
                                          {"BatchMatMulV3", {}},
                                          {"Conv2D", {}},
                                          {"Conv3D", {}},
                                          {"Einsum", {}},
                                          {"Identity", {}},
                                          {"Cast", {}},
                                          {"Abs", {}},
                                          {"BiasAdd", {}},
                                          {"ConcatV2", {}},
                                          {"Elu", {}},
                                          {"Erfc", {}},
                                          {"Expm1", {}},
                                          {"LeakyRelu", {}},
                                          {"Maximum", {}},
                                          {"Minimum", {}},
                                          {"MirrorPad", {0}},
                                          {"Relu", {}},
                                          {"Relu6", {}},
                                          {"Selu", {}},
                                          {"Softplus", {}},
                                          {"Softsign", {}}};
  return table;
}

bool to_integers(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  const auto to = attr.find("DstT");
  if (to == attr.end()) return true;
  switch (to->second.type()) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
    case tensorflow::DT_DOUBLE:
      return false;
    default:
      return true;
  }
}

// Negative slopes that are no numbers are left to TensorFlow.
bool has_odd_alpha(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  const auto alpha = attr.find("alpha");
  return alpha != attr.end() && !std::isfinite(alpha->second.f());
}

// The activation that ends a fused op; empty: it has none.
std::string fused_activation(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  if (const auto fused = attr.find("fused_ops"); fused != attr.end()) {
    const auto& list = fused->second.list().s();
    return list.empty() ? "" : *list.rbegin();
  }
  const auto activation = attr.find("activation_mode");
  return activation == attr.end() ? "" : activation->second.s();
}

bool is_continuous(const std::string& op, int input) {
  const auto entry = continuous_inputs().find(op);
  return entry != continuous_inputs().end() && (entry->second.empty() || entry->second.count(input) != 0);
}

}  // namespace

std::vector<std::string> ops_of(const graph_view& graph, int node) {
  const std::string& op = graph.op(node);
  const auto names = graph.node(node).attr().find("op_names");
  if (op != "_UnaryOpsComposition" || names == graph.node(node).attr().end()) return {op};
  const auto& list = names->second.list().s();
  return {list.begin(), list.end()};
}

std::vector<std::string> needs_of_input(const graph_view& graph, int node, int input) {
  const std::string& op = graph.op(node);
  if (input == 1) {
    if (op == "ReluGrad") return {"sign"};
    if (op == "LeakyReluGrad") return {has_odd_alpha(graph, node) ? "exact_value" : "sign"};
    if (op == "Relu6Grad") return {"range"};
    // The two branches of these meet at zero with different slopes, so that a value that is rounded to zero
    // needs its sign.
    if (op == "EluGrad" || op == "SeluGrad") return {"value", "sign"};
  }
  if ((op == "SelectV2" || op == "Select") && input == 0) return {"mask"};
  if ((op == "Cast" && to_integers(graph, node)) || (op == "LeakyRelu" && has_odd_alpha(graph, node)))
    return {"exact_value"};
  const std::vector<std::string> ops = ops_of(graph, node);
  const bool continuous = std::all_of(ops.begin(), ops.end(),
                                      [&](const std::string& name) { return is_continuous(name, input); });
  return {continuous ? "value" : "exact_value"};
}

bool needs_fine_values(const graph_view& graph, int root, int node, int input) {
  const std::string& op = graph.op(node);
  if (input == 0 && (op == "SigmoidGrad" || op == "TanhGrad")) return true;
  if (input == 1 && (op == "EluGrad" || op == "SeluGrad")) return true;
  return graph.op(root) == "Softmax" || graph.op(root) == "LogSoftmax";
}

const char* op_on_bits(const std::string& op) {
  if (op == "ReluGrad") return "StashReluGrad";
  if (op == "Relu6Grad") return "StashRelu6Grad";
  if (op == "LeakyReluGrad") return "StashLeakyReluGrad";
  return nullptr;
}

bool is_held_elsewhere(const std::string& op) {
  // The caller, an iterator or the weights hold these anyway.
  static const std::set<std::string> ops = {"_Arg",
                                            "Placeholder",
                                            "Const",
                                            "ReadVariableOp",
                                            "VariableV2",
                                            "IteratorGetNext",
                                            "OptionalGetValue",
                                            "VarHandleOp"};
  return ops.count(op) != 0;
}

bool is_for_weights(const std::string& op) {
  return op == "Conv2DBackpropFilter" || op == "Conv3DBackpropFilterV2" ||
         op == "DepthwiseConv2dNativeBackpropFilter" || op == "BiasAddGrad";
}

bool writes_variable(const std::string& op) {
  return absl::StartsWith(op, "Assign") || absl::StartsWith(op, "ResourceApply");
}

bool is_alias(const std::string& op) {
  static const std::set<std::string> ops = {"Identity",     "Reshape",         "Squeeze", "ExpandDims",
                                            "StopGradient", "PreventGradient", "Snapshot"};
  return ops.count(op) != 0;
}

bool may_write_in_place(const std::string& op) {
  static const std::set<std::string> ops = {
      // of one value
      "Abs", "Neg", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Exp", "Expm1", "Square",
      "Sqrt", "Rsqrt", "Softplus", "Softsign", "Softmax", "LogSoftmax", "Erf", "Erfc", "Erfinv", "Ndtri",
      "Log", "Log1p", "ZerosLike", "OnesLike", "Sign", "Ceil", "Floor", "Round", "Rint", "Reciprocal", "Inv",
      "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Lgamma",
      "Digamma", "BesselI0e", "BesselI1e", "Snapshot", "ClipByValue", "LogicalNot", "_UnaryOpsComposition",
      // of two
      "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "MulNoNan", "SquaredDifference", "Maximum",
      "Minimum", "Pow", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "Atan2", "Xlogy", "Xdivy", "Xlog1py",
      "NextAfter", "LogicalAnd", "LogicalOr",
      // gradients
      "ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "TanhGrad", "SigmoidGrad", "RsqrtGrad",
      "SqrtGrad", "InvGrad", "ReciprocalGrad", "SoftplusGrad", "SoftsignGrad", "AddN", "AccumulateNV2",
      "BiasAdd", "Select", "SelectV2", "MatrixBandPart", "MatrixSetDiagV3", "TensorStridedSliceUpdate"};
  return ops.count(op) != 0;
}

bool is_relu(const graph_view& graph, int node) {
  return graph.op(node) == "Relu" || fused_activation(graph, node) == "Relu";
}

bool makes_zeros(const graph_view& graph, int node) {
  return is_relu(graph, node) || graph.op(node) == "Relu6" || fused_activation(graph, node) == "Relu6";
}

}  // namespace stash_tf
