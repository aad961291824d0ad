// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/recompute.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "optimizer/rewrite/unused_names.hpp"

namespace stash_tf {

namespace {

using tensorflow::NodeDef;

class copier {
 public:
  // `result` holds a copy of the original.
  copier(const graph_view& graph, const recipes& chosen, headroom* spare, tensor_sizes* sizes,
         tensorflow::GraphDef* result)
      : graph_(graph), chosen_(chosen), spare_(spare), sizes_(sizes), result_(result), names_(*result) {}

  int ops() const { return ops_; }

  // Blocks in the order of their first readers: what is copied for one waits for nothing that comes after the
  // first reader of the next.
  void redirect(const stashed_block& b) {
    own_.clear();
    bytes_ = b.size.bytes();
    first_ = &chosen_.first_reader(b);
    for (const stash_reader& r : b.readers) {
      if (!chosen_.serves(r)) continue;
      copy& c = copied(r.tensor);
      c.last_reader = later(r.node, c.last_reader);
      result_->mutable_node(r.node)->set_input(r.input, c.name);
    }
  }

 private:
  struct copy {
    std::string name;
    int last_reader = -1;
  };

  int later(int a, int b) const { return spare_ == nullptr ? a : spare_->later(a, b); }

  copy& copied(const source& s) {
    const auto there = copies_.find(s.node);
    if (there != copies_.end() && (own_.count(s.node) != 0 || may_stay(s, there->second))) {
      own_.insert(s.node);
      there->second.last_reader = later(first_->node, there->second.last_reader);
      return there->second;
    }
    const NodeDef& from = graph_.node(s.node);
    NodeDef made = copied_node(from, names_.take(absl::StrCat(from.name(), "/stash_again")));
    for (int k = 0; k < from.input_size(); ++k) {
      const source& in = graph_.inputs(s.node)[at(k)];
      if (in.is_control()) continue;
      made.add_input(chosen_.stays(in, bytes_) ? from.input(k) : copied(in).name);
    }
    add_control_edge(&made, graph_.name(first_->gate));
    sizes_->add(*sizes_->find(s));
    if (!is_alias(from.op())) ++ops_;
    *result_->add_node() = made;
    own_.insert(s.node);
    return copies_[s.node] = {made.name(), first_->node};
  }

  // From its last reader until the turn of the map that is being copied.
  bool may_stay(const source& s, const copy& c) {
    return spare_ != nullptr && spare_->take(c.last_reader, first_->gate, sizes_->find(s)->bytes());
  }

  const graph_view& graph_;
  const recipes& chosen_;
  headroom* spare_;
  tensor_sizes* sizes_;
  tensorflow::GraphDef* result_;
  unused_names names_;
  std::map<int, copy> copies_;  // the last ones, by node
  std::set<int> own_;           // nodes whose copies the map that is being copied uses
  std::int64_t bytes_ = 0;      // of this map
  const stash_reader* first_ = nullptr;
  int ops_ = 0;
};

}  // namespace

copied_ops recompute(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                     const control_flow& flow, const settings& request, copyable which, headroom* spare,
                     tensor_sizes* sizes, tensorflow::GraphDef* result) {
  copied_ops done;
  recipes chosen(graph, analysis, flow, request, which, *sizes);
  if (spare != nullptr) done.kept = chosen.keep_what_fits(spare);
  const std::vector<int> blocks = chosen.blocks();
  if (blocks.empty()) return done;
  *result = original;
  copier copy(graph, chosen, spare, sizes, result);
  for (const int k : blocks) {
    copy.redirect(analysis.blocks[at(k)]);
    ++done.maps;
    done.bytes += analysis.blocks[at(k)].size.bytes();
  }
  done.ops = copy.ops();
  return done;
}

}  // namespace stash_tf
