// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/recompute.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "optimizer/rewrite/unused_names.hpp"

namespace stash_tf {

namespace {

using tensorflow::NodeDef;

constexpr int most_ops = 8;  // for one map

// A tensor so much smaller than the map is kept for it: factors and offsets of channels.
constexpr std::int64_t small_part = 16;

// One pass over the elements each, which it computes or moves, one output, the same bits whenever they run.
bool is_cheap(const std::string& op) {
  static const std::set<std::string> ops = {
      // of one value
      "Abs", "Cast", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Inv", "LeakyRelu", "Log", "Log1p",
      "LogicalNot", "Neg", "Reciprocal", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid", "Sign", "Softplus",
      "Softsign", "Sqrt", "Square", "Tanh", "_UnaryOpsComposition",
      // of two and more
      "Add", "AddN", "AddV2", "BiasAdd", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual",
      "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan", "NotEqual", "RealDiv", "Select",
      "SelectV2", "SquaredDifference", "Sub",
      // that move elements
      "ConcatV2", "MirrorPad", "Pad", "PadV2", "Transpose"};
  return ops.count(op) != 0;
}

class chooser {
 public:
  chooser(const graph_view& graph, const step& analysis, const control_flow& flow, std::int64_t min_bytes,
          const tensor_sizes& sizes)
      : graph_(graph),
        step_(analysis),
        flow_(flow),
        min_bytes_(min_bytes),
        sizes_(sizes),
        rank_(graph.positions(analysis.order)) {
    for (const pooling& p : analysis.poolings)
      by_index_.insert({p.backward, p.relu_backward});
  }

  /// Blocks to compute again: each from blocks that are kept, which come before it in the step.
  std::vector<int> choose() {
    std::vector<int> blocks;
    for (std::size_t k = 0; k < step_.blocks.size(); ++k)
      blocks.push_back(static_cast<int>(k));
    std::sort(blocks.begin(), blocks.end(), [&](int a, int b) { return position(a) < position(b); });
    std::vector<int> chosen;
    for (const int k : blocks) {
      const stashed_block& b = step_.blocks[at(k)];
      if (may_go(b)) {
        chosen.push_back(k);
      } else if (has_values(b)) {
        kept_.insert(b.root);
      }
    }
    return chosen;
  }

  /// Nobody has to copy what makes this tensor: it stays for the backward pass.
  bool stays(const source& s, std::int64_t map_bytes) const {
    const source root = root_of(graph_, s);
    if (kept_.count(root) != 0 || graph_.op(root.node) == "Const") return true;
    const tensor_size* size = sizes_.find(s);
    return size != nullptr && (size->bytes() < min_bytes_ || size->bytes() * small_part <= map_bytes);
  }

  /// The reader whose turn comes first.
  const stash_reader& first_reader(const stashed_block& b) const {
    return *std::min_element(
        b.readers.begin(), b.readers.end(),
        [&](const stash_reader& x, const stash_reader& y) { return rank_[at(x.node)] < rank_[at(y.node)]; });
  }

 private:
  int position(int block) const { return rank_[at(step_.blocks[at(block)].root.node)]; }

  // Whether somebody reads its values, so that keeping them is no more than what happens anyway.
  bool has_values(const stashed_block& b) const {
    return std::any_of(b.readers.begin(), b.readers.end(), [&](const stash_reader& r) {
      return bits_for(graph_, r).empty() && by_index_.count(r.node) == 0;
    });
  }

  bool may_go(const stashed_block& b) const {
    if (!b.raw_because.empty() || b.size.type == tensorflow::DT_BOOL || !has_values(b) ||
        flow_.frame(b.root.node) != 0)
      return false;
    for (const stash_reader& r : b.readers)
      if (by_index_.count(r.node) != 0 || flow_.frame(r.node) != 0 || !flow_.may_wait(r.node, b.root.node))
        return false;
    const stash_reader& first = first_reader(b);
    if (first.gate < 0 || rank_[at(first.gate)] >= rank_[at(first.node)]) return false;
    int ops = 0;
    return can_copy(b.root, b.size.bytes(), first.gate, &ops);
  }

