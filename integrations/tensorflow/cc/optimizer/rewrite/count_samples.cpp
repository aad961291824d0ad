// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/count_samples.hpp"

#include <string>
#include <utility>

#include "optimizer/analyse/forward_readers.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/edited_graph.hpp"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

namespace {

class sample_counter {
 public:
  sample_counter(const graph_view& graph, const control_flow& flow, std::int64_t batch, edited_graph* edited)
      : graph_(graph), flow_(flow), batch_(batch), edited_(edited) {}

  // Blocks first; inputs of the step where each block has the batch twice or not at all.
  bool run(const step& analysis, const tensor_sizes& sizes) {
    for (const stashed_block& b : analysis.blocks)
      if (!b.readers.empty() && flow_.may_wait(b.readers.front().node, b.tensor.node) &&
          count(b.tensor, b.size, b.readers.front().node))
        return true;
    for (const int i : analysis.order) {
      if (!is_held_elsewhere(graph_.op(i)) || flow_.frame(i) != 0) continue;
      for (const reader& r : graph_.readers(i)) {
        const tensor_size* size = r.port < 0 ? nullptr : sizes.find({i, r.port});
        if (size != nullptr && may_wait_for_input(r.node, i) && count({i, r.port}, *size, r.node))
          return true;
      }
    }
    return false;
  }

 private:
  // Nobody reads the op's output: it runs because a reader of its tensor waits for it.
  bool count(const source& counted, const tensor_size& size, int reader) {
    const std::int64_t per_sample = size.sample_elements(batch_);
    if (per_sample < 1 || !(tensorflow::DataTypeIsFloating(size.type) || size.type == tensorflow::DT_BOOL))
      return false;
    const std::string tensor = graph_.tensor_name(counted);
    tensorflow::NodeDef* n =
        edited_->add_node(graph_.name(counted.node) + "/stash_batch", "StashBatch", reader);
    n->add_input(tensor);
    (*n->mutable_attr())["T"].set_type(size.type);
    (*n->mutable_attr())["per_sample"].set_i(per_sample);
    (*n->mutable_attr())["tensor"].set_s(tensor);
    edited_->wait_for(reader, n->name());
    return true;
  }

  // Whether this reader of an input of the step, which runs always, may wait for another reader. What only
  // asks for a shape may be gone before the step runs.
  bool may_wait_for_input(int reader, int input) const {
    const std::string& op = graph_.op(reader);
    return graph_.node(reader).device() == graph_.node(input).device() && op != "Shape" && op != "ShapeN" &&
           op != "Size" && !is_alias(op) && !is_fused_later(graph_, reader) && flow_.may_wait(reader, reader);
  }

  const graph_view& graph_;
  const control_flow& flow_;
  const std::int64_t batch_;
  edited_graph* edited_;
};

}  // namespace

bool count_samples(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                   const control_flow& flow, tensorflow::GraphDef* result) {
  edited_graph edited(std::move(*result), graph);
  const bool found = sample_counter(graph, flow, sizes.batch(), &edited).run(analysis, sizes);
  *result = edited.take();
  return found;
}

}  // namespace stash_tf
