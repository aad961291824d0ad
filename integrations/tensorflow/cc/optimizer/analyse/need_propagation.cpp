// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/need_propagation.hpp"

#include <algorithm>
#include <set>

#include "optimizer/analyse/backward.hpp"
#include "optimizer/graph/marks.hpp"
#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

// Ops whose results are values of their first input, each with its sign.
bool is_view(const std::string& op) {
  static const std::set<std::string> ops = {"Reshape",     "ExpandDims", "Squeeze",      "Transpose", "Tile",
                                            "BroadcastTo", "Slice",      "StridedSlice", "Identity"};
  return ops.count(op) != 0;
}

bool is_bilinear(const std::string& op) {
  static const std::set<std::string> ops = {"MatMul",
                                            "_FusedMatMul",
                                            "BatchMatMulV2",
                                            "BatchMatMulV3",
                                            "Einsum",
                                            "Conv2DBackpropInput",
                                            "Conv3DBackpropInputV2",
                                            "DepthwiseConv2dNativeBackpropInput",
                                            "Conv2D",
                                            "Conv3D"};
  return ops.count(op) != 0;
}

bool is_sum(const std::string& op) {
  return op == "Add" || op == "AddV2" || op == "AddN" || op == "Sub";
}

bool decides(const std::string& op) {
  static const std::set<std::string> ops = {"Equal",   "NotEqual",     "Less",   "LessEqual",
                                            "Greater", "GreaterEqual", "IsInf",  "ApproximateEqual",
                                            "IsNan",   "IsFinite",     "ArgMax", "ArgMin"};
  return ops.count(op) != 0;
}

// Whether close inputs may give results that differ widely: steps, conditions, poles.
bool magnifies(const std::string& op, int input) {
  static const std::set<std::string> anywhere = {
      "Floor", "Ceil",       "Round",     "Rint",     "Sign",     "FloorMod", "Mod",     "TopKV2",
      "Where", "MaxPool",    "MaxPool3D", "Log",      "Log1p",    "Rsqrt",    "Inv",     "Asin",
      "Acos",  "Acosh",      "Atanh",     "Atan2",    "Tan",      "Lgamma",   "Digamma", "Erfinv",
      "Ndtri", "Reciprocal", "Cast",      "FloorDiv", "Bucketize"};
  static const std::set<std::string> first = {"Pow",      "SqrtGrad",    "Select",
                                              "SelectV2", "MaxPoolGrad", "MaxPool3DGrad"};
  static const std::set<std::string> second = {"RealDiv", "Div",         "DivNoNan",      "Xdivy",    "Xlogy",
                                               "Xlog1py", "MaxPoolGrad", "MaxPool3DGrad", "Relu6Grad"};
  return decides(op) || anywhere.count(op) != 0 || (input == 1 && second.count(op) != 0) ||
         (input == 0 && first.count(op) != 0);
}

bool magnifies(const graph_view& graph, int node, int input) {
  const std::vector<std::string> ops = ops_of(graph, node);
  return std::any_of(ops.begin(), ops.end(), [&](const std::string& op) { return magnifies(op, input); });
}

bool looks_at_values(const std::string& op) {
  static const std::set<std::string> ops = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"};
  return ops.count(op) == 0;
}

bool has(const std::vector<std::string>& needs, const char* name) {
  return std::find(needs.begin(), needs.end(), name) != needs.end();
}

}  // namespace

need_propagation::need_propagation(const graph_view& graph, const std::vector<int>& order,
                                   const std::vector<bool>& backward, const std::vector<bool>& late)
    : graph_(graph), backward_(backward), late_(late) {
  gradient_.assign(at(graph.size()), false);
  of_result_.assign(at(graph.size()), {});
  late_derivative_.assign(at(graph.size()), false);
  of_loss_.assign(at(graph.size()), false);
  constant_.assign(at(graph.size()), false);
  for (const int i : order) {
    constant_[at(i)] = is_constant(i);
    gradient_[at(i)] = backward[at(i)] && is_gradient(i);
    late_derivative_[at(i)] = late[at(i)] && is_late_derivative(i);
    of_loss_[at(i)] = late[at(i)] && is_of_loss(i);
  }
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (!backward[at(*i)] || gradient_[at(*i)]) continue;
    demand& all = of_result_[at(*i)];
    for (const reader& r : graph.readers(*i)) {
      if (r.port < 0) continue;
      const demand d = of_input(r.node, r.input, late[at(*i)]);
      all.exact = all.exact || d.exact;
      all.sign = all.sign || d.sign;
      all.fine = all.fine || d.fine;
    }
  }
}

// Gradients come out of ops that stand in backward passes only, out of a loss, and out of all that is
// computed from one. At the end of a step the gradient of a loss may be a constant that nobody sees: there
// the first product with weights is what no derivative of an activation has.
bool need_propagation::is_gradient(int node) const {
  const std::string& op = graph_.op(node);
  if (gradient_input(op) >= 0) return true;
  if (decides(op) || !looks_at_values(op)) return false;
  bool product = false;
  for (const source& s : graph_.inputs(node)) {
    if (s.is_control()) continue;
    if (gradient_[at(s.node)] || (s.port == 1 && is_cross_entropy(graph_.op(s.node)))) return true;
    product = product || (backward_[at(s.node)] && late_[at(s.node)] && is_bilinear(op));
  }
  return product;
}