  bool can_copy(const source& s, std::int64_t map_bytes, int gate, int* ops) const {
    if (s.is_control() || s.port != 0) return false;
    const std::string& op = graph_.op(s.node);
    const bool view = is_alias(op);
    if ((!view && (!is_cheap(op) || ++*ops > most_ops)) || is_held_elsewhere(op) ||
        step_.backward[at(s.node)] || flow_.frame(s.node) != 0 || !flow_.may_wait(s.node, gate) ||
        sizes_.find(s) == nullptr)
      return false;
    const std::vector<source>& inputs = graph_.inputs(s.node);
    return std::all_of(inputs.begin(), inputs.end(), [&](const source& in) {
      return in.is_control() || stays(in, map_bytes) || can_copy(in, map_bytes, gate, ops);
    });
  }

  const graph_view& graph_;
  const step& step_;
  const control_flow& flow_;
  const std::int64_t min_bytes_;
  const tensor_sizes& sizes_;
  const std::vector<int> rank_;
  std::set<int> by_index_;  // backward ops that an index of each window or a code serves
  std::set<source> kept_;
};

class copier {
 public:
  // `result` holds a copy of the original.
  copier(const graph_view& graph, const chooser& chosen, tensor_sizes* sizes, tensorflow::GraphDef* result)
      : graph_(graph), chosen_(chosen), sizes_(sizes), result_(result), names_(*result) {}

  int ops() const { return ops_; }

  void redirect(const stashed_block& b) {
    copies_.clear();
    bytes_ = b.size.bytes();
    gate_ = graph_.name(chosen_.first_reader(b).gate);
    for (const stash_reader& r : b.readers) {
      const std::string copy = copied(r.tensor);
      result_->mutable_node(r.node)->set_input(r.input, copy);
    }
  }

 private:
  std::string copied(const source& s) {
    const auto done = copies_.find(s.node);
    if (done != copies_.end()) return done->second;
    const NodeDef& from = graph_.node(s.node);
    NodeDef made = from;
    made.clear_input();
    made.mutable_attr()->erase("_class");
    (*made.mutable_attr())[mark].set_b(true);
    for (int k = 0; k < from.input_size(); ++k) {
      const source& in = graph_.inputs(s.node)[at(k)];
      if (in.is_control()) continue;
      made.add_input(chosen_.stays(in, bytes_) ? from.input(k) : copied(in));
    }
    made.set_name(names_.take(absl::StrCat(from.name(), "/stash_again")));
    add_control_edge(&made, gate_);
    sizes_->add(*sizes_->find(s));
    if (!is_alias(from.op())) ++ops_;
    copies_[s.node] = made.name();
    *result_->add_node() = made;
    return made.name();
  }

  const graph_view& graph_;
  const chooser& chosen_;
  tensor_sizes* sizes_;
  tensorflow::GraphDef* result_;
  unused_names names_;
  // Of the map that is being copied. Each has its own: a shared copy would live from its first reader on.
  std::map<int, std::string> copies_;
  std::int64_t bytes_ = 0;
  std::string gate_;
  int ops_ = 0;
};

}  // namespace

copied_ops recompute(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                     const control_flow& flow, std::int64_t min_bytes, tensor_sizes* sizes,
                     tensorflow::GraphDef* result) {
  copied_ops done;
  chooser chosen(graph, analysis, flow, min_bytes, *sizes);
  const std::vector<int> blocks = chosen.choose();
  if (blocks.empty()) return done;
  *result = original;
  copier copy(graph, chosen, sizes, result);
  for (const int k : blocks) {
    copy.redirect(analysis.blocks[at(k)]);
    ++done.maps;
    done.bytes += analysis.blocks[at(k)].size.bytes();
  }
  done.ops = copy.ops();
  return done;
}

}  // namespace stash_tf
