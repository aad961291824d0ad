// SPDX-License-Identifier: Apache-2.0
// The reader of execution traces: what it accepts becomes a graph that passes all checks and can be written
// and read again, or a reason why it does not.

#include "fuzz/json_edits.hpp"
#include "planner/json/json.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_text.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

/// A dense layer with ReLU, forward and backward: a tenth of a small network's trace.
std::string tiny_trace() {
  const planner::tensor_text x{10, {64, 32}}, weight{20, {32, 64}}, bias{21, {64}}, y{30, {64, 64}},
      dy{50, {64, 64}}, dlinear{51, {64, 64}}, dweight{52, {32, 64}};
  planner::trace_text t(planner::trace_style::flat, "1.0.1");
  const std::int64_t step = t.label("ProfilerStep#5", t.main_thread());
  t.call("aten::addmm", "Tensor self, Tensor mat1, Tensor mat2", {bias, x, weight}, {y}, step, 1);
  t.call("aten::relu_", "Tensor(a!) self", {y}, {y}, step, 2);
  t.call("aten::ones_like", "Tensor self", {y}, {dy}, step);
  const std::int64_t backward = t.thread();
  t.call("aten::threshold_backward", "Tensor grad_output, Tensor self, Scalar threshold", {dy, y, "0"},
         {dlinear}, t.label("ReluBackward0", backward, 2));
  t.call("aten::mm", "Tensor self, Tensor mat2", {x, dlinear}, {dweight},
         t.label("AddmmBackward0", backward, 1));
  return t.text();
}

const std::vector<std::string>& documents() {
  static const std::vector<std::string> texts{
      tiny_trace(), planner::small_trace(planner::trace_style::flat, "1.0.1"), planner::small_trace(),
      planner::small_trace(planner::trace_style::strides, "1.1.1-chakra.0.0.4")};
  return texts;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string text = edited_text(input, documents());
  planner::graph g;
  try {
    const planner::trace t = planner::read_trace(text);
    g = planner::graph_of(t);
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return;
  }
  if (!is_examined(input, 8)) return;
  const std::string written = to_json(g);
  require(to_json(planner::graph_from_json(written)) == written, "written and read again");
}

std::vector<bytes> seeds() {
  return document_seeds(documents());
}

}  // namespace stash::fuzz
