// SPDX-License-Identifier: Apache-2.0
#include "optimizer/choice_log.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "optimizer/analyse/layer_names.hpp"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

namespace {

// What the step's sizes are divided by.
std::int64_t logged_batch(const tensor_sizes& sizes) {
  return sizes.batch_known() ? 1 : sizes.batch();
}

void say_where(const outcome& result, logged_tensor* t) {
  if (result.graph.moved.count(t->tensor) == 0) return;
  t->host_bytes = t->stored_bytes;
  t->choice = t->choice == "raw" ? "swap" : t->choice + "+swap";
}

logged_tensor logged_block(const step_context& context, const stashed_block& b, const block_choice& c) {
  const graph_view& graph = context.graph;
  const std::int64_t growth = b.size.growth(logged_batch(context.sizes));
  logged_tensor t;
  t.tensor = graph.tensor_name(b.tensor);
  t.layer = layer_of(graph.name(b.root.node));
  t.op = graph.op(b.root.node);
  t.type = tensorflow::DataType_Name(b.size.type);
  t.elements = b.size.elements / growth;
  t.elements_per_sample = b.size.sample_elements(context.sizes.batch());
  t.dense_bytes = b.size.bytes() / growth;
  t.stored_bytes = c.stored_bytes / growth;
  std::set<std::string> needs;
  for (const stash_reader& r : b.readers) {
    t.readers.push_back(graph.name(r.node));
    needs.insert(r.needs.begin(), r.needs.end());
  }
  t.needs.assign(needs.begin(), needs.end());
  t.choice = c.encoding.empty() ? (c.stored_bytes == 0 ? "not needed" : "raw") : c.encoding;
  t.reason = c.reason;
  return t;
}

// The bits that are kept in addition to the tensor of this record.
logged_tensor logged_bits(const step_context& context, const stashed_block& b, const block_choice& c,
                          logged_tensor t) {
  t.tensor += bits_suffix;
  t.dense_bytes = 0;
  t.stored_bytes = c.bits_bytes / b.size.growth(logged_batch(context.sizes));
  t.needs = {b.bits == "range_mask" ? "range" : "sign"};
  t.choice = b.bits;
  t.reason =
      "one bit for each value is enough for some readers, and the others need no exact values or are done "
      "earlier";
  t.readers.clear();
  for (const int reader : c.bit_readers)
    t.readers.push_back(context.graph.name(reader));
  return t;
}

logged_tensor logged_pooling(const step_context& context, const pooling& p, pooling_choice choice,
                             std::int64_t bytes) {
  const graph_view& graph = context.graph;
  const std::int64_t batch = logged_batch(context.sizes);
  const tensor_size* y = context.sizes.find({p.forward, 0});
  logged_tensor t;
  t.tensor = graph.name(p.forward) + ":taps";
  t.layer = layer_of(graph.name(p.forward));
  t.op = graph.op(p.forward);
  t.type = "taps";
  if (y != nullptr) {
    t.elements = y->elements / y->growth(batch);
    t.elements_per_sample = y->sample_elements(context.sizes.batch());
  }
  t.stored_bytes = bytes / batch;
  const bool joint = choice == pooling_choice::joint;
  t.needs = {joint ? "sign_window" : "window"};
  t.choice = joint ? "relu_pool" : "window_index";
  t.reason = joint ? "the argmax and the sign serve the pooling and the ReLU" : "the argmax is enough";
  t.readers = {graph.name(p.backward)};
  return t;
}

}  // namespace

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

std::vector<logged_tensor> logged_choices(const step_context& context, const outcome& result) {
  const step& analysis = context.analysis;
  const choices& chosen = result.chosen;
  std::vector<logged_tensor> tensors;
  const auto add = [&](logged_tensor t) {
    say_where(result, &t);
    tensors.push_back(std::move(t));
  };
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k) {
    const stashed_block& b = analysis.blocks[k];
    const block_choice& c = chosen.blocks[k];
    const logged_tensor values = logged_block(context, b, c);
    add(values);
    if (!c.bit_readers.empty()) add(logged_bits(context, b, c, values));
  }
  for (std::size_t k = 0; k < analysis.poolings.size(); ++k)
    if (chosen.poolings[k] != pooling_choice::from_maps)
      add(logged_pooling(context, analysis.poolings[k], chosen.poolings[k], chosen.pooling_bytes[k]));
  return tensors;
}

}  // namespace stash_tf
