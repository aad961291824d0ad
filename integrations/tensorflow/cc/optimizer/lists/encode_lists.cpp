// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lists/encode_lists.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "optimizer/analyse/layer_names.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/lists/list_recipes.hpp"
#include "optimizer/lists/list_rewriter.hpp"
#include "optimizer/lists/loop_invariants.hpp"
#include "optimizer/plan/choices.hpp"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;

// The least number of elements that the bytes of a form tell: masks grow in steps of 128 bits, values in
// blocks of up to 32.
constexpr std::int64_t fewest_in_masks = 128;
constexpr std::int64_t fewest_values = 32;

// Why nobody could tell the shape of an element from its bytes in some form; empty: that is possible.
std::string why_untold(const tensor_size& size, std::int64_t fewest) {
  if (size.is_odd || size.batch_dims > 1 || (size.batch_dims == 1 && size.batch_dim < 0))
    return "its shape does not follow from the batch alone";
  if (size.batch_dims == 0) return "";
  std::int64_t others = 1;
  for (std::size_t axis = 0; axis < size.dims.size(); ++axis)
    if (static_cast<int>(axis) != size.batch_dim) others *= size.dims[axis];
  return others < fewest ? "its bytes would not tell the batch" : "";
}

// Why a list cannot be made one of bytes; empty: it can.
std::string why_raw(const graph_view& graph, const control_flow& flow, const listed_block& b) {
  if (!b.element.raw_because.empty()) return b.element.raw_because;
  for (const auto& [list_op, input] : {std::pair(b.list.begin, 0), {b.list.pop, 1}})
    if (flow.frame(list_op) != 0 && is_switch(graph.op(graph.inputs(list_op)[at(input)].node)))
      return "the shape of its elements comes out of control flow";
  return why_untold(b.element.size, fewest_values);
}

// "model/lstm_1/while/body/_1/.../TensorListPushBack" -> "lstm_1".
std::string layer_of_loop(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  for (std::size_t k = parts.size(); k-- > 1;)
    if (absl::StartsWith(parts[k], "while")) return parts[k - 1];
  return layer_of(name);
}

logged_tensor logged(const graph_view& graph, const listed_block& b, const block_choice& choice,
                     const tensor_sizes& sizes) {
  const tensor_size& size = b.element.size;
  const std::int64_t growth = size.growth(sizes.batch_known() ? 1 : sizes.batch());
  logged_tensor t;
  t.tensor = graph.tensor_name(b.list.element);
  t.layer = layer_of_loop(graph.name(b.list.push));
  t.op = graph.op(b.element.root.node);
  t.type = tensorflow::DataType_Name(size.type);
  t.elements = size.elements / growth;
  t.elements_per_sample = size.sample_elements(sizes.batch());
  t.dense_bytes = size.bytes() / growth;
  t.stored_bytes = choice.stored_bytes / growth;
  t.iterations = b.trips;
  t.needs = all_needs(b);
  t.choice = choice.encoding.empty() ? "raw" : choice.encoding;
  t.reason = choice.reason;
  for (const stash_reader& r : b.element.readers)
    t.readers.push_back(graph.name(r.node));
  return t;
}

// The form of each list. A mask needs more elements than values to tell the batch.
std::vector<block_choice> forms_of(const step& analysis, const settings& request) {
  std::vector<block_choice> chosen = plan_lists(analysis, request);
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const tensor_size& size = analysis.lists[k].element.size;
    const std::string why = is_mask(chosen[k].encoding) ? why_untold(size, fewest_in_masks) : "";
    if (why.empty()) continue;
    chosen[k] = {};
    chosen[k].stored_bytes = size.bytes();
    chosen[k].reason = why;
  }
  return chosen;
}

enum class list_fate { kept, encoded, computed_again, dropped, once };

// What becomes of each list.
std::vector<list_fate> fates_of(const step& analysis, const std::vector<block_choice>& chosen,
                                const std::vector<loop_invariant>& invariants,
                                const std::vector<list_recipe>& again) {
  std::vector<list_fate> fates;
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const listed_block& b = analysis.lists[k];
    const bool has_shape = b.element.size.batch_dims == 0 && b.element.raw_because.empty();
    fates.push_back(all_needs(b).empty() && has_shape ? list_fate::dropped
                    : chosen[k].encoding.empty()      ? list_fate::kept
                                                      : list_fate::encoded);
  }
  for (const loop_invariant& v : invariants)
    fates[at(v.list)] = list_fate::once;
  for (const list_recipe& r : again)
    fates[at(r.list)] = list_fate::computed_again;
  return fates;
}

// A list in the report.
logged_tensor reported(logged_tensor t, list_fate fate) {
  switch (fate) {
    case list_fate::computed_again:
      t.choice = "recompute";
      t.stored_bytes = 0;
      t.reason = "cheap ops make it of what other lists of the loop keep";
      break;
    case list_fate::dropped:
      t.choice = "not needed";
      t.stored_bytes = 0;
      t.reason = "only its shape is needed, which is known";
      break;
    case list_fate::once:
      t.iterations = 1;
      break;
    default:
      break;
  }
  return t;
}

}  // namespace

encoded_lists encode_lists(const GraphDef& original, const graph_view& graph, step analysis,
                           const control_flow& flow, const settings& request, tensor_sizes* sizes,
                           GraphDef* result) {
  encoded_lists done;
  if (analysis.lists.empty()) return done;
  for (listed_block& b : analysis.lists)
    b.element.raw_because = why_raw(graph, flow, b);
  const loops all(graph, analysis.order);
  const std::vector<loop_invariant> invariants = loop_invariants(graph, all, analysis);
  for (const loop_invariant& v : invariants)
    analysis.lists[at(v.list)].element.raw_because = "the same in every iteration: it is kept once";
  std::vector<list_recipe> again;
  if (request.recompute != "none") again = list_recipes(graph, flow, is_lossy(request), &analysis);
  const std::vector<block_choice> chosen = forms_of(analysis, request);
  const std::vector<list_fate> fates = fates_of(analysis, chosen, invariants, again);
  const auto count = [&](list_fate fate) {
    return static_cast<int>(std::count(fates.begin(), fates.end(), fate));
  };
  done.encoded = count(list_fate::encoded);
  done.dropped = count(list_fate::dropped);
  done.once = count(list_fate::once);
  done.recomputed = count(list_fate::computed_again);
  if (done.changed() == 0) return done;
  *result = original;
  list_rewriter rewrite(graph, analysis, flow, all, again, chosen, sizes, result);
  for (std::size_t k = 0; k < fates.size(); ++k) {
    const listed_block& b = analysis.lists[k];
    if (fates[k] == list_fate::encoded) rewrite.encode(static_cast<int>(k));
    if (fates[k] == list_fate::dropped) rewrite.drop(static_cast<int>(k));
    if (fates[k] == list_fate::computed_again)
      done.recomputed_bytes += b.element.size.bytes() * std::max<std::int64_t>(b.trips, 1);
    done.tensors.push_back(reported(logged(graph, b, chosen[k], *sizes), fates[k]));
  }
  for (const loop_invariant& v : invariants)
    rewrite.keep_once(v);
  for (const list_recipe& r : again) {
    rewrite.compute_again(r);
    done.ops += static_cast<int>(r.again.size());
  }
  return done;
}

}  // namespace stash_tf
