// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/split_add_n.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/rewrite.hpp"
#include "optimizer/rewrite/unused_names.hpp"

namespace stash_tf {

namespace {

using tensorflow::NodeDef;

// AddN's kernel adds up so many terms at once, and then adds their sum to that of those before.
constexpr int terms_at_once = 8;

// TensorFlow's own optimizer leaves additions with this attribute alone.
constexpr char keep_separate[] = "_grappler_ArithmeticOptimizer_AddOpsRewriteStage";

// How many terms the kernel adds up first, out of `terms`, at least 2: what is over, and a single one
// together with the eight after it.
int first_terms(int terms) {
  const int over = terms % terms_at_once;
  return over > 1 ? over : over + terms_at_once;
}

// TensorFlow's own optimizer makes these of nested sums, after the pass that sorts the inputs of commutative
// ops by name. That pass comes once more, after this optimizer, and sorts them too.
constexpr char made_of_nested[] = "ArithmeticOptimizer/AddOpsRewrite";

// Factors are hoisted out of a sum of such.
bool is_elementwise_product(const std::string& op) {
  return op == "Mul" || op == "MulNoNan" || op == "RealDiv" || op == "Div" || op == "DivNoNan";
}

class splitter {
 public:
  splitter(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
           tensor_sizes* sizes, tensorflow::GraphDef* result)
      : graph_(graph), step_(analysis), sizes_(sizes), result_(result), names_(original) {}

  bool is_worthwhile(int i, std::int64_t smallest) const {
    if (graph_.op(i) != "AddN" || !step_.backward[at(i)]) return false;
    const std::vector<source>& terms = graph_.inputs(i);
    const tensor_size* size = sizes_->find({i, 0});
    const auto count = static_cast<int>(terms.size());
    if (count < 3 || size == nullptr || (count - 2) * size->bytes() < smallest) return false;
    if (!std::all_of(terms.begin(), terms.end(), [&](const source& s) { return is_own(s); })) return false;
    const std::vector<int> order = order_of_terms(i);
    const auto product = [&](int k) {
      return is_elementwise_product(graph_.op(terms[at(order[at(k)])].node));
    };
    for (int k = 0; k < count; k = k == 0 ? first_terms(count) : k + terms_at_once)
      if (product(k) && product(k + 1)) return false;
    return true;
  }

  void split(int i) {
    const NodeDef sum = graph_.node(i);
    const auto count = sum.input_size();
    const std::vector<int> order = order_of_terms(i);
    const auto term = [&](int k) { return sum.input(order[at(k)]); };
    // Additions in their order; the last one is the node itself.
    int left = count - 1;
    const auto add = [&](const std::string& a, const std::string& b) {
      --left;
      NodeDef* n = left > 0 ? add_node(sum, i) : result_->mutable_node(i);
      n->clear_input();
      n->add_input(a);
      n->add_input(b);
      (*n->mutable_attr())["N"].set_i(2);
      (*n->mutable_attr())[mark].set_b(true);
      (*n->mutable_attr())[keep_separate].set_b(true);
      return n->name();
    };
    const auto add_up = [&](int first, int terms) {
      std::string name = term(first);
      for (int k = 1; k < terms; ++k)
        name = add(name, term(first + k));
      return name;
    };
    const int first = first_terms(count);
    std::string name = add_up(0, first);
    for (int k = first; k < count; k += terms_at_once) {
      const std::string more = add_up(k, terms_at_once);
      name = add(name, more);
    }
    count_terms(i, count);
  }

 private:
  // In which the kernel will find them.
  std::vector<int> order_of_terms(int i) const {
    const NodeDef& sum = graph_.node(i);
    std::vector<int> order(at(sum.input_size()));
    std::iota(order.begin(), order.end(), 0);
    if (sum.name().find(made_of_nested) != std::string::npos)
      std::sort(order.begin(), order.end(), [&](int a, int b) { return sum.input(a) < sum.input(b); });
    return order;
  }

  // Whether nobody else has the buffer: then the kernel takes the first term's for the sum.
  bool is_own(source s) const {
    if (s.is_control()) return false;
    for (;;) {
      const std::string& op = graph_.op(s.node);
      const std::vector<reader>& readers = graph_.readers(s.node);
      const auto same = [&](const reader& r) { return r.port == s.port; };
      if (std::count_if(readers.begin(), readers.end(), same) != 1) return false;
      if (is_held_elsewhere(op) || op == "Const" || is_control_flow(op)) return false;
      if (!is_alias(op)) return true;
      s = graph_.inputs(s.node)[0];
    }
  }

  NodeDef* add_node(const NodeDef& sum, int i) {
    NodeDef* n = result_->add_node();
    n->set_name(names_.take(absl::StrCat(sum.name(), "/stash_sum")));
    n->set_op("AddN");
    n->set_device(sum.device());
    (*n->mutable_attr())["T"] = sum.attr().at("T");
    sizes_->add(*sizes_->find({i, 0}));
    return n;
  }

  // After one addition, so that it is in the sum's loop and branch, and before the last.
  void count_terms(int i, int terms) {
    NodeDef* last = result_->mutable_node(i);
    const std::string name = names_.take(absl::StrCat(last->name(), "/stash_terms"));
    add_control_edge(last, name);
    NodeDef* n = result_->add_node();
    n->set_name(name);
    n->set_op("StashSum");
    n->set_device(graph_.node(i).device());
    n->add_input(absl::StrCat("^", parse_input(result_->node(i).input(0)).first));
    (*n->mutable_attr())["terms"].set_i(terms);
    (*n->mutable_attr())["tensor"].set_s(graph_.tensor_name({i, 0}));
    (*n->mutable_attr())[mark].set_b(true);
    sizes_->add({});
  }

  const graph_view& graph_;
  const step& step_;
  tensor_sizes* sizes_;
  tensorflow::GraphDef* result_;
  unused_names names_;
};

}  // namespace

int split_add_ns(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                 std::int64_t smallest, tensor_sizes* sizes, tensorflow::GraphDef* result) {
  splitter s(original, graph, analysis, sizes, result);
  int sums = 0;
  for (int i = 0; i < graph.size(); ++i) {
    if (!s.is_worthwhile(i, smallest)) continue;
    if (sums++ == 0) *result = original;
    s.split(i);
  }
  return sums;
}

}  // namespace stash_tf
