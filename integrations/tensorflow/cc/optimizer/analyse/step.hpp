// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A training step as the planner sees it: memory blocks that the forward pass writes and the backward pass
/// reads, who reads them and what of them is needed.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "optimizer/driver/log.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/carried_lists.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// A backward op that reads a tensor of the forward pass.
struct stash_reader {
  int node = -1;
  int input = 0;
  source tensor;  ///< the block under the name by which it is read
  std::vector<std::string> needs;
  int gate = -1;  ///< the node whose end says that the reader's turn has come; -1: its other inputs are
                  ///< encoded or dead
};

/// A tensor of the forward pass that the backward pass reads.
struct stashed_block {
  source tensor;  ///< what encoders read: the tensor that was computed, or the view of it that a reader takes
  source root;    ///< the tensor that was computed
  tensor_size size;
  double density = 1;
  /// A cast of a narrower tensor (batch norm in mixed precision): storing it in that format loses nothing.
  std::string exact_cast;
  std::vector<stash_reader> readers;
  std::string raw_because;  ///< not empty: it must stay as it is, and why
  /// "sign_mask" or "range_mask" if some readers need no more than these bits while others need more: the
  /// bits may be kept in addition to the values; else empty.
  std::string bits;
  /// Values that serve the others could not serve these readers, too: the planner weighs both.
  bool plan_bits = false;
  bool movable = false;  ///< to the host: it lives in another memory, and nothing keeps it there
};

/// What a loop of the forward pass keeps of each iteration for a loop of the backward pass.
struct listed_block {
  carried_list list;
  stashed_block element;    ///< of one iteration; its readers read what comes out of the list
  std::int64_t trips = -1;  ///< iterations of the loop; -1: not known
  /// Of what is computed again from it.
  std::vector<std::string> also_needs = {};
};

/// Whether an op asks for shapes alone: as a reader of a list it needs nothing.
bool reads_shape(const graph_view& graph, int node);

/// Whether a reader of the list asks for its shape.
bool is_asked_for_shape(const graph_view& graph, const listed_block& b);

/// What all readers of a list need of its elements, each need once.
std::vector<std::string> all_needs(const listed_block& b);

/// A max-pooling and its gradient, which argmax can serve instead of the maps.
struct pooling {
  int forward = -1;
  int backward = -1;
  int relu_backward = -1;  ///< the ReLU's gradient that follows, if both can be one; else -1
};

struct step {
  std::vector<int> order;      ///< topological
  std::vector<bool> backward;  ///< by node
  std::vector<stashed_block> blocks;
  std::map<source, int> block_of;  ///< by root
  std::vector<listed_block> lists;
  std::vector<pooling> poolings;
  std::vector<left_node> left;
  /// Reads by the backward pass, outside of loops, of tensors whose size is not known, and calls of
  /// functions that XLA compiles; and one of these.
  int unknown_sizes = 0;
  std::string unknown_size;
  /// A node whose device stands for the step's: of the first block, or, without blocks, of the backward pass,
  /// in a loop or, with a budget, anywhere; -1: there is nothing to do.
  int device_node = -1;
  bool on_device = false;    ///< its tensors live in another memory than the host's
  std::vector<bool> folded;  ///< by node: folded_nodes()
  int threads = 1;           ///< that share the work of one kernel on the CPU
};

/// "sign_mask" or "range_mask" if these bits are all that the reader needs and there is an op that reads
/// them; else empty.
std::string bits_for(const graph_view& graph, const stash_reader& r);

/// Whether the bits of `b` would serve this reader.
bool reads_bits(const graph_view& graph, const stashed_block& b, const stash_reader& r);

/// Reads the step out of a graph. No blocks: nothing that the backward pass reads is large enough.
step analyse(const graph_view& graph, const tensor_sizes& sizes, const settings& request,
             const std::set<std::string>& preserved);

}  // namespace stash_tf
