// SPDX-License-Identifier: Apache-2.0
#include "optimizer/choice_log.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

std::string word_on_swapping(const step_context& c, const outcome& o) {
  if (!c.sizes.batch_known()) return "nothing moves to the host before the batch is known";
  if (!o.graph.moved.empty())
    return absl::StrCat(o.graph.moved.size(), " tensors go to the host and come back");
  const bool asked = c.request.budget_bytes > 0 || o.simulated.peak_bytes > c.device_bytes;
  if (!asked) return "nothing moves to the host: no budget asks for it, and the device has enough memory";
  if (c.request.budget_bytes >= o.simulated.peak_bytes)
    return "nothing moves to the host: the budget is kept without";
  return "nothing moves to the host: it would not make the peak lower";
}

void log_choices(const step_context& context, const outcome& result, logged_graph* log) {
  const graph_view& graph = context.graph;
  const tensor_sizes& sizes = context.sizes;
  const step& analysis = context.analysis;
  const choices& chosen = result.chosen;
  const std::int64_t batch = sizes.batch_known() ? 1 : sizes.batch();
  const auto move = [&](logged_tensor* t) {
    if (result.graph.moved.count(t->tensor) == 0) return;
    t->host_bytes = t->stored_bytes;
    t->choice = t->choice == "raw" ? "swap" : t->choice + "+swap";
  };
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k) {
    const stashed_block& b = analysis.blocks[k];
    const block_choice& c = chosen.blocks[k];
    logged_tensor t;
    t.tensor = graph.tensor_name(b.tensor);
    t.layer = layer_of(graph.name(b.root.node));
    t.op = graph.op(b.root.node);
    t.type = tensorflow::DataType_Name(b.size.type);
    t.elements = b.size.elements / b.size.growth(batch);
    t.elements_per_sample = b.size.sample_elements(sizes.batch());
    t.dense_bytes = b.size.bytes() / b.size.growth(batch);
    t.stored_bytes = c.stored_bytes / b.size.growth(batch);
    std::set<std::string> needs;
    for (const stash_reader& r : b.readers) {
      t.readers.push_back(graph.name(r.node));
      needs.insert(r.needs.begin(), r.needs.end());
    }
    t.needs.assign(needs.begin(), needs.end());
    t.choice = c.encoding.empty() ? (c.stored_bytes == 0 ? "not needed" : "raw") : c.encoding;
    t.reason = c.reason;
    logged_tensor bits = t;
    move(&t);
    log->tensors.push_back(std::move(t));
    if (c.bit_readers.empty()) continue;
    bits.tensor += bits_suffix;
    bits.dense_bytes = 0;
    bits.stored_bytes = c.bits_bytes / b.size.growth(batch);
    bits.needs = {b.bits == "range_mask" ? "range" : "sign"};
    bits.choice = b.bits;
    bits.reason =
        "one bit for each value is enough for some readers, and the others need no exact values or are done "
        "earlier";
    bits.readers.clear();
    for (const int reader : c.bit_readers)
      bits.readers.push_back(graph.name(reader));
    move(&bits);
    log->tensors.push_back(std::move(bits));
  }
  for (std::size_t k = 0; k < analysis.poolings.size(); ++k) {
    if (chosen.poolings[k] == pooling_choice::from_maps) continue;
    const pooling& p = analysis.poolings[k];
    const tensor_size* y = sizes.find({p.forward, 0});
    logged_tensor t;
    t.tensor = graph.name(p.forward) + ":taps";
    t.layer = layer_of(graph.name(p.forward));
    t.op = graph.op(p.forward);
    t.type = "taps";
    if (y != nullptr) {
      t.elements = y->elements / y->growth(batch);
      t.elements_per_sample = y->sample_elements(sizes.batch());
    }
    t.stored_bytes = chosen.pooling_bytes[k] / batch;
    const bool joint = chosen.poolings[k] == pooling_choice::joint;
    t.needs = {joint ? "sign_window" : "window"};
    t.choice = joint ? "relu_pool" : "window_index";
    t.reason = joint ? "the argmax and the sign serve the pooling and the ReLU" : "the argmax is enough";
    t.readers = {graph.name(p.backward)};
    move(&t);
    log->tensors.push_back(std::move(t));
  }
}

}  // namespace stash_tf
