// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/output_sizes.hpp"

#include "absl/strings/match.h"
#include "optimizer/rewrite/rewrite.hpp"

namespace stash_tf {

namespace {

// Encoders on CPUs guess how many bytes a sparse form takes, and a little more.
std::int64_t guessed_in_vain(const block_choice& c) {
  const bool sparse = absl::StartsWith(c.encoding, "bitmap") || absl::StartsWith(c.encoding, "csr");
  return sparse ? c.stored_bytes / 32 : 0;
}

}  // namespace

bool is_move(const std::string& op) {
  return op == "StashSwapOut" || op == "StashSwapIn";
}

output_sizes::output_sizes(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                           const step& analysis, const choices& chosen)
    : graph_(graph), original_(original), sizes_(sizes) {
  for (std::size_t k = 0; k < analysis.blocks.size() && k < chosen.blocks.size(); ++k) {
    const std::string name = original.tensor_name(analysis.blocks[k].tensor);
    dense_[name] = analysis.blocks[k].size.bytes();
    stored_[name] = chosen.blocks[k].stored_bytes;
    if (!analysis.on_device) stored_[name] += guessed_in_vain(chosen.blocks[k]);
    stored_[name + bits_suffix] = chosen.blocks[k].bits_bytes;
  }
  for (std::size_t k = 0; k < analysis.poolings.size() && k < chosen.pooling_bytes.size(); ++k)
    stored_[original.name(analysis.poolings[k].forward) + ":taps"] = chosen.pooling_bytes[k];
}

std::int64_t output_sizes::bytes(const source& tensor) const {
  const tensorflow::NodeDef& n = graph_.node(tensor.node);
  if (is_move(n.op())) return bytes(graph_.inputs(tensor.node)[0]);
  const auto named = n.attr().find("tensor");
  if (named != n.attr().end()) {
    const std::string& name = named->second.s();
    const bool stored =
        (n.op() == "StashEncode" && tensor.port == 0) || (n.op() == "StashMaxPool" && tensor.port == 1);
    const auto& table = n.op() == "StashDecode" ? dense_ : stored_;
    if (stored || n.op() == "StashDecode") {
      // Elements of lists are encoded before the step is planned: their sizes are those of the graph.
      if (const auto it = table.find(name); it != table.end()) return it->second;
    }
  }
  if (tensor.node >= original_.size()) return 0;
  const tensor_size* size = sizes_.find(tensor);
  return size == nullptr ? 0 : size->bytes();
}

}  // namespace stash_tf
