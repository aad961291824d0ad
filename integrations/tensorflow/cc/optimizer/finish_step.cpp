// SPDX-License-Identifier: Apache-2.0
#include "optimizer/finish_step.hpp"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "optimizer/lists/unused_loop_variables.hpp"
#include "optimizer/read_step.hpp"
#include "optimizer/rewrite/check.hpp"
#include "optimizer/rewrite/count_samples.hpp"
#include "optimizer/rewrite/refuse.hpp"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;

std::string told(const std::string& why) {
  return absl::StrCat("Stash: ", why);
}

// Whether a counter of an encoder shows how many samples a step has.
bool encoders_tell_samples(const candidate& best) {
  const step& analysis = best.analysis;
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k)
    if (analysis.blocks[k].size.sample_elements(best.sizes.batch()) > 0 &&
        !best.result.chosen.blocks[k].encoding.empty())
      return true;
  return false;
}

// Later batches may be larger than the one that the plan is for. What loops hold is no multiple of what one
// sample takes.
bool is_about_batches(const candidate& best, const settings& request) {
  const bool matters = request.budget_bytes > 0 || request.swap || best.ordered.loops_held_back > 0;
  return best.sizes.batch_open() && matters;
}

}  // namespace

finished_step finish(const GraphDef& input, GraphDef planned, const candidate& best, const verdict& decided,
                     const settings& request) {
  const bool refused = decided.becomes == fate::refused;
  const bool watched = decided.becomes == fate::watched;
  finished_step result;
  if (refused) {
    result.graph = refuse(best.original(), best.graph(), best.analysis, *best.flow, told(decided.reason));
  } else {
    result.graph = watched ? best.original() : std::move(planned);
  }
  result.counts_samples = !watched && encoders_tell_samples(best);
  if (!result.counts_samples && !refused && is_about_batches(best, request))
    result.counts_samples = count_samples(best.graph(), best.analysis, best.sizes, *best.flow, &result.graph);
  if (const std::string fault = check_output(input, result.graph); !fault.empty())
    result.fault = "what it made would be malformed: " + fault;
  if (refused || watched || !result.fault.empty() || remove_unused_loop_variables(&result.graph) == 0)
    return result;
  if (const std::string fault = check_output(result.graph, result.graph); !fault.empty())
    result.fault = "without variables that loops do not need it would be malformed: " + fault;
  return result;
}

absl::StatusOr<GraphDef> refused_unplanned(const GraphDef& input, const std::string& why) {
  try {
    const graph_view graph(input);
    step analysis;
    analysis.order = graph.topological_order();
    for (int i = 0; i < graph.size() && analysis.device_node < 0; ++i)
      if (!is_outside(graph.op(i)) && !is_control_flow(graph.op(i))) analysis.device_node = i;
    if (!has_backward_pass(graph) || analysis.device_node < 0 || analysis.order.size() != at(graph.size()))
      return nothing_to_do(why);
    const control_flow flow(graph, analysis.order);
    return refuse(input, graph, analysis, flow, told(why));
  } catch (const std::exception&) {
    return nothing_to_do(why);
  }
}

}  // namespace stash_tf