// A late node that no gradient comes into: it waits for one by control edges, or is computed from such nodes.
bool need_propagation::is_late_derivative(int node) const {
  bool waits = false;
  for (const source& s : graph_.inputs(node)) {
    if (!late_[at(s.node)]) continue;
    if (!s.is_control() && !late_derivative_[at(s.node)]) return false;
    waits = true;
  }
  return waits;
}

// The same in every step, as the filters of a loss that looks at images are; weights are not.
bool need_propagation::is_constant(int node) const {
  const std::string& op = graph_.op(node);
  if (op == "Const" || !looks_at_values(op)) return true;
  const std::vector<source>& inputs = graph_.inputs(node);
  return !inputs.empty() && !is_held_elsewhere(op) &&
         std::all_of(inputs.begin(), inputs.end(),
                     [&](const source& s) { return s.is_control() || constant_[at(s.node)]; });
}

// Until a gradient has come to the weights of the last layer: to those of a gradient for weights, or to a
// product with weights, or with what was multiplied with them. All before that may be as small as the
// differences that it begins with.
bool need_propagation::is_of_loss(int node) const {
  const std::string& op = graph_.op(node);
  if (late_derivative_[at(node)] || is_for_weights(op)) return false;
  const std::vector<source>& inputs = graph_.inputs(node);
  return std::all_of(inputs.begin(), inputs.end(), [&](const source& s) {
    if (s.is_control()) return true;
    if (!late_[at(s.node)]) return !is_bilinear(op) || constant_[at(s.node)];
    return late_derivative_[at(s.node)] || of_loss_[at(s.node)];
  });
}

// An op of backward passes whose gradient comes out of something that was taken for the forward pass.
bool need_propagation::is_unknown_gradient(int node, int input) const {
  if (input != gradient_input(graph_.op(node))) return false;
  const std::vector<source>& inputs = graph_.inputs(node);
  return std::none_of(inputs.begin(), inputs.end(),
                      [&](const source& s) { return !s.is_control() && late_[at(s.node)]; });
}

// What the optimizer's copies read keeps 16 bits: a norm that runs again takes the mean off, and a rounding
// error that was small compared with the mean may be large compared with what is left.
std::vector<std::string> need_propagation::needs(int node, int input) const {
  if (is_computed_again(node)) return {"exact_value"};
  const std::vector<std::string> own = needs_of_input(graph_, node, input);
  // Gradients, and what is added to one is one whatever it was taken for, may be too small for narrow
  // formats.
  const bool summand = gradient_[at(node)] && is_sum(graph_.op(node));
  if (has(own, "value") && (of_loss_[at(node)] || summand || is_unknown_gradient(node, input)))
    return {"exact_value"};
  if (gradient_[at(node)] || !has(own, "value")) return own;
  const demand d = of_input(node, input, false);
  if (d.exact) return {"exact_value"};
  std::vector<std::string> all = {d.fine || is_marked(graph_, node) ? "fine_value" : "value"};
  if (d.sign) all.emplace_back("sign");
  return all;
}

// `may_be_gradient`: what is read may be one. Then only those mind that it is rounded to whom small
// differences are large ones.
need_propagation::demand need_propagation::of_input(int node, int input, bool may_be_gradient) const {
  const std::string& op = graph_.op(node);
  if (!looks_at_values(op)) return {};
  if (!backward_[at(node)] || is_computed_again(node)) return {true, false};
  const std::vector<std::string> own = needs_of_input(graph_, node, input);
  const bool sign = has(own, "sign"), value = has(own, "value");
  if (!value && (!may_be_gradient || sign || magnifies(graph_, node, input))) return {!sign, sign};
  if (of_loss_[at(node)]) return {true, sign};
  const bool fine = needs_fine_values(graph_, graph_.inputs(node)[at(input)].node, node, input);
  if (gradient_[at(node)]) return {is_sum(op), sign, fine};
  const demand& result = of_result_[at(node)];
  // Arithmetic hands on values, but not their signs.
  const bool view = is_view(op) && input == 0;
  return {result.exact || (result.sign && !view), sign || result.sign, fine || result.fine};
}

// A view that nothing else reads.
bool need_propagation::is_for_sigmoids(int node) const {
  bool any = false;
  for (const reader& r : graph_.readers(node)) {
    if (r.port < 0) continue;
    if (graph_.op(r.node) != "Sigmoid") return false;
    any = true;
  }
  return any && is_alias(graph_.op(node));
}

// Layers that the backward pass runs again (recompute_grad) decide signs and maxima, so they need exact
// inputs. They follow a gradient by control edges only: themselves, or the views through which they
// read. So does the sigmoid in the gradient of x * sigmoid(x), which decides nothing: there it is what its
// readers need, also through a view. What the optimizer has copied is followed to its readers, too.
bool need_propagation::is_computed_again(int node) const {
  if (graph_.op(node) == "Sigmoid" || is_marked(graph_, node) || is_for_sigmoids(node)) return false;
  if (!is_layer(graph_.op(node)) && !is_alias(graph_.op(node))) return false;
  bool waits = false;
  for (const source& s : graph_.inputs(node)) {
    if (!s.is_control() && backward_[at(s.node)]) return false;
    waits = waits || (s.is_control() && backward_[at(s.node)]);
  }
  return waits || is_layer(graph_.op(node));
}

}  // namespace stash_tf
